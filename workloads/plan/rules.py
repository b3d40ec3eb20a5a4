"""Rules between the parts of a plan, and between a plan and a model: one table for single plans and arrays.

What a part cannot be by itself stands in its type (`workloads.plan.parts`). A condition here is written
with comparisons, ``&`` and ``|``, so that it holds for a plan whose counts are numbers and for one whose
counts are arrays with one number for each of many plans; the sentence is asked for of a single plan only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from simulator.amounts import Amount, Flag, larger
from simulator.errors import WorkloadError
from workloads.models.architecture import Positions, TransformerConfig, divisors
from workloads.plan.choices import (
    ATTENTION_BLOCK,
    WEIGHT_BLOCK,
    ContextExchange,
    ExpertExchange,
    Precision,
    TensorGrid,
)
from workloads.plan.parts import Rule, trait
from workloads.plan.plan import PARTS, Plan

HEADS = "tensor ranks do not divide heads or widths"
CONTEXT = "context ranks do not divide the sequence, or windows are not cut"
TOKENS = "tensor ranks do not divide a microbatch's tokens"
STAGES = "more stages than blocks"
EXPERTS = "expert ranks are not of the data ranks"
BATCH = "data ranks and microbatch do not divide the batch"
CHUNKS = "chunks do not fit the stages"
OTHER = "parts of the plan contradict each other"
SUBJECTS = (HEADS, CONTEXT, TOKENS, STAGES, EXPERTS, BATCH, CHUNKS)
"""Subjects that a search always reports, in the order in which it counts plans that break them."""

Number = Callable[[TransformerConfig, Plan], Any]
"""A count of a model or a plan, or one for each of many plans."""


def check(config: TransformerConfig, plan: Plan, *, accelerators: int | None = None) -> None:
    """Check that a plan can cut a model, and takes the accelerators there are.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plan : Plan
        The plan.
    accelerators : int, optional
        Accelerators that the plan must take, neither more nor fewer.

    Raises
    ------
    WorkloadError
        Naming the first rule broken and what would keep it.
    """
    for rule in RULES:
        if rule.broken(config, plan):
            raise WorkloadError(rule.sentence(config, plan))
    if accelerators is not None and plan.axes.ranks != accelerators:
        axes = plan.axes
        msg = (
            f"the plan takes tp x pp x dp x cp = {axes.tp} x {axes.pp} x {axes.dp} x {axes.cp} = "
            f"{axes.ranks} accelerators, but there are {accelerators}; {_data_hint(plan, accelerators)}"
        )
        raise WorkloadError(msg)


def keeps_rules(config: TransformerConfig, plan: Plan) -> bool:
    """Return whether a plan can cut a model."""
    return not any(rule.broken(config, plan) for rule in RULES)


def broken_by_subject(config: TransformerConfig, plans: Plan, count: int) -> dict[str, np.ndarray]:
    """Return which of many plans break a rule, by the rules' subjects, shape [P] each.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plans : Plan
        A plan whose counts are arrays of shape [P].
    count : int
        P.
    """
    found = {subject: np.zeros(count, dtype=bool) for subject in SUBJECTS}
    for subject, broken in _all_broken(config, plans):
        if np.any(broken):
            found[subject] = np.logical_or(found.get(subject, np.zeros(count, dtype=bool)), broken)
    return found


def _all_broken(config: TransformerConfig, plans: Plan) -> Iterator[tuple[str, Flag]]:
    for name in PARTS:
        part = getattr(plans, name)
        for rule in part.RULES:
            yield rule.subject, rule.broken(part)
    for rule in RULES:
        yield rule.subject, rule.broken(config, plans)


def _data_hint(plan: Plan, accelerators: int) -> str:
    model = plan.axes.tp * plan.axes.pp * plan.axes.cp
    if accelerators % model == 0 and accelerators >= model:
        return f"try dp={accelerators // model}"
    return f"no dp fits, for {model} does not divide {accelerators}; change tp or pp"


def _divides(
    what: str | Number,
    part: Number,
    name: str | Number,
    whole: Number,
    *,
    subject: str,
    when: Number | None = None,
) -> Rule:
    """Return the rule that one count divides another."""

    def broken(config: TransformerConfig, plan: Plan) -> Flag:
        unequal: Flag = whole(config, plan) % part(config, plan) != 0
        return unequal if when is None else unequal & when(config, plan)

    def sentence(config: TransformerConfig, plan: Plan) -> str:
        label, total = (one if isinstance(one, str) else one(config, plan) for one in (what, name))
        size = whole(config, plan)
        return f"{label} ({part(config, plan)}) must divide {total} ({size}); try {divisors(size)}"

    return Rule(broken, sentence, subject)


def _size(name: str) -> Number:
    """Return what reads a size of a model."""
    return lambda config, _: getattr(config, name)


def _encoder_size(name: str) -> Number:
    """Return what reads a size of a model's encoder of neighbours, 0 without one."""
    return lambda config, _: getattr(config.retrieval, name, 0)


