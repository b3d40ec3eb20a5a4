"""Numbers of process groups by which ASTRA-sim tells apart what ranks send to each other.

Notes
-----
ASTRA-sim numbers the streams of group g from g * 10^6 on in 32 bits (CommunicatorGroup.cc), and takes them
modulo 5 * 10^8 for tags (Sys.cc); so numbers that are equal modulo 500 meet, and from 2,148 on they overflow.
A group that a trace itself records is one higher than its name (Workload.cc).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from simulator.errors import WorkloadError
from workloads.traces.chakra.nodes import Attribute, Form, Node, NodeType

MOST = 498
"""Highest number of a group: it and the one above it stay below 500."""
Group = tuple[int, ...]
"""Ranks of a group in their order."""


@dataclass(frozen=True, kw_only=True)
class Numbering:
    """The number of each group, from 1."""

    numbers: dict[Group, int]
    """By group; equal only for groups without a common rank."""

    @cached_property
    def distinct(self) -> bool:
        """Whether no two groups have the same number, so that one file can name all."""
        return len(set(self.numbers.values())) == len(self.numbers)

    @cached_property
    def _of_rank(self) -> dict[int, list[Group]]:
        found: defaultdict[int, list[Group]] = defaultdict(list)
        for group in self.numbers:
            for rank in group:
                found[rank].append(group)
        return found

    def file(self) -> dict[str, list[int]]:
        """Return the content of the file of groups; nothing if numbers stand for several."""
        if not self.distinct:
            return {}
        return {str(number): list(group) for group, number in self.numbers.items()}

    def node(self, rank: int) -> Node:
        """Return the node that tells a rank its groups, as PyTorch records them; first and without order."""
        own = [
            {"pg_name": str(self.numbers[group]), "ranks": list(group)}
            for group in self._of_rank.get(rank, ())
        ]
        return Node(
            id=0,
            name="process groups",
            type=NodeType.METADATA,
            inputs=(f"['{json.dumps(own)}']", "", ""),
            attributes={"is_cpu_op": Attribute(Form.BOOL, value=True)},
        )


def numbered(groups: Iterable[Group]) -> Numbering:
    """Return numbers of groups: their places while there are few, else the lowest that no member has.

    Raises
    ------
    WorkloadError
        If a rank is in more groups than there are numbers.
    """
    different = tuple(dict.fromkeys(groups))
    if len(different) <= MOST:
        return Numbering(numbers={group: place + 1 for place, group in enumerate(different)})
    taken: defaultdict[int, set[int]] = defaultdict(set)
    numbers = {}
    for group in different:
        others = set().union(*(taken[rank] for rank in group))
        number = next(one for one in range(1, len(others) + 2) if one not in others)
        if number > MOST:
            msg = (
                f"rank {group[0]} and those it meets are in {number} process groups; ASTRA-sim tells {MOST} "
                "apart; export a smaller step"
            )
            raise WorkloadError(msg)
        numbers[group] = number
        for rank in group:
            taken[rank].add(number)
    return Numbering(numbers=numbers)
