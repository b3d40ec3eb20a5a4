"""Matchings that follow each other in a fixed round, without anybody asking for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heliograph.checks import check_range
from heliograph.errors import ParameterError

SEEDS = 64
"""Orders of matchings that are tried until the lanes reach everyone at every instant; dimensionless."""
INSTANTS = 16
"""Instants at which the graph of the lanes is looked at, evenly over a round; dimensionless."""


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """N ends that see each other once a round, over lanes that turn one after the other.

    Notes
    -----
    The matchings are the N shifts i -> i + k modulo N, each of them held by one lane for one slot, so a round
    takes ``ceil(N / lanes)`` slots. The lanes' turns are staggered evenly over a slot, so that only one is
    dark at a time. With a lane for every matching nothing turns.

    References
    ----------
    Mellette et al., "RotorNet", SIGCOMM 2017: round robin over matchings; "Expanding across time to deliver
    bandwidth efficiency and low latency" (Opera), NSDI 2020: staggered turns, an expander at each instant.
    """

    ends: int
    """Ends that are joined, N."""
    lanes: int
    """Lanes of each end."""
    dark_s: float
    """Time in which a lane that turns carries nothing."""
    hold_ratio: float
    """Slot, its dark time included, over the dark time, above 1; dimensionless."""

    def __post_init__(self) -> None:
        check_range(self, "ends", "lanes", low=1)
        check_range(self, "dark_s")
        check_range(self, "hold_ratio", low=1.0, open_low=True)

    @property
    def slots(self) -> int:
        """Slots of a round."""
        return -(-self.ends // self.lanes)

    @property
    def turns(self) -> bool:
        """Whether lanes turn at all."""
        return self.slots > 1

    @property
    def slot_s(self) -> float:
        """Time from one turn of a lane to the next; zero where none turns."""
        return self.dark_s * self.hold_ratio if self.turns else 0.0

    @property
    def round_s(self) -> float:
        """Time after which everything repeats."""
        return self.slots * self.slot_s

    @property
    def duty(self) -> float:
        """Share of time in which a lane carries something: 1 - dark / slot."""
        return 1.0 - 1.0 / self.hold_ratio if self.turns else 1.0

    @property
    def wait_s(self) -> float:
        """Mean time until two given ends are joined."""
        return self.round_s / 2

    @property
    def peer_share(self) -> float:
        """Rate from an end straight to one other, over a lane's rate, on average over a round."""
        return self.duty / self.slots

    @property
    def port_share(self) -> float:
        """Rate of an end to all others, over a lane's rate, on average over a round."""
        return (self.ends - 1) * self.peer_share

    @cached_property
    def shifts(self) -> np.ndarray:
        """Shift of each lane in each slot, shape [lanes, slots]; 0 for an end that meets itself, or nobody.

        Raises
        ------
        ParameterError
            If no order of the matchings keeps all ends connected while one lane turns.
        """
        for seed in range(SEEDS):
            order = np.zeros(self.lanes * self.slots, dtype=np.int64)
            order[: self.ends] = np.random.default_rng(seed).permutation(self.ends)
            shifts = order.reshape(self.slots, self.lanes).T
            if all((_hops(self.ends, lit) < self.ends).all() for lit in _instants(shifts)):
                return shifts
        msg = (
            f"{self.lanes} lanes, one of which turns, do not keep {self.ends} ends connected; "
            "take more lanes, or leave small transfers to direct circuits (bulk_bytes=0)"
        )
        raise ParameterError(msg)

    @cached_property
    def hops(self) -> np.ndarray:
        """Lanes on the shortest way to each shift at several instants of a round, shape [instants, N]."""
        return np.stack([_hops(self.ends, lit) for lit in _instants(self.shifts)])

    @property
    def mean_hops(self) -> float:
        """Lanes on the shortest way to another end, on average over ends and instants."""
        return float(self.hops.sum() / (len(self.hops) * max(self.ends - 1, 1)))

    @property
    def most_hops(self) -> int:
        """Lanes on the longest of the shortest ways at any instant."""
        return int(self.hops.max())


def _instants(shifts: np.ndarray) -> list[np.ndarray]:
    """Return the shifts of the lanes that are lit at instants over a round; one lane turns at each."""
    lanes, slots = shifts.shape
    if slots == 1:
        return [shifts[:, 0]]
    instants = np.linspace(0, lanes * slots, min(INSTANTS, lanes * slots), endpoint=False).astype(np.int64)
    found = []
    for instant in instants:
        slot, turning = divmod(int(instant), lanes)
        place = np.where(np.arange(lanes) <= turning, slot, slot - 1)  # those behind have yet to turn
        found.append(np.delete(shifts[np.arange(lanes), place], turning))
    return found


def _hops(ends: int, shifts: np.ndarray) -> np.ndarray:
    """Return the least number of shifts that add up to each number modulo `ends`, `ends` if none do."""
    hops = np.full(ends, ends)
    hops[0] = 0
    newest, step = np.zeros(1, dtype=np.int64), 0
    while newest.size:
        step += 1
        reached = np.unique((newest[:, None] + shifts) % ends)
        newest = reached[hops[reached] == ends]
        hops[newest] = step
    return hops