def _ranks_phrase(plan: Plan) -> str:
    return "data" if plan.axes.cp == 1 else "data x context"


def _on_grid(plan: Plan) -> bool:
    return plan.axes.tensor_grid is not TensorGrid.LINE


GRID_RULES = (
    Rule(
        lambda _, plan: (
            _on_grid(plan)
            & ((plan.axes.columns < 2) | (plan.axes.columns**2 * plan.axes.tensor_depth != plan.axes.tp))
        ),
        lambda _, plan: (
            f"tensor ({plan.axes.tp}) must be q x q x {plan.axes.tensor_depth} with q of 2 or more for "
            f"{plan.axes.tensor_grid}; try "
            + ", ".join(str(one * one * plan.axes.tensor_depth) for one in (2, 3, 4, 8))
        ),
        HEADS,
    ),
    Rule(
        lambda _, plan: _on_grid(plan) & plan.traffic.overlap_tensor,
        lambda _, plan: (
            "overlap_tensor is for a line of tensor ranks; leave it out or set tensor_grid=1d, not "
            f"{plan.axes.tensor_grid}"
        ),
    ),
    Rule(
        lambda config, plan: _on_grid(plan) & ((config.experts > 1) | (config.kv_rank > 0)),
        lambda config, plan: (
            f"{config.name} has experts or latent attention; tensor_grid must be 1d, not "
            f"{plan.axes.tensor_grid}"
        ),
    ),
    Rule(
        lambda _, plan: _on_grid(plan) & (plan.batch.micro_batch % plan.axes.rows != 0),
        lambda _, plan: (
            f"micro_batch ({plan.batch.micro_batch}) must be a multiple of the {plan.axes.rows} rows of "
            f"ranks that share its sequences on a {plan.axes.tensor_grid} grid; try {plan.axes.rows}"
        ),
        TOKENS,
    ),
    *(
        _divides(
            "columns",
            lambda _, plan: plan.axes.columns,
            name,
            _size(name),
            when=lambda _, plan: _on_grid(plan),
            subject=HEADS,
        )
        for name in ("hidden", "kv_heads")
    ),
)
"""Tensor-parallel ranks on a grid form its squares, over which the model can be cut."""

AXES_RULES = (
    _divides(
        "context",
        lambda _, plan: plan.axes.cp,
        "sequence_length",
        lambda _, plan: plan.batch.sequence_length,
        subject=CONTEXT,
    ),
    *(
        _divides(
            "tensor x context",
            lambda _, plan: plan.axes.tp * plan.axes.cp,
            name,
            _size(name),
            when=lambda _, plan: (
                (plan.axes.cp > 1) & (plan.axes.context_exchange is ContextExchange.ALL_TO_ALL)
            ),
            subject=HEADS,
        )
        for name in ("heads", "kv_heads")
    ),
    Rule(
        lambda config, plan: (plan.axes.cp > 1) & (0 < config.window < plan.batch.sequence_length),
        lambda config, plan: (
            f"context ({plan.axes.cp}) must be 1: {config.name}'s windows are not cut over ranks; "
            "raise tp instead"
        ),
        CONTEXT,
    ),
    *(
        _divides(
            lambda _, plan: "tensor" if plan.axes.side == 1 else "columns",
            lambda _, plan: plan.axes.columns,
            name,
            _size(name),
            subject=HEADS,
        )
        for name in ("heads", "ffn_hidden", "dense_ffn_hidden")
    ),
    _divides(
        "tensor",
        lambda _, plan: plan.axes.columns,
        "kv_heads",
        lambda config, _: config.kv_heads,
        when=lambda config, plan: plan.axes.columns % config.kv_heads != 0,
        subject=HEADS,
    ),
    _divides(
        "tensor",
        lambda _, plan: plan.axes.tp,
        lambda _, plan: "micro_batch x sequence_length" + (" / context" if plan.axes.cp > 1 else ""),
        lambda _, plan: plan.share.tokens,
        when=lambda _, plan: plan.axes.sequence_parallel,
        subject=TOKENS,
    ),
    Rule(
        lambda config, plan: plan.axes.pp > config.layers,
        lambda config, plan: (
            f"pipeline ({plan.axes.pp}) must be at most layers ({config.layers}); "
            f"try {config.layers} or fewer"
        ),
        STAGES,
    ),
    Rule(
        lambda config, plan: (plan.axes.ep > 1) & (config.experts == 1),
        lambda config, plan: f"expert ({plan.axes.ep}) must be 1: {config.name} has no experts",
        EXPERTS,
    ),
    _divides(
        "expert",
        lambda _, plan: plan.axes.ep,
        "experts",
        lambda config, _: config.experts,
        subject=EXPERTS,
    ),
    _divides(
        "expert",
        lambda _, plan: plan.axes.ep,
        lambda _, plan: ("tensor x " if plan.axes.whole_experts else "") + _ranks_phrase(plan),
        lambda _, plan: plan.axes.gradient_ranks * (plan.axes.tp if plan.axes.whole_experts else 1),
        subject=EXPERTS,
    ),
)
"""Ranks along the axes divide what they cut."""


