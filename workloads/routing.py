"""Where a router sends tokens: loads of experts, capacities, what is dropped and what a rank sends."""

from __future__ import annotations

import math

from workloads.architecture import TransformerConfig
from workloads.plan import Parallelism

COUNT_BYTES = 8
"""Bytes of a count of tokens as ranks tell each other (64-bit)."""
_DIGITS = 6
"""Digits of a count of tokens that are more than rounding."""
_HALVINGS = 200
"""Halvings of the interval that holds the ratio of neighbouring loads: past double precision."""


def capacity(config: TransformerConfig, plan: Parallelism) -> int:
    """Return how many tokens of one rank each expert has room for; 0 if there is no limit.

    Notes
    -----
    C = ceil(k T / E x capacity factor) for T tokens that visit k of E experts (GShard, arXiv:2006.16668,
    section 2.2, with k = 2; Switch, arXiv:2101.03961, equation 3, with k = 1).
    """
    if not plan.capacity_factor or config.experts == 1:
        return 0
    return _up(plan.routed_tokens * config.experts_per_token / config.experts * plan.capacity_factor)


def visits(config: TransformerConfig, plan: Parallelism) -> float:
    """Return how many copies of a token a rank makes room for, sends and works on, on average.

    Notes
    -----
    With a capacity its experts' places over its tokens, filled or not. Without one those of the busiest rank,
    whom the others wait for: as all ranks of a class are alike, the others then do as much, so that energy
    and bytes are upper bounds. A whole number, k, for an even router without a capacity.
    """
    places = capacity(config, plan)
    if places:
        return places * config.experts / plan.routed_tokens
    if plan.expert_imbalance == 1.0 or config.experts == 1:
        return config.experts_per_token
    return config.experts_per_token * rank_imbalance(config, plan)


def expert_rows(config: TransformerConfig, plan: Parallelism) -> int:
    """Return the tokens that each of a rank's experts works on in one microbatch.

    Notes
    -----
    Exact sizes (FastMoE, arXiv:2103.13262) give the mean over the busiest rank's experts, whose loads differ
    if the router is not even; a capacity gives the same to all, padded.
    """
    places = capacity(config, plan)
    if places:
        return places * plan.ep
    if plan.expert_imbalance == 1.0:
        return -(-plan.routed_tokens * config.experts_per_token * plan.ep // config.experts)
    return _up(plan.routed_tokens * visits(config, plan) * plan.ep / config.experts)


def _up(count: float) -> int:
    """Return a count rounded up, but for what the arithmetic itself adds to a whole number."""
    return math.ceil(round(count, _DIGITS))


def load_ratio(count: int, imbalance: float) -> float:
    """Return the load of an expert over that of the next busier one, of `count` experts.

    Parameters
    ----------
    count : int
        Experts.
    imbalance : float
        Load of the busiest over the mean, from 1 to `count`.

    Notes
    -----
    Loads are taken to fall geometrically, the one family with a single parameter that reaches from an even
    router (ratio 1) to one expert that draws everything (ratio 0). The root of
    imbalance = count (1 - r) / (1 - r^count), which falls with r, is found by halving.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _busiest(count, middle) > imbalance:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _busiest(count: int, ratio: float) -> float:
    """Return the load of the busiest of so many over the mean, if loads fall by a ratio."""
    return count / math.fsum(ratio**place for place in range(count))


def expert_loads(count: int, imbalance: float) -> tuple[float, ...]:
    """Return the loads of experts over their mean, the busiest first; they add up to `count`."""
    ratio = load_ratio(count, imbalance)
    return tuple(_busiest(count, ratio) * ratio**place for place in range(count))


def rank_imbalance(config: TransformerConfig, plan: Parallelism) -> float:
    """Return the load of the busiest expert-parallel rank over the mean.

    Notes
    -----
    Experts are dealt to ranks in turn from the busiest to the idlest, as nobody knows their loads when they
    are placed but a balanced placement is what every system tries for.
    """
    loads = expert_loads(config.experts, plan.expert_imbalance)
    return math.fsum(loads[:: plan.ep]) * plan.ep / config.experts


def dropped_share(config: TransformerConfig, plan: Parallelism) -> float:
    """Return the share of visits that find their expert full, and are left out.

    Notes
    -----
    Of every expert's load what is above its capacity (arXiv:2006.16668, section 2.2, "expert capacity"). The
    capacity is that with its rounding; the loads are taken to be those on every rank.
    """
    places = capacity(config, plan)
    if not places:
        return 0.0
    mean = plan.routed_tokens * config.experts_per_token / config.experts
    room = places / mean
    loads = expert_loads(config.experts, plan.expert_imbalance)
    return math.fsum(max(0.0, load - room) for load in loads) / config.experts
