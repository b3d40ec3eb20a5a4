"""Routing of tokens to experts: loads, capacities, dropped tokens, and what a rank sends."""

from __future__ import annotations

import math

from simulator.operators import Skew, geometric_loads, spread_places
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Share

COUNT_BYTES = 8
"""Bytes of a count of tokens as ranks tell each other (64-bit)."""
_DIGITS = 6
"""Digits of a count of tokens that are more than rounding."""


def capacity(config: TransformerConfig, share: Share) -> int:
    """Return how many tokens of one rank each expert has room for; 0 if there is no limit.

    Notes
    -----
    C = ceil(k T / E x capacity factor) for T tokens that visit k of E experts (GShard, arXiv:2006.16668,
    section 2.2, with k = 2; Switch, arXiv:2101.03961, equation 3, with k = 1).
    """
    if not share.experts.capacity_factor or config.experts == 1:
        return 0
    return _up(
        share.routed_tokens * config.experts_per_token / config.experts * share.experts.capacity_factor
    )


def visits(config: TransformerConfig, share: Share) -> float:
    """Return how many copies of a token a rank makes room for, sends and works on, on average.

    Notes
    -----
    With a capacity its experts' places over its tokens, filled or not. Without one those of the busiest rank,
    whom the others wait for: as all ranks of a class are alike, the others then work as much, so that their
    energy is an upper bound; what goes from rank to rank is exact (`exchange_skew`). A whole number, k, for
    an even router without a capacity.
    """
    places = capacity(config, share)
    if places:
        return places * config.experts / share.routed_tokens
    if share.experts.expert_imbalance == 1.0 or config.experts == 1:
        return config.experts_per_token
    return config.experts_per_token * rank_imbalance(config, share)


def expert_rows(config: TransformerConfig, share: Share) -> int:
    """Return the tokens that each of a rank's experts works on in one microbatch.

    Notes
    -----
    Exact sizes (FastMoE, arXiv:2103.13262) give the mean over the busiest rank's experts, whose loads differ
    if the router is not even; a capacity gives the same to all, padded.
    """
    places = capacity(config, share)
    if places:
        return places * share.axes.ep
    if share.experts.expert_imbalance == 1.0:
        return -(-share.routed_tokens * config.experts_per_token * share.axes.ep // config.experts)
    return _up(share.routed_tokens * visits(config, share) * share.axes.ep / config.experts)


def _up(count: float) -> int:
    """Return a count rounded up, but for what the arithmetic itself adds to a whole number."""
    return math.ceil(round(count, _DIGITS))


def expert_loads(count: int, imbalance: float) -> tuple[float, ...]:
    """Return the loads of experts over their mean, the busiest first; they add up to `count`."""
    return geometric_loads(count, imbalance)


def rank_loads(config: TransformerConfig, share: Share) -> tuple[float, ...]:
    """Return the loads of expert-parallel ranks over their mean, shape [ep].

    Notes
    -----
    Experts are dealt to ranks in turn, as in `rank_imbalance`; busy ranks stand far apart in their group.
    """
    loads = expert_loads(config.experts, share.experts.expert_imbalance)
    found = [0.0] * share.axes.ep
    for turn, place in enumerate(spread_places(share.axes.ep).tolist()):
        found[place] = math.fsum(loads[turn :: share.axes.ep]) * share.axes.ep / config.experts
    return tuple(found)


def exchange_skew(config: TransformerConfig, share: Share) -> Skew | None:
    """Return what goes to whom when tokens are sent to their experts; None if the same to everybody.

    Notes
    -----
    With a capacity every rank sends each expert its places, filled or not.
    """
    if share.axes.ep == 1 or capacity(config, share):
        return None
    skew = Skew(
        loads=rank_loads(config, share),
        affinity=share.experts.expert_affinity,
        patterns=share.experts.expert_patterns,
    )
    return (
        None if skew.even or share.experts.expert_imbalance == share.experts.expert_affinity == 1.0 else skew
    )


def rank_imbalance(config: TransformerConfig, share: Share) -> float:
    """Return the load of the busiest expert-parallel rank over the mean.

    Notes
    -----
    Experts are dealt to ranks in turn from the busiest to the idlest, as nobody knows their loads when they
    are placed but a balanced placement is what every system tries for.
    """
    loads = expert_loads(config.experts, share.experts.expert_imbalance)
    return math.fsum(loads[:: share.axes.ep]) * share.axes.ep / config.experts


def dropped_share(config: TransformerConfig, share: Share) -> float:
    """Return the share of visits that find their expert full, and are left out.

    Notes
    -----
    Of every expert's load what is above its capacity (arXiv:2006.16668, section 2.2, "expert capacity"). The
    capacity is that with its rounding; the loads are taken to be those on every rank.
    """
    places = capacity(config, share)
    if not places:
        return 0.0
    mean = share.routed_tokens * config.experts_per_token / config.experts
    room = places / mean
    loads = expert_loads(config.experts, share.experts.expert_imbalance)
    return math.fsum(max(0.0, load - room) for load in loads) / config.experts
