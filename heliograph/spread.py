"""Where copies of a token go, and hence how many nodes it visits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heliograph.errors import WorkloadError


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Where the copies of one token go: to some of many targets, which a group's members share evenly."""

    targets: int
    """Targets (experts) over the whole group."""
    copies: int
    """Targets that a token goes to."""
    sets: int = 1
    """Sets of neighbouring targets among which a token chooses first."""
    chosen_sets: int = 1
    """Sets that it may go to."""

    def __post_init__(self) -> None:
        reached = self.targets // self.sets * self.chosen_sets if self.sets > 0 else 0
        if self.targets % max(self.sets, 1) or not 1 <= self.copies <= reached:
            msg = (
                f"a token's {self.copies} copies must fit the {self.chosen_sets} chosen of {self.sets} sets, "
                f"which must divide the {self.targets} targets"
            )
            raise WorkloadError(msg)

    def nodes_visited(self, nodes: int) -> float:
        """Return how many of so many nodes a token goes to on average.

        Notes
        -----
        Every choice of sets, and of targets within them, is taken to be as likely. A node with t targets in a
        sets is missed with probability sum_i P(i of its sets chosen) C(reached - i t/a, k) / C(reached, k),
        P hypergeometric. With sets as nodes this is the node-limited routing of DeepSeek-V3
        (arXiv:2412.19437, section 2.1.2).
        """
        size = self.targets // self.sets
        reached = size * self.chosen_sets
        here = self.targets // nodes
        own = max(1, here // size)
        ways = math.comb(self.sets, self.chosen_sets)
        missed = 0.0
        for met in range(min(own, self.chosen_sets) + 1):
            chance = math.comb(own, met) * math.comb(self.sets - own, self.chosen_sets - met) / ways
            left = reached - met * (here // own)
            missed += chance * math.comb(left, self.copies) / math.comb(reached, self.copies)
        return nodes * (1.0 - missed)
