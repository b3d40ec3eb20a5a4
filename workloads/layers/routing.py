"""Where a router sends tokens: loads of experts, capacities, what is dropped and what a rank sends."""

from __future__ import annotations

import math

from simulator.operators import Skew, geometric_loads, spread_places
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Parallelism

COUNT_BYTES = 8
"""Bytes of a count of tokens as ranks tell each other (64-bit)."""
_DIGITS = 6
"""Digits of a count of tokens that are more than rounding."""


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
    whom the others wait for: as all ranks of a class are alike, the others then work as much, so that their
    energy is an upper bound; what goes from rank to rank is exact (`exchange_skew`). A whole number, k, for
    an even router without a capacity.
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


def expert_loads(count: int, imbalance: float) -> tuple[float, ...]:
    """Return the loads of experts over their mean, the busiest first; they add up to `count`."""
    return geometric_loads(count, imbalance)


def rank_loads(config: TransformerConfig, plan: Parallelism) -> tuple[float, ...]:
    """Return the loads of expert-parallel ranks over their mean, shape [ep].

    Notes
    -----
    Experts are dealt to ranks in turn, as in `rank_imbalance`; busy ranks stand far apart in their group.
    """
    loads = expert_loads(config.experts, plan.expert_imbalance)
    found = [0.0] * plan.ep
    for turn, place in enumerate(spread_places(plan.ep).tolist()):
        found[place] = math.fsum(loads[turn :: plan.ep]) * plan.ep / config.experts
    return tuple(found)


def exchange_skew(config: TransformerConfig, plan: Parallelism) -> Skew | None:
    """Return what goes to whom when tokens are sent to their experts; None if the same to everybody.

    Notes
    -----
    With a capacity every rank sends each expert its places, filled or not.
    """
    if plan.ep == 1 or capacity(config, plan):
        return None
    skew = Skew(loads=rank_loads(config, plan), affinity=plan.expert_affinity)
    return None if skew.even or plan.expert_imbalance == plan.expert_affinity == 1.0 else skew


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
