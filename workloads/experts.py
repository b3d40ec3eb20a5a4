"""The feed-forward half of a block with experts, as forward steps on one rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from heliograph.operators import Collective, CollectiveKind, Phase
from heliograph.spread import Spread
from workloads.choices import ExpertExchange
from workloads.routing import COUNT_BYTES, exchange_skew, expert_rows, visits
from workloads.steps import SOFTMAX_FLOPS, Exchange, Step

if TYPE_CHECKING:
    from workloads.parts import Parts

ROUTING_OPERATORS = 10
"""Operators of a router after its product: softmax, top-k, normalised weights, two scatters into maps of
weights and choices, and five of the auxiliary loss (Megatron-LM, core/transformer/moe: router, helpers)."""
DISPATCH_OPERATORS = 6
"""Operators before tokens are sent: counts by expert and by rank, their copy to the host, the order of the
tokens, tokens and weights in that order (Megatron-LM, core/transformer/moe/token_dispatcher.py)."""
COMBINE_OPERATORS = 4
"""Operators after tokens are back: weights, the empty sum, the addition to it, its shape (same file)."""


def expert_mlp(parts: Parts) -> tuple[Step, ...]:
    """Return the feed-forward half of a block with experts.

    Notes
    -----
    The router scores every token, tokens are copied into the order of their experts and exchanged, experts
    work, and what they return is exchanged back and summed with the router's weights. With a capacity every
    expert's places are sent and worked on, filled or not (GShard, arXiv:2006.16668, algorithm 1).
    """
    config, plan = parts.config, parts.plan
    copies = visits(config, plan)
    routed = parts.stream * copies
    scored = parts.stream_tokens * config.experts
    return (
        parts.norm("mlp.norm"),
        parts.weighted("mlp.router", m=parts.stream_tokens, k=config.hidden, n=config.experts),
        replace(
            parts.elementwise("mlp.gates", flops=SOFTMAX_FLOPS * scored, read=scored, written=scored),
            issued=ROUTING_OPERATORS,
        ),
        replace(
            parts.elementwise("mlp.dispatch", flops=0, read=routed, written=routed),
            issued=DISPATCH_OPERATORS,
        ),
        *counts(parts),
        *exchange(parts, "mlp.dispatch"),
        *sorting(parts),
        *region(parts, "mlp.input", enters=True),
        *parts.feed_forward(
            rows=expert_rows(config, plan), batch=config.experts // plan.ep, whole=plan.whole_experts
        ),
        *region(parts, "mlp.output", enters=False),
        *sorting(parts),
        *exchange(parts, "mlp.combine", returns=True),
        *shared_experts(parts),
        replace(
            parts.elementwise("mlp.combine", flops=2 * routed, read=routed, written=parts.stream),
            issued=COMBINE_OPERATORS,
        ),
        *parts.norm_after("mlp"),
        parts.residual("mlp.residual"),
    )


def region(parts: Parts, name: str, *, enters: bool) -> tuple[Step, ...]:
    """Return the edge of the region in which experts are cut over tensor ranks, if they are."""
    if parts.plan.whole_experts:
        return ()
    return parts.boundary(name, enters=enters, copies=visits(parts.config, parts.plan))


def sorting(parts: Parts) -> tuple[Step, ...]:
    """Return the copy that sorts what ranks send by expert, or back; none where a rank has one expert.

    Notes
    -----
    What arrives stands by the rank that sent it, and within that by expert (Megatron-LM's all-to-all
    dispatcher sorts chunks; DeepSpeed-MoE, arXiv:2201.05596, section 5.1, transforms the layout).
    """
    if parts.plan.ep in {1, parts.config.experts}:
        return ()
    moved = exchanged(parts)
    return (parts.elementwise("mlp.sort", flops=0, read=moved, written=moved),)


def exchange(parts: Parts, name: str, *, returns: bool = False) -> tuple[Step, ...]:
    """Return what a rank sends to the experts of one block, or gets back; nothing with one expert rank."""
    plan, config = parts.plan, parts.config
    if plan.ep == 1:
        return ()
    spread = Spread(
        targets=config.experts,
        copies=config.experts_per_token,
        sets=config.routing_groups,
        chosen_sets=config.chosen_groups,
    )
    skew = exchange_skew(config, plan)
    step = Exchange(
        name=name,
        elements=exchanged(parts) if skew is None else sent(parts),
        two_level=plan.expert_exchange is not ExpertExchange.DIRECT,
        spread=spread if plan.expert_exchange is ExpertExchange.ONCE_PER_NODE else None,
        skew=skew.turned() if skew is not None and returns else skew,
    )
    return (step,)


def sent(parts: Parts) -> int:
    """Return the elements that every rank sends to the experts of one block, if they have room for all."""
    plan, config = parts.plan, parts.config
    return (
        plan.tokens * config.hidden * config.experts_per_token // (plan.tp if plan.sequence_parallel else 1)
    )


def exchanged(parts: Parts) -> int:
    """Return the elements that a rank gets for the experts of one block, its own included."""
    plan = parts.plan
    elements = plan.tokens * parts.config.hidden * visits(parts.config, plan)
    return int(elements) // (plan.tp if plan.sequence_parallel else 1)


def counts(parts: Parts) -> tuple[Step, ...]:
    """Return the exchange of how many tokens each expert will get, if ranks tell each other first.

    Notes
    -----
    Needed for exact sizes, for a rank cannot know what others send it (FastMoE, arXiv:2103.13262). It has no
    backward pass: the sizes are known by then.
    """
    plan = parts.plan
    if not plan.exchange_counts or plan.ep == 1:
        return ()
    told = Collective(
        name="mlp.counts",
        layer=parts.layer,
        phase=Phase.FORWARD,
        kind=CollectiveKind.ALL_TO_ALL,
        axis="ep",
        size=plan.ep,
        payload_bytes=float(parts.config.experts * COUNT_BYTES),
    )
    return (told,)


def shared_experts(parts: Parts) -> tuple[Step, ...]:
    """Return the work of experts that every token visits, on the rank that has the token."""
    if not parts.config.shared_experts:
        return ()
    return (
        *parts.boundary("mlp.shared_input", enters=True),
        *parts.feed_forward(rows=parts.plan.tokens, widths=parts.config.shared_experts),
        *parts.boundary("mlp.shared_output", enters=False),
    )