def _most_imbalance(config: TransformerConfig) -> float:
    return config.experts / config.experts_per_token


def _most_affinity(plan: Plan) -> Amount:
    return larger(1.0, (plan.axes.ep - 1) / 2)


EXPERT_RULES = (
    Rule(
        lambda config, plan: not 1.0 <= plan.experts.expert_imbalance <= _most_imbalance(config),
        lambda config, plan: (
            f"expert_imbalance ({plan.experts.expert_imbalance:g}) must be from 1 (even) to experts over "
            f"experts per token ({config.experts} / {config.experts_per_token}), for a token visits an "
            f"expert once; try {min(2.0, _most_imbalance(config)):g}"
        ),
    ),
    Rule(
        lambda _, plan: np.logical_not(
            (plan.experts.expert_affinity >= 1.0) & (plan.experts.expert_affinity <= _most_affinity(plan))
        ),
        lambda _, plan: (
            f"expert_affinity ({plan.experts.expert_affinity:g}) must be from 1 (none) to half of the other "
            f"expert ranks ({_most_affinity(plan):g}); try {min(2.0, _most_affinity(plan)):g}"
        ),
    ),
    Rule(
        lambda config, plan: (config.experts == 1) & (plan.experts.capacity_factor > 0.0),
        lambda config, plan: (
            f"capacity_factor ({plan.experts.capacity_factor:g}) needs experts, and {config.name} has none; "
            "leave it out"
        ),
    ),
    Rule(
        lambda _, plan: (plan.experts.expert_exchange is not ExpertExchange.DIRECT) & (plan.axes.ep == 1),
        lambda _, plan: (
            f"expert_exchange={plan.experts.expert_exchange} needs expert ranks; "
            f"raise ep ({plan.axes.ep}) or leave it out"
        ),
    ),
    Rule(
        lambda config, plan: (
            plan.axes.whole_experts
            & ((config.experts == 1) | (plan.axes.tp == 1) | (not plan.axes.sequence_parallel))
        ),
        lambda _, plan: (
            "whole_experts=true needs experts, tensor ranks and sequence_parallel=true, so that each rank "
            f"has tokens of its own; raise tp ({plan.axes.tp}) or leave it out"
        ),
    ),
    Rule(
        lambda _, plan: (
            plan.experts.exchange_counts & ((plan.experts.capacity_factor > 0.0) | (plan.axes.ep == 1))
        ),
        lambda _, plan: (
            "exchange_counts=true needs expert ranks and sizes that are not fixed by a capacity; "
            f"raise ep ({plan.axes.ep}) and leave capacity_factor ({plan.experts.capacity_factor:g}) out"
        ),
    ),
    Rule(
        lambda _, plan: plan.traffic.overlap_experts & (plan.axes.ep == 1),
        lambda _, plan: f"overlap_experts=true needs expert ranks; raise ep ({plan.axes.ep}) or leave it out",
    ),
    Rule(
        lambda _, plan: plan.traffic.overlap_experts & _runs_alone(plan),
        lambda _, plan: (
            "overlap_experts=true needs a forward and a backward pass side by side, which schedule="
            f"{plan.schedule.kind} with pp={plan.axes.pp} and vpp={plan.schedule.vpp} has not without "
            "waiting; try vpp=2, schedule=dualpipe or pp=1"
        ),
    ),
    Rule(
        lambda _, plan: (
            plan.traffic.overlap_experts & (plan.sharding.zero > 1) & (plan.axes.gradient_ranks > 1)
        ),
        lambda _, plan: f"overlap_experts=true with zero={plan.sharding.zero} is not modelled; try zero=1",
    ),
    Rule(
        lambda _, plan: (
            plan.traffic.overlap_experts
            & (plan.axes.cp > 1)
            & (plan.axes.context_exchange is ContextExchange.RING)
        ),
        lambda _, plan: (
            "overlap_experts=true with a ring of keys is not modelled; try context_exchange=all_gather"
        ),
    ),
)
"""A mixture of experts has what its routing asks for."""


