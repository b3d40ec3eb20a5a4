"""Penalties of accelerators within a step, one law for chips of any kind: host, company, lag, idle power.

They are measured on GPUs only, and what drives and joins them is the same software and the same network: a
chip of any other kind pays as much unless somebody shows that it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from statistics import NormalDist

from simulator.amounts import Amount, choose
from simulator.checks import check_range
from simulator.operators import Held, MatMul, MatMuls, Phase, Products

BLOM = 0.375
"""Plotting position for the expected order statistics of normal draws (Blom 1958, section 6.9)."""


class Penalties(StrEnum):
    """Accelerators that pay for host, company, the slowest of them and idle power."""

    NONE = "none"
    GPU = "gpu"
    BOTH = "both"


@cache
def expected_maximum(count: int) -> float:
    """Return the expected largest of so many standard normal draws, in standard deviations (Blom 1958)."""
    return NormalDist().inv_cdf((count - BLOM) / (count - 2 * BLOM + 1))


@dataclass(frozen=True, kw_only=True)
class StepPenalties:
    """Penalties that an accelerator pays in a step beyond the work of its parts; nothing, if left out.

    Notes
    -----
    *Company.* Products run at a share of the rate that they have alone: caches hold what other work left, and
    collectives and copies take memory meanwhile. Products inside a fused attention kernel keep their operands
    on chip, whatever ran before, and keep their rate.

    *The slowest.* Accelerators that wait for each other go at the pace of the slowest of so many, whose
    expected lag is `clock_spread` times the expected largest of so many normal draws.

    *Host.* An operator takes the host a time to issue, and each further library call less; as it runs ahead,
    only the sum over a run of operators can bind (`simulator.interfaces.Cost.host_s`).

    *Idle.* Host interface, links, management and leakage draw power whether or not anything runs.
    """

    host_operator_s: float = 0.0
    """Time the host takes to issue an operator."""
    host_launch_s: float = 0.0
    """Time it takes for each further library call of the same operator."""
    in_situ_efficiency: float = 1.0
    """Share of its rate that a product keeps within a step, 0 to 1."""
    clock_spread: float = 0.0
    """Standard deviation of the speed of accelerators of one type, as a share of the mean."""
    slowest_of: int = 1
    """Accelerators that wait for each other."""
    idle_w: float = 0.0
    """Power when nothing runs, beyond what parts draw all the time."""

    def __post_init__(self) -> None:
        check_range(self, "slowest_of", low=1)
        check_range(self, "in_situ_efficiency", high=1.0, open_low=True)
        check_range(self, "host_operator_s", "host_launch_s", "clock_spread", "idle_w")

    @property
    def lag(self) -> float:
        """Factor by which the slowest of `slowest_of` is expected to be slower than the mean one."""
        return 1.0 + self.clock_spread * expected_maximum(self.slowest_of)

    def in_company_s(self, alone_s: Amount, product: Products) -> Amount:
        """Return the time of a product, or of many, within a step from the time that it takes alone."""
        return alone_s if product.on_chip else alone_s / self.in_situ_efficiency

    def issue_s(self, calls: Amount) -> Amount:
        """Return the time in which the host issues one operator of so many library calls, of none 0."""
        further = choose(calls > 1, self.host_launch_s * (calls - 1), 0.0 * calls)
        return choose(calls > 0, self.host_operator_s + further, 0.0 * calls)


def library_calls(product: Products) -> Amount:
    """Return the library calls that a host makes for a product.

    Notes
    -----
    Products with weights of several experts are a call each. Of the products of a fused attention kernel only
    the first is called, that which leaves its result on the chip.
    """
    if product.on_chip:
        return int(product.on_chip == "c")
    return product.batch if weighted(product) else 1


def weighted(product: MatMul | MatMuls) -> bool:
    """Return whether a product has a weight or its gradient, not activations alone."""
    return product.held is not Held.NONE or product.phase is Phase.GRAD_WEIGHT


NO_PENALTIES = StepPenalties()
"""An accelerator that pays nothing beyond the work of its parts."""