def _runs_alone(plan: Plan) -> Flag:
    """Return whether no stage has a forward and a backward pass side by side without waiting."""
    kind = plan.schedule.kind
    chained = (
        trait(kind, lambda one: one.interleaved is not None) & (plan.axes.pp > 1) & (plan.schedule.vpp == 1)
    )
    return chained | trait(kind, lambda one: one.woven is None)


def _near_batch(plan: Plan) -> str:
    slots = plan.axes.dp * plan.batch.micro_batch
    down = plan.batch.global_batch // slots * slots
    return f"{down} or {down + slots}" if down else f"{slots}"


def _least_microbatches(plan: Plan) -> int:
    return trait(plan.schedule.kind, lambda one: one.least_microbatches.of(plan.axes.pp))


def _multiple(plan: Plan) -> int:
    return trait(plan.schedule.kind, lambda one: one.multiple)


def _batch_of(plan: Plan, microbatches: int) -> int:
    """Return the global batch that makes so many microbatches."""
    return microbatches * plan.axes.dp * plan.batch.micro_batch


def _next(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


SCHEDULE_RULES = (
    Rule(
        lambda _, plan: plan.batch.global_batch % (plan.axes.dp * plan.batch.micro_batch) != 0,
        lambda _, plan: (
            f"global_batch ({plan.batch.global_batch}) must be a multiple of data x micro_batch "
            f"({plan.axes.dp} x {plan.batch.micro_batch} = {plan.axes.dp * plan.batch.micro_batch}); "
            f"try {_near_batch(plan)}"
        ),
        BATCH,
    ),
    Rule(
        lambda config, plan: (config.position_rows > 0) & (plan.batch.sequence_length > config.max_sequence),
        lambda config, plan: (
            f"sequence_length ({plan.batch.sequence_length}) must be at most {config.max_sequence}: "
            f"{config.name} has learned positions for no more"
        ),
    ),
    Rule(
        lambda _, plan: (plan.schedule.vpp > 1) & (plan.axes.pp == 1),
        lambda _, plan: (
            f"vpp ({plan.schedule.vpp}) must be 1 without pipeline stages; raise pp or leave vpp out"
        ),
        CHUNKS,
    ),
    Rule(
        lambda config, plan: (plan.schedule.vpp > 1) & (plan.axes.pp * plan.schedule.vpp > config.layers),
        lambda config, plan: (
            f"pipeline x vpp ({plan.axes.pp} x {plan.schedule.vpp}) must be at most layers "
            f"({config.layers}); try vpp of {config.layers // plan.axes.pp} or less"
        ),
        CHUNKS,
    ),
    Rule(
        lambda _, plan: (plan.schedule.vpp > 1) & (plan.microbatches % plan.axes.pp != 0),
        lambda _, plan: (
            f"microbatches ({plan.microbatches}) must be a multiple of pipeline ({plan.axes.pp}) with vpp; "
            f"try a global_batch that is a multiple of {_batch_of(plan, plan.axes.pp)}"
        ),
        CHUNKS,
    ),
    Rule(
        lambda config, plan: (
            trait(plan.schedule.kind, lambda one: one.folded) & (2 * plan.axes.pp > config.layers)
        ),
        lambda config, plan: (
            f"pipeline ({plan.axes.pp}) must be at most half of layers ({config.layers}) with "
            f"schedule={plan.schedule.kind}, two chunks a stage; try {config.layers // 2} or fewer"
        ),
    ),
    Rule(
        lambda _, plan: plan.axes.pp % _multiple(plan) != 0,
        lambda _, plan: (
            f"pipeline ({plan.axes.pp}) must be {plan.schedule.kind.multiple_phrase} with "
            f"schedule={plan.schedule.kind}; try {_next(plan.axes.pp, _multiple(plan))}"
        ),
    ),
    Rule(
        lambda _, plan: (
            (plan.microbatches % _multiple(plan) != 0) | (plan.microbatches < _least_microbatches(plan))
        ),
        lambda _, plan: (
            f"microbatches ({plan.microbatches}) must be "
            + (f"{plan.schedule.kind.multiple_phrase} and " if _multiple(plan) > 1 else "")
            + f"at least {plan.schedule.kind.least_microbatches.phrase(plan.axes.pp)} with "
            f"schedule={plan.schedule.kind}; try a global_batch of "
            f"{_batch_of(plan, _next(_least_microbatches(plan), _multiple(plan)))} or more"
        ),
    ),
    Rule(
        lambda _, plan: (
            trait(plan.schedule.kind, lambda one: one.flows)
            & (plan.sharding.zero > 0)
            & (plan.axes.gradient_ranks > 1)
        ),
        lambda _, plan: (
            f"zero ({plan.sharding.zero}) must be 0 with schedule={plan.schedule.kind} and several "
            "data-parallel ranks: several versions of the weights stand on every rank, whole; add zero=0"
        ),
    ),
)
"""The batch fills the pipeline as its schedule asks."""


def _one_copy(key: Callable[[Plan], bool], name: Callable[[Plan], str]) -> Rule:
    """Return the rule that a key needs one copy of every parameter in a pipeline."""
    return Rule(
        lambda _, plan: key(plan) & trait(plan.schedule.kind, lambda one: one.two_copies),
        lambda _, plan: (
            f"{name(plan)} needs one copy of every parameter a pipeline; "
            f"try another schedule than {plan.schedule.kind}"
        ),
    )


def _without_experts(key: Callable[[Plan], bool], name: Callable[[Plan], str]) -> Rule:
    """Return the rule that a key is not for experts."""
    return Rule(
        lambda _, plan: key(plan) & (plan.axes.ep > 1),
        lambda _, plan: (
            f"{name(plan)} needs expert=1, not {plan.axes.ep}: experts are shared over other ranks than the "
            f"rest; leave {name(plan)} or ep out"
        ),
    )


def _quantised(plan: Plan) -> str:
    """Return the first key of ZeRO++ that a plan sets, empty if none."""
    keys = ("quantised_weights", "secondary_copy", "quantised_gradients")
    return next((key for key in keys if plan.value(key)), "")


SHARDING_RULES = (
    Rule(
        lambda _, plan: plan.axes.gradient_ranks % (plan.sharding.shard_group or 1) != 0,
        lambda _, plan: (
            f"shard_group ({plan.sharding.shard_group}) must divide {_ranks_phrase(plan)} "
            f"({plan.axes.gradient_ranks}); try {divisors(plan.axes.gradient_ranks)}"
        ),
    ),
    _without_experts(lambda plan: plan.sharding.shard_group > 0, lambda _: "shard_group"),
    _one_copy(lambda plan: plan.sharding.shard_group > 0, lambda _: "shard_group"),
    Rule(
        lambda _, plan: bool(_quantised(plan)) & ((plan.sharding.zero != 3) | (not plan.sharding.reshard)),
        lambda _, plan: (
            f"{_quantised(plan)} needs parameters that are shared and gathered for every pass (ZeRO++ stands "
            f"on stage 3); got zero={plan.sharding.zero}, reshard={str(plan.sharding.reshard).lower()}; "
            "try zero=3,reshard=true"
        ),
    ),
    Rule(
        lambda _, plan: bool(_quantised(plan)) & (plan.axes.gradient_ranks == 1),
        lambda _, plan: (
            f"{_quantised(plan)} needs several data-parallel ranks; raise dp or leave {_quantised(plan)} out"
        ),
    ),
    Rule(
        lambda _, plan: (
            bool(_quantised(plan)) & (plan.sharding.fetches_parameters | plan.sharding.updates_on_host)
        ),
        lambda _, plan: (
            f"{_quantised(plan)} needs parameters and optimizer on the device; "
            f"leave {_quantised(plan)} or the other places out"
        ),
    ),
    Rule(
        lambda _, plan: bool(_quantised(plan)) & (plan.sharding.shard_group > 0),
        lambda _, plan: (
            f"{_quantised(plan)} needs parameters shared over all ranks, not in shard_group; leave one out"
        ),
    ),
    _without_experts(lambda plan: bool(_quantised(plan)), _quantised),
    Rule(
        lambda _, plan: (
            (plan.sharding.local_group > 0)
            & (not (plan.sharding.secondary_copy or plan.traffic.quantised_gradients))
        ),
        lambda _, plan: (
            f"local_group ({plan.sharding.local_group}) needs secondary_copy or quantised_gradients, which "
            "use it; add one"
        ),
    ),
    Rule(
        lambda _, plan: (
            (plan.sharding.local_group > 0)
            & (
                (plan.axes.gradient_ranks % (plan.sharding.local_group or 1) != 0)
                | (plan.sharding.local_group == 1)
                | (plan.sharding.local_group == plan.axes.gradient_ranks)
            )
        ),
        lambda _, plan: (
            f"local_group ({plan.sharding.local_group}) must divide {_ranks_phrase(plan)} "
            f"({plan.axes.gradient_ranks}) into several groups of two or more; "
            f"try {divisors(plan.axes.gradient_ranks)}"
        ),
    ),
    _one_copy(
        lambda plan: plan.sharding.updates_on_host,
        lambda plan: f"optimizer_place={plan.sharding.optimizer_place}",
    ),
    Rule(
        lambda _, plan: plan.sharding.updates_on_host & (plan.precision.kind is Precision.FP8),
        lambda _, plan: (
            f"optimizer_place={plan.sharding.optimizer_place} needs parameters that come up as they are "
            "used, not fp8; try precision=bf16"
        ),
    ),
)
"""States that ranks share or place elsewhere go with the axes, the schedule and the precision."""

TRAFFIC_RULES = (
    Rule(
        lambda _, plan: plan.traffic.overlap_tensor & (plan.axes.tp == 1),
        lambda _, plan: (
            "overlap_tensor needs tensor ranks to talk to (tp is 1); raise tp or leave overlap_tensor out"
        ),
    ),
    Rule(
        lambda _, plan: plan.traffic.overlap_tensor & (not plan.axes.sequence_parallel),
        lambda _, plan: (
            "overlap_tensor cuts all-gathers and reduce-scatters into shards; set sequence_parallel=true"
        ),
    ),
    Rule(
        lambda _, plan: plan.traffic.uses_servers & (plan.axes.gradient_ranks == 1),
        lambda _, plan: (
            "exchange=parameter_server needs data-parallel ranks; raise dp, or leave exchange out"
        ),
    ),
    Rule(
        lambda _, plan: plan.traffic.servers > plan.axes.gradient_ranks,
        lambda _, plan: (
            f"servers ({plan.traffic.servers}) must be at most the data-parallel ranks "
            f"({plan.axes.gradient_ranks}), on which they stand; try {plan.axes.gradient_ranks} or fewer"
        ),
    ),
    Rule(
        lambda _, plan: plan.traffic.uses_servers & (plan.sharding.zero != 1),
        lambda _, plan: (
            f"zero ({plan.sharding.zero}) must be 1 with exchange=parameter_server: the optimizer stands on "
            "the servers, weights and gradients on every rank; leave zero out"
        ),
    ),
    Rule(
        lambda _, plan: plan.traffic.uses_servers & (plan.axes.ep > 1),
        lambda _, plan: (
            f"expert ({plan.axes.ep}) must be 1 with exchange=parameter_server; leave ep or exchange out"
        ),
    ),
    Rule(
        lambda _, plan: (
            plan.traffic.uses_servers & trait(plan.schedule.kind, lambda one: one.two_copies or one.flows)
        ),
        lambda _, plan: (
            f"schedule={plan.schedule.kind} cannot be combined with exchange=parameter_server; "
            "try schedule=1f1b"
        ),
    ),
)
"""Traffic has the ranks that it runs between."""


RETRIEVAL_RULES = (
    Rule(
        lambda config, plan: (
            (config.positions is Positions.RELATIVE) & ((plan.axes.cp > 1) | (plan.axes.side > 1))
        ),
        lambda config, _: (
            f"{config.name} has relative positions; use tensor_grid=1d and cp=1, with more tp or data"
        ),
        CONTEXT,
    ),
    Rule(
        lambda config, plan: (
            (config.retrieval is not None) & (plan.precision.pruned | (plan.precision.weight_density != 1.0))
        ),
        lambda config, _: f"{config.name}: sparse weights with retrieval are not modelled; leave them dense",
    ),
    Rule(
        lambda config, plan: (
            plan.batch.sequence_length % (config.retrieval.chunk if config.retrieval else 1) != 0
        ),
        lambda config, plan: (
            f"sequence_length ({plan.batch.sequence_length}) must be whole chunks of "
            f"{config.retrieval.chunk} tokens"
        ),
    ),
    *(
        _divides(
            "tensor",
            lambda _, plan: plan.axes.tp,
            f"encoder {name}",
            _encoder_size(name),
            subject=HEADS,
        )
        for name in ("heads", "ffn_hidden")
    ),
)
"""A model that reads what it retrieves can be cut."""


def _cut_widths(config: TransformerConfig, plan: Plan) -> Iterator[tuple[str, Any]]:
    yield "hidden", config.hidden
    yield "ffn_hidden / tensor", config.ffn_hidden // plan.axes.tp
    yield "heads x head_dim / tensor", config.context_width // plan.axes.tp


def _uneven_width(config: TransformerConfig, plan: Plan) -> Flag:
    hidden, inner, context = (width % WEIGHT_BLOCK != 0 for _, width in _cut_widths(config, plan))
    return hidden | inner | context


def _uneven_sentence(config: TransformerConfig, plan: Plan) -> str:
    what, width = next((what, width) for what, width in _cut_widths(config, plan) if width % WEIGHT_BLOCK)
    return f"{what} ({width}) must be whole blocks of {WEIGHT_BLOCK} with weight_density; lower tp"


SPARSITY_RULES = (
    Rule(
        lambda _, plan: (
            plan.precision.pruned & (plan.sharding.shards_parameters | plan.sharding.updates_on_host)
        ),
        lambda _, plan: (
            "weight_sparsity=2:4 compresses weights once a step on their rank; use zero of 2 or less there"
        ),
    ),
    Rule(
        lambda _, plan: (
            (plan.precision.weight_density != 1.0) & (plan.precision.pruned | (plan.axes.side > 1))
        ),
        lambda _, plan: (
            "weight_density is for weights that are not pruned otherwise, on tensor_grid=1d; leave one out"
        ),
    ),
    Rule(
        lambda config, plan: (plan.precision.weight_density != 1.0) & _uneven_width(config, plan),
        _uneven_sentence,
        HEADS,
    ),
    Rule(
        lambda _, plan: (
            (plan.recompute.attention_keys % ATTENTION_BLOCK != 0)
            | (plan.recompute.attention_keys > plan.batch.sequence_length)
        ),
        lambda _, plan: (
            f"attention_keys ({plan.recompute.attention_keys}) must be whole blocks of {ATTENTION_BLOCK}, at "
            f"most sequence_length ({plan.batch.sequence_length})"
        ),
    ),
    Rule(
        lambda config, plan: (
            (plan.recompute.attention_keys > 0) & (plan.recompute.causal_half | (config.window > 0))
        ),
        lambda _, plan: (
            "attention_keys counts what a query sees; leave causal_half false, on a model without windows"
        ),
    ),
    Rule(
        lambda _, plan: (
            (plan.recompute.attention_keys > 0)
            & (plan.axes.cp > 1)
            & (plan.axes.context_exchange is not ContextExchange.ALL_TO_ALL)
        ),
        lambda _, plan: (
            "attention_keys needs all tokens of a head on one rank; use context_exchange=all_to_all"
        ),
    ),
)
"""What a sparse run leaves out can be left out."""

RULES = (
    *GRID_RULES,
    *AXES_RULES,
    *EXPERT_RULES,
    *SCHEDULE_RULES,
    *SHARDING_RULES,
    *TRAFFIC_RULES,
    *RETRIEVAL_RULES,
    *SPARSITY_RULES,
)
"""All of them, in the order in which they are checked."""
