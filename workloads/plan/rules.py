"""Rules between the parts of a plan, and between a plan and a model: one table for single plans and arrays.

Rules within a part are in its type (`workloads.plan.parts`). A condition here is written with comparisons,
``&`` and ``|``, so that it holds for a plan whose counts are numbers and for one whose counts are arrays with
one number for each of many plans; sentences are made for single plans only. In both, c is the model and p the
plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import numpy as np

from simulator.amounts import Amount, Flag, larger
from simulator.errors import WorkloadError
from workloads.models.architecture import Positions, TransformerConfig, divisors_phrase
from workloads.pipeline.schedules import GPIPE
from workloads.plan.parts import (
    ATTENTION_BLOCK,
    WEIGHT_BLOCK,
    ContextExchange,
    ExpertExchange,
    GradientSum,
    Graphs,
    Kept,
    Recompute,
    Rule,
    TensorGrid,
    trait,
)
from workloads.plan.plan import PARTS, Plan

HEADS = "tensor ranks do not divide heads or widths"
CONTEXT = "context ranks do not divide the sequence, or windows are not cut"
TOKENS = "more tensor ranks than a microbatch's tokens, or rows that do not divide it"
STAGES = "more stages than blocks"
EXPERTS = "expert ranks are not of the data ranks"
BATCH = "data ranks and microbatch do not divide the batch"
CHUNKS = "chunks do not fit the stages"
SUBJECTS = (HEADS, CONTEXT, TOKENS, STAGES, EXPERTS, BATCH, CHUNKS)
"""Subjects that a search always reports, in the order in which it counts plans that break them."""

Number = Callable[[TransformerConfig, Plan], Any]
"""Gives a count of a model or a plan; an array for arrays of plans."""


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
    if accelerators is not None and plan.axes.ranks != accelerators:
        axes = plan.axes
        msg = (
            f"the plan takes tp x pp x dp x cp = {axes.tp} x {axes.pp} x {axes.dp} x {axes.cp} = "
            f"{axes.ranks} accelerators, but there are {accelerators}; {_data_hint(plan, accelerators)}"
        )
        raise WorkloadError(msg)
    for rule in RULES:
        for shape in _shapes(config, rule):
            if rule.broken(shape, plan):
                raise rule.error(plan, shape)


def keeps_rules(config: TransformerConfig, plan: Plan) -> bool:
    """Return whether a plan can cut a model."""
    return not any(rule.broken(shape, plan) for rule in RULES for shape in _shapes(config, rule))


def _shapes(config: TransformerConfig, rule: Rule) -> tuple[TransformerConfig, ...]:
    """Return the models that must keep a rule; where it is about what blocks hold, each kind of block too."""
    return (config, *(config.shapes if rule.subject in {HEADS, CONTEXT} else ()))


def broken_by_subject(config: TransformerConfig, plans: Plan, count: int) -> dict[str, np.ndarray]:
    """Return the plans that break a rule, by subject of the rules, as masks of shape [P].

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
    """Yield the subject of every rule, of parts and between them, and the plans that break it."""
    for name in PARTS:
        part = getattr(plans, name)
        for rule in part.RULES:
            yield rule.subject, rule.broken(part)
    for rule in RULES:
        for shape in _shapes(config, rule):
            yield rule.subject, rule.broken(shape, plans)


def _data_hint(plan: Plan, accelerators: int) -> str:
    """Return the end of a sentence on a wrong number of accelerators: the dp that would take them."""
    model = plan.axes.tp * plan.axes.pp * plan.axes.cp
    if accelerators % model == 0 and accelerators >= model:
        return f"try dp={accelerators // model}"
    return f"no dp fits, for {model} does not divide {accelerators}; change tp or pp"


def _divides(
    part_name: str | Number,
    part: Number,
    whole_name: str | Number,
    whole: Number,
    *,
    subject: str,
    when: Number | None = None,
    tries: Callable[[TransformerConfig, Plan], str] | None = None,
) -> Rule:
    """Return the rule that one count divides another.

    Parameters
    ----------
    part_name, part : str or callable, callable
        Name and value of the divisor.
    whole_name, whole : str or callable, callable
        Name and value of the count that it must divide.
    subject : str
        Subject of the rule.
    when : callable, optional
        Condition under which the rule holds; always by default.
    tries : callable, optional
        Gives the values to try, as a phrase; by default all divisors.
    """

    def broken(config: TransformerConfig, plan: Plan) -> Flag:
        leaves_rest: Flag = whole(config, plan) % part(config, plan) != 0
        return leaves_rest if when is None else leaves_rest & when(config, plan)

    def sentence(config: TransformerConfig, plan: Plan) -> str:
        part_label, whole_label = (
            name if isinstance(name, str) else name(config, plan) for name in (part_name, whole_name)
        )
        size = whole(config, plan)
        values = divisors_phrase(size) if tries is None else tries(config, plan)
        return f"{part_label} ({part(config, plan)}) must divide {whole_label} ({size}); try {values}"

    return Rule(broken, sentence, subject)


def _size(name: str) -> Number:
    """Return the count of a model that its field of a name holds."""
    return lambda config, _: getattr(config, name)


def _state_size(name: str) -> Number:
    """Return the count that a field of a model's recurrence holds, 0 without one."""
    return lambda config, _: getattr(config.recurrence, name, 0)


def _encoder_size(name: str) -> Number:
    """Return the count that a field of a model's encoder of neighbours holds, 0 without an encoder."""
    return lambda config, _: getattr(config.retrieval, name, 0)


def _tensor_tries(config: TransformerConfig, _: Plan) -> str:
    """Return the numbers of tensor ranks that divide heads and inner widths of a model, as a phrase."""
    whole = math.gcd(config.heads, config.ffn_hidden, config.dense_ffn_hidden)
    return divisors_phrase(whole, lambda part: config.kv_heads % part == 0 or part % config.kv_heads == 0)


def _expert_tries(_: TransformerConfig, plan: Plan) -> str:
    """Return the numbers of expert ranks that divide the data ranks, as a phrase.

    Also whole_experts=true, where tensor ranks as expert ranks would keep the rule.
    """
    axes = plan.axes
    ranks = axes.gradient_ranks * (axes.tp if axes.whole_experts else 1)
    helped = axes.tp > 1 and not axes.whole_experts and ranks * axes.tp % axes.ep == 0
    return divisors_phrase(ranks) + (", or whole_experts=true" if helped else "")


def _ranks_phrase(plan: Plan) -> str:
    """Return the name of the ranks that sum gradients."""
    return "data" if plan.axes.cp == 1 else "data x context"


def _on_grid(plan: Plan) -> bool:
    return plan.axes.tensor_grid is not TensorGrid.LINE


GRID_RULES = (
    Rule(
        lambda _, p: (
            _on_grid(p) & ((p.axes.columns < 2) | (p.axes.columns**2 * p.axes.tensor_depth != p.axes.tp))
        ),
        lambda _, p: (
            f"tensor ({p.axes.tp}) must be q x q x {p.axes.tensor_depth} with q of 2 or more for "
            f"{p.axes.tensor_grid}; try "
            + ", ".join(str(one * one * p.axes.tensor_depth) for one in (2, 3, 4, 8))
        ),
        HEADS,
    ),
    Rule(
        lambda _, p: _on_grid(p) & p.traffic.overlap_tensor,
        "overlap_tensor is for a line of tensor ranks; leave it out or set tensor_grid=1d, not "
        "{p.axes.tensor_grid}",
    ),
    Rule(
        lambda c, p: _on_grid(p) & ((c.experts > 1) | (c.kv_rank > 0)),
        "{c.name} has experts or latent attention; tensor_grid must be 1d, not {p.axes.tensor_grid}",
    ),
    Rule(
        lambda _, p: _on_grid(p) & (p.batch.micro_batch % p.axes.rows != 0),
        "micro_batch ({p.batch.micro_batch}) must be a multiple of the {p.axes.rows} rows of ranks that "
        "share its sequences on a {p.axes.tensor_grid} grid; try {p.axes.rows}",
        TOKENS,
    ),
    *(
        _divides(
            "columns",
            lambda _, p: p.axes.columns,
            name,
            _size(name),
            when=lambda _, p: _on_grid(p),
            subject=HEADS,
        )
        for name in ("hidden", "kv_heads")
    ),
)
"""Rules of tensor-parallel ranks on a grid."""


def _places(config: TransformerConfig, plan: Plan) -> int:
    """Return the units shared over stages and chunks: blocks, and embedding and head where they count."""
    return config.layers + 2 * plan.schedule.embedding_as_layers


def _places_phrase(plan: Plan) -> str:
    return "layers, embedding and head" if plan.schedule.embedding_as_layers else "layers"


AXES_RULES = (
    _divides(
        "context",
        lambda _, p: p.axes.cp,
        "sequence_length",
        lambda _, p: p.batch.sequence_length,
        subject=CONTEXT,
    ),
    *(
        _divides(
            "tensor x context",
            lambda _, p: p.axes.tp * p.axes.cp,
            name,
            _size(name),
            when=lambda _, p: (p.axes.cp > 1) & (p.axes.context_exchange is ContextExchange.ALL_TO_ALL),
            subject=HEADS,
        )
        for name in ("heads", "kv_heads")
    ),
    Rule(
        lambda c, p: (p.axes.cp > 1) & (0 < c.window < p.batch.sequence_length),
        "context ({p.axes.cp}) must be 1: {c.name}'s windows are not cut over ranks; raise tp instead",
        CONTEXT,
    ),
    *(
        _divides(
            lambda _, p: "tensor" if p.axes.side == 1 else "columns",
            lambda _, p: p.axes.columns,
            name,
            _size(name),
            subject=HEADS,
            tries=_tensor_tries,
        )
        for name in ("heads", "ffn_hidden", "dense_ffn_hidden")
    ),
    _divides(
        "tensor",
        lambda _, p: p.axes.columns,
        "kv_heads",
        lambda c, _: c.kv_heads,
        when=lambda c, p: p.axes.columns % c.kv_heads != 0,
        subject=HEADS,
        tries=_tensor_tries,
    ),
    Rule(
        lambda _, p: p.axes.sequence_parallel & (p.axes.tp > p.share.tokens),
        "tensor ({p.axes.tp}) must be at most the tokens of a microbatch ({p.share.tokens}), which its ranks "
        "share; lower tp",
        TOKENS,
    ),
    Rule(
        lambda c, p: p.axes.pp > _places(c, p),
        lambda c, p: (
            f"pipeline ({p.axes.pp}) must be at most {_places_phrase(p)} ({_places(c, p)}); try "
            f"{_places(c, p)} or fewer"
        ),
        STAGES,
    ),
    Rule(
        lambda c, p: (p.axes.ep > 1) & (c.experts == 1),
        "expert ({p.axes.ep}) must be 1: {c.name} has no experts",
        EXPERTS,
    ),
    _divides(
        "expert",
        lambda _, p: p.axes.ep,
        "experts",
        lambda c, _: c.experts,
        subject=EXPERTS,
    ),
    _divides(
        "expert",
        lambda _, p: p.axes.ep,
        lambda _, p: ("tensor x " if p.axes.whole_experts else "") + _ranks_phrase(p),
        lambda _, p: p.axes.gradient_ranks * (p.axes.tp if p.axes.whole_experts else 1),
        subject=EXPERTS,
        tries=_expert_tries,
    ),
)
"""Rules of the axes: ranks divide the sizes that are cut over them."""


def _most_imbalance(config: TransformerConfig) -> float:
    """Return the largest load of an expert over the mean: one that every token visits."""
    return config.experts / config.experts_per_token


def _most_affinity(plan: Plan) -> Amount:
    """Return the largest preference for one expert rank: half of the others."""
    return larger(1.0, (plan.axes.ep - 1) / 2)


def _most_patterns(plan: Plan) -> Amount:
    """Return the most patterns of preferred ranks: one for each other expert rank."""
    return larger(1, plan.axes.ep - 1)


EXPERT_RULES = (
    Rule(
        lambda c, p: not 1.0 <= p.experts.expert_imbalance <= _most_imbalance(c),
        lambda c, p: (
            f"expert_imbalance ({p.experts.expert_imbalance:g}) must be from 1 (even) to experts over "
            f"experts per token ({c.experts} / {c.experts_per_token}), for a token visits an expert once; "
            f"try {min(2.0, _most_imbalance(c)):g}"
        ),
    ),
    Rule(
        lambda _, p: np.logical_not(
            (p.experts.expert_affinity >= 1.0) & (p.experts.expert_affinity <= _most_affinity(p))
        ),
        lambda _, p: (
            f"expert_affinity ({p.experts.expert_affinity:g}) must be from 1 (none) to half of the other "
            f"expert ranks ({_most_affinity(p):g}); try {min(2.0, _most_affinity(p)):g}"
        ),
    ),
    Rule(
        lambda _, p: p.experts.expert_patterns > _most_patterns(p),
        lambda _, p: (
            f"expert_patterns ({p.experts.expert_patterns}) must be at most one for each other expert rank "
            f"({_most_patterns(p)}); try {min(2, _most_patterns(p))}"
        ),
    ),
    Rule(
        lambda c, p: (c.experts == 1) & (p.experts.capacity_factor > 0.0),
        "capacity_factor ({p.experts.capacity_factor:g}) needs experts, and {c.name} has none; leave it out",
    ),
    Rule(
        lambda _, p: (p.experts.expert_exchange is not ExpertExchange.DIRECT) & (p.axes.ep == 1),
        "expert_exchange={p.experts.expert_exchange} needs expert ranks; raise ep ({p.axes.ep}) or leave "
        "it out",
    ),
    Rule(
        lambda c, p: (
            p.axes.whole_experts & ((c.experts == 1) | (p.axes.tp == 1) | (not p.axes.sequence_parallel))
        ),
        "whole_experts=true needs experts, tensor ranks and sequence_parallel=true, so that each rank has "
        "tokens of its own; raise tp ({p.axes.tp}) or leave it out",
    ),
    Rule(
        lambda _, p: p.experts.exchange_counts & ((p.experts.capacity_factor > 0.0) | (p.axes.ep == 1)),
        "exchange_counts=true needs expert ranks and sizes that are not fixed by a capacity; raise ep "
        "({p.axes.ep}) and leave capacity_factor ({p.experts.capacity_factor:g}) out",
    ),
    Rule(
        lambda _, p: p.traffic.overlap_experts & (p.axes.ep == 1),
        "overlap_experts=true needs expert ranks; raise ep ({p.axes.ep}) or leave it out",
    ),
    Rule(
        lambda _, p: p.traffic.overlap_experts & _runs_alone(p),
        "overlap_experts=true needs a forward and a backward pass side by side, which "
        "schedule={p.schedule.kind} with pp={p.axes.pp} and vpp={p.schedule.vpp} has not without waiting; "
        "try vpp=2, schedule=dualpipe or pp=1",
    ),
    Rule(
        lambda _, p: p.traffic.overlap_experts & (p.sharding.zero > 1) & (p.axes.gradient_ranks > 1),
        "overlap_experts=true with zero={p.sharding.zero} is not modelled; try zero=1",
    ),
    Rule(
        lambda _, p: (
            p.traffic.overlap_experts & (p.axes.cp > 1) & (p.axes.context_exchange is ContextExchange.RING)
        ),
        "overlap_experts=true with a ring of keys is not modelled; try context_exchange=all_gather",
    ),
)
"""Rules of mixtures of experts and their routing."""


def _runs_alone(plan: Plan) -> Flag:
    """Return whether no stage has two passes in a row that can overlap (`Schedule.woven`)."""
    kind = plan.schedule.kind
    one_chunk = (plan.axes.pp > 1) & (plan.schedule.vpp == 1)
    waits = trait(kind, lambda schedule: schedule.interleaved is not None) & one_chunk
    return waits | trait(kind, lambda schedule: schedule.woven is None)


def _near_batch(plan: Plan) -> str:
    """Return the nearest global batches that data ranks and microbatch divide, as a phrase."""
    step = plan.axes.dp * plan.batch.micro_batch
    below = plan.batch.global_batch // step * step
    return f"{below} or {below + step}" if below else f"{step}"


def _least_microbatches(plan: Plan) -> int:
    """Return the fewest microbatches of a plan's schedule; an array for arrays of plans."""
    return trait(plan.schedule.kind, lambda schedule: schedule.least_microbatches.of(plan.axes.pp))


def _multiple(plan: Plan) -> int:
    """Return the divisor of stages and microbatches that a plan's schedule needs; an array likewise."""
    return trait(plan.schedule.kind, lambda schedule: schedule.multiple)


def _batch_of(plan: Plan, microbatches: int) -> int:
    """Return the global batch of a number of microbatches."""
    return microbatches * plan.axes.dp * plan.batch.micro_batch


def _next(count: int, multiple: int) -> int:
    """Return the least multiple that is not below a count."""
    return -(-count // multiple) * multiple


SCHEDULE_RULES = (
    Rule(
        lambda _, p: p.batch.global_batch % (p.axes.dp * p.batch.micro_batch) != 0,
        lambda _, p: (
            f"global_batch ({p.batch.global_batch}) must be a multiple of data x micro_batch ({p.axes.dp} x "
            f"{p.batch.micro_batch} = {p.axes.dp * p.batch.micro_batch}); try {_near_batch(p)}"
        ),
        BATCH,
    ),
    Rule(
        lambda c, p: (c.position_rows > 0) & (p.batch.sequence_length > c.max_sequence),
        "sequence_length ({p.batch.sequence_length}) must be at most {c.max_sequence}: {c.name} has "
        "learned positions for no more",
    ),
    Rule(
        lambda _, p: (p.schedule.vpp > 1) & (p.axes.pp == 1),
        "vpp ({p.schedule.vpp}) must be 1 without pipeline stages; raise pp or leave vpp out",
        CHUNKS,
    ),
    Rule(
        lambda c, p: (p.schedule.vpp > 1) & (p.axes.pp * p.schedule.vpp > _places(c, p)),
        lambda c, p: (
            f"pipeline x vpp ({p.axes.pp} x {p.schedule.vpp}) must be at most {_places_phrase(p)} "
            f"({_places(c, p)}); try vpp of {_places(c, p) // p.axes.pp} or less"
        ),
        CHUNKS,
    ),
    Rule(
        lambda c, p: trait(p.schedule.kind, lambda schedule: schedule.folded) & (2 * p.axes.pp > c.layers),
        lambda c, p: (
            f"pipeline ({p.axes.pp}) must be at most half of layers ({c.layers}) with "
            f"schedule={p.schedule.kind}, two chunks a stage; try {c.layers // 2} or fewer"
        ),
    ),
    Rule(
        lambda _, p: p.axes.pp % _multiple(p) != 0,
        lambda _, p: (
            f"pipeline ({p.axes.pp}) must be {p.schedule.kind.multiple_phrase} with "
            f"schedule={p.schedule.kind}; try {_next(p.axes.pp, _multiple(p))}"
        ),
    ),
    Rule(
        lambda _, p: (p.microbatches % _multiple(p) != 0) | (p.microbatches < _least_microbatches(p)),
        lambda _, p: (
            f"microbatches ({p.microbatches}) must be "
            + (f"{p.schedule.kind.multiple_phrase} and " if _multiple(p) > 1 else "")
            + f"at least {p.schedule.kind.least_microbatches.phrase(p.axes.pp)} with "
            f"schedule={p.schedule.kind}; try a global_batch of "
            f"{_batch_of(p, _next(_least_microbatches(p), _multiple(p)))} or more"
        ),
    ),
    Rule(
        lambda _, p: (
            trait(p.schedule.kind, lambda schedule: schedule.flows)
            & (p.sharding.zero > 0)
            & (p.axes.gradient_ranks > 1)
        ),
        "zero ({p.sharding.zero}) must be 0 with schedule={p.schedule.kind} and several data-parallel "
        "ranks: several versions of the weights stand on every rank, whole; add zero=0",
    ),
)
"""Rules of the batch and the pipeline's schedule."""


def _one_copy(key: Callable[[Plan], bool], name: Callable[[Plan], str]) -> Rule:
    """Return the rule that a key cannot be used with a schedule that has every parameter on two stages.

    `key` gives whether a plan uses the key, `name` the key as the sentence has it.
    """
    return Rule(
        lambda _, p: key(p) & trait(p.schedule.kind, lambda schedule: schedule.two_copies),
        lambda _, p: (
            f"{name(p)} needs one copy of every parameter a pipeline; try another schedule than "
            f"{p.schedule.kind}"
        ),
    )


def _without_experts(key: Callable[[Plan], bool], name: Callable[[Plan], str]) -> Rule:
    """Return the rule that a key cannot be used with expert parallelism; arguments as in `_one_copy`."""
    return Rule(
        lambda _, p: key(p) & (p.axes.ep > 1),
        lambda _, p: (
            f"{name(p)} needs expert=1, not {p.axes.ep}: experts are shared over other ranks than the rest; "
            f"leave {name(p)} or ep out"
        ),
    )


def quantised(plan: Plan) -> str:
    """Return the first key of ZeRO++ that a plan sets, empty if none."""
    keys = ("quantised_weights", "secondary_copy", "quantised_gradients")
    return next((key for key in keys if plan.value(key)), "")


SHARDING_RULES = (
    Rule(
        lambda _, p: p.axes.gradient_ranks % (p.sharding.shard_group or 1) != 0,
        lambda _, p: (
            f"shard_group ({p.sharding.shard_group}) must divide {_ranks_phrase(p)} "
            f"({p.axes.gradient_ranks}); try {divisors_phrase(p.axes.gradient_ranks)}"
        ),
    ),
    _without_experts(lambda p: p.sharding.shard_group > 0, lambda _: "shard_group"),
    _one_copy(lambda p: p.sharding.shard_group > 0, lambda _: "shard_group"),
    Rule(
        lambda _, p: bool(quantised(p)) & ((p.sharding.zero != 3) | (not p.sharding.reshard)),
        lambda _, p: (
            f"{quantised(p)} needs parameters that are shared and gathered for every pass (ZeRO++ stands on "
            f"stage 3); got zero={p.sharding.zero}, reshard={str(p.sharding.reshard).lower()}; try "
            "zero=3,reshard=true"
        ),
    ),
    Rule(
        lambda _, p: bool(quantised(p)) & (p.axes.gradient_ranks == 1),
        lambda _, p: (
            f"{quantised(p)} needs several data-parallel ranks; raise dp or leave {quantised(p)} out"
        ),
    ),
    Rule(
        lambda _, p: bool(quantised(p)) & (p.sharding.fetches_parameters | p.sharding.updates_on_host),
        lambda _, p: (
            f"{quantised(p)} needs parameters and optimizer on the device; leave {quantised(p)} or the "
            "other places out"
        ),
    ),
    Rule(
        lambda _, p: bool(quantised(p)) & (p.sharding.shard_group > 0),
        lambda _, p: (
            f"{quantised(p)} needs parameters shared over all ranks, not in shard_group; leave one out"
        ),
    ),
    _without_experts(lambda p: bool(quantised(p)), quantised),
    Rule(
        lambda _, p: bool(quantised(p)) & p.precision.fp8_params,
        lambda _, p: f"{quantised(p)} of weights that fp8_params=true holds is not modelled; leave one out",
    ),
    Rule(
        lambda _, p: (
            (p.sharding.local_group > 0) & (not (p.sharding.secondary_copy or p.traffic.quantised_gradients))
        ),
        "local_group ({p.sharding.local_group}) needs secondary_copy or quantised_gradients, which use it; "
        "add one",
    ),
    Rule(
        lambda _, p: (
            (p.sharding.local_group > 0)
            & (
                (p.axes.gradient_ranks % (p.sharding.local_group or 1) != 0)
                | (p.sharding.local_group == 1)
                | (p.sharding.local_group == p.axes.gradient_ranks)
            )
        ),
        lambda _, p: (
            f"local_group ({p.sharding.local_group}) must divide {_ranks_phrase(p)} "
            f"({p.axes.gradient_ranks}) into several groups of two or more; try "
            f"{divisors_phrase(p.axes.gradient_ranks)}"
        ),
    ),
    _one_copy(
        lambda p: p.sharding.updates_on_host,
        lambda p: f"optimizer_place={p.sharding.optimizer_place}",
    ),
    Rule(
        lambda _, p: (p.precision.gradient_sum is GradientSum.COPIED) & (p.sharding.zero < 2),
        "gradient_sum=copied is for ranks that sum every microbatch; try zero=2 or 3, or gradient_sum=added",
    ),
    Rule(
        lambda _, p: p.sharding.updates_on_host & p.precision.kind.is_cast,
        "optimizer_place={p.sharding.optimizer_place} needs parameters that come up as they are used, not "
        "{p.precision.kind}; try precision=bf16",
    ),
)
"""Rules of states that ranks share or keep off the accelerator."""

TRAFFIC_RULES = (
    Rule(
        lambda _, p: p.traffic.overlap_tensor & (p.axes.tp == 1),
        "overlap_tensor needs tensor ranks to talk to (tp is 1); raise tp or leave overlap_tensor out",
    ),
    Rule(
        lambda _, p: p.traffic.overlap_tensor & (not p.axes.sequence_parallel),
        "overlap_tensor cuts all-gathers and reduce-scatters into shards; set sequence_parallel=true",
    ),
    Rule(
        lambda _, p: p.traffic.uses_servers & (p.axes.gradient_ranks == 1),
        "exchange=parameter_server needs data-parallel ranks; raise dp, or leave exchange out",
    ),
    Rule(
        lambda _, p: p.traffic.servers > p.axes.gradient_ranks,
        "servers ({p.traffic.servers}) must be at most the data-parallel ranks ({p.axes.gradient_ranks}), "
        "on which they stand; try {p.axes.gradient_ranks} or fewer",
    ),
    Rule(
        lambda _, p: p.traffic.uses_servers & (p.sharding.zero != 1),
        "zero ({p.sharding.zero}) must be 1 with exchange=parameter_server: the optimizer stands on the "
        "servers, weights and gradients on every rank; leave zero out",
    ),
    Rule(
        lambda _, p: p.traffic.uses_servers & (p.axes.ep > 1),
        "expert ({p.axes.ep}) must be 1 with exchange=parameter_server; leave ep or exchange out",
    ),
    Rule(
        lambda _, p: (
            p.traffic.uses_servers
            & trait(p.schedule.kind, lambda schedule: schedule.two_copies or schedule.flows)
        ),
        "schedule={p.schedule.kind} cannot be combined with exchange=parameter_server; try schedule=1f1b",
    ),
)
"""Rules of overlapped traffic and parameter servers."""


KEPT_RULES = (
    Rule(
        lambda c, p: p.traffic.overlap_experts & (p.precision.kept_activations is Kept.HOST),
        "kept_activations=host with overlap_experts=true is not modelled; leave one of them out",
    ),
    Rule(
        lambda c, p: (
            trait(p.schedule.kind, lambda schedule: schedule.splits_backward)
            & (p.precision.kept_activations is Kept.HOST)
        ),
        "kept_activations=host needs backward passes in one piece, which schedule={p.schedule.kind} splits; "
        "try schedule=1f1b",
    ),
    Rule(
        lambda c, p: (
            (p.axes.pp == 1)
            & trait(p.schedule.kind, lambda schedule: schedule is not GPIPE)
            & (p.precision.kept_activations is Kept.HOST)
        ),
        "kept_activations=host changes nothing with pp=1: each backward pass follows its own forward pass, "
        "whose activations stay; try recompute=full, or more stages",
    ),
    Rule(
        lambda c, p: p.recompute.recompute_projections & (c.kv_rank == 0),
        "recompute_projections needs latent attention, which {c.name} has not; leave it out",
    ),
    Rule(
        lambda c, p: (
            (c.retrieval is not None)
            & (p.recompute.by_operator | (p.precision.kept_activations is not Kept.STORED))
        ),
        "{c.name}: recomputation by operator and kept_activations are not modelled with retrieval; try "
        "recompute=full",
    ),
)
"""Rules of activations that are recomputed or kept elsewhere."""

RETRIEVAL_RULES = (
    Rule(
        lambda c, p: (
            (p.recompute.recompute_share < 1.0)
            & (
                (c.retrieval is not None)
                | (c.dense_layers > 0)
                | (0 < c.windowed_among(0, c.layers))
                | bool(c.shapes)
            )
        ),
        "recompute_share ({p.recompute.recompute_share:g}) needs blocks that are all alike, which those of "
        "{c.name} are not; try recompute=full alone",
    ),
    Rule(
        lambda c, p: (c.predicted_tokens > 0) & (p.axes.side > 1),
        "{c.name} predicts further tokens, which is not modelled on a grid; use tensor_grid=1d",
    ),
    Rule(
        lambda c, p: (c.recurrence is not None) & (p.axes.cp > 1),
        "context ({p.axes.cp}) must be 1: {c.name} hands a state along the sequence, which is not cut over "
        "ranks; raise tp instead",
        CONTEXT,
    ),
    Rule(
        lambda c, p: bool(c.recurrence or c.shapes or c.output_gates) & (p.axes.side > 1),
        "{c.name} has blocks of several kinds, gates or states; tensor_grid must be 1d",
    ),
    Rule(
        lambda c, p: (
            bool(c.recurrence or c.shapes or c.output_gates) & (p.precision.kept_activations is Kept.FP8)
        ),
        "kept_activations=fp8 is not modelled for blocks of several kinds, gates or states, as those of "
        "{c.name}; leave it out",
    ),
    _divides("tensor", lambda _, p: p.axes.tp, "heads of states", _state_size("heads"), subject=HEADS),
    _divides(
        "tensor",
        lambda _, p: p.axes.tp,
        "key heads of states",
        _state_size("key_heads"),
        when=lambda c, p: p.axes.tp % (c.recurrence.key_heads if c.recurrence else 1) != 0,
        subject=HEADS,
    ),
    Rule(
        lambda c, p: (c.positions is Positions.RELATIVE) & ((p.axes.cp > 1) | (p.axes.side > 1)),
        "{c.name} has relative positions; use tensor_grid=1d and cp=1, with more tp or data",
        CONTEXT,
    ),
    Rule(
        lambda c, p: (c.retrieval is not None) & (p.precision.pruned | (p.precision.weight_density != 1.0)),
        "{c.name}: sparse weights with retrieval are not modelled; leave them dense",
    ),
    Rule(
        lambda c, p: p.batch.sequence_length % (c.retrieval.chunk if c.retrieval else 1) != 0,
        "sequence_length ({p.batch.sequence_length}) must be whole chunks of {c.retrieval.chunk} tokens",
    ),
    *(
        _divides(
            "tensor",
            lambda _, p: p.axes.tp,
            f"encoder {name}",
            _encoder_size(name),
            subject=HEADS,
        )
        for name in ("heads", "ffn_hidden")
    ),
)
"""Rules of models with retrieval, further predicted tokens or blocks that differ."""


def _cut_widths(config: TransformerConfig, plan: Plan) -> dict[str, Any]:
    """Return the inner dimensions of a rank's products with weights, by name."""
    return {
        "hidden": config.hidden,
        "ffn_hidden / tensor": config.ffn_hidden // plan.axes.tp,
        "heads x head_dim / tensor": config.context_width // plan.axes.tp,
    }


def _uneven_width(config: TransformerConfig, plan: Plan) -> Flag:
    """Return whether an inner dimension is not in whole blocks of weights."""
    hidden, inner, context = (width % WEIGHT_BLOCK != 0 for width in _cut_widths(config, plan).values())
    return hidden | inner | context


def _uneven_sentence(config: TransformerConfig, plan: Plan) -> str:
    """Return the error of `_uneven_width`."""
    name, width = next(item for item in _cut_widths(config, plan).items() if item[1] % WEIGHT_BLOCK)
    return f"{name} ({width}) must be whole blocks of {WEIGHT_BLOCK} with weight_density; lower tp"


SPARSITY_RULES = (
    Rule(
        lambda _, p: p.precision.pruned & (p.sharding.shards_parameters | p.sharding.updates_on_host),
        "weight_sparsity=2:4 compresses weights once a step on their rank; use zero of 2 or less there",
    ),
    Rule(
        lambda _, p: (p.precision.weight_density != 1.0) & (p.precision.pruned | (p.axes.side > 1)),
        "weight_density is for weights that are not pruned otherwise, on tensor_grid=1d; leave one out",
    ),
    Rule(
        lambda c, p: (p.precision.weight_density != 1.0) & _uneven_width(c, p),
        _uneven_sentence,
        HEADS,
    ),
    Rule(
        lambda _, p: (
            (p.recompute.attention_keys % ATTENTION_BLOCK != 0)
            | (p.recompute.attention_keys > p.batch.sequence_length)
        ),
        lambda _, p: (
            f"attention_keys ({p.recompute.attention_keys}) must be whole blocks of {ATTENTION_BLOCK}, at "
            f"most sequence_length ({p.batch.sequence_length})"
        ),
    ),
    Rule(
        lambda c, p: (p.recompute.attention_keys > 0) & (c.window > 0),
        "attention_keys counts what a query sees; a model with windows says so itself",
    ),
    Rule(
        lambda _, p: (
            (p.recompute.attention_keys > 0)
            & (p.axes.cp > 1)
            & (p.axes.context_exchange is not ContextExchange.ALL_TO_ALL)
        ),
        "attention_keys needs all tokens of a head on one rank; use context_exchange=all_to_all",
    ),
)
"""Rules of sparse weights and sparse attention."""

RULES = (
    *GRID_RULES,
    *AXES_RULES,
    *EXPERT_RULES,
    *SCHEDULE_RULES,
    *SHARDING_RULES,
    *TRAFFIC_RULES,
    *KEPT_RULES,
    *RETRIEVAL_RULES,
    *SPARSITY_RULES,
)
"""All of them, in the order in which they are checked."""


class _IdleKey(NamedTuple):
    """A key that changes nothing of some plans."""

    key: str
    """The key."""
    idles: Callable[[TransformerConfig, Plan], bool]
    """Gives whether it changes nothing of a plan for a model."""
    reason: str
    """Why, for a sentence."""


_IDLE_KEYS = (
    _IdleKey("context_exchange", lambda _, p: p.axes.cp == 1, "cp=1 exchanges no keys"),
    _IdleKey("reshard", lambda _, p: not p.sharding.shards_parameters, "zero=3 alone shards parameters"),
    _IdleKey("prefetch", lambda _, p: not p.sharding.shards_parameters, "zero=3 alone gathers parameters"),
    _IdleKey(
        "stored_shards", lambda _, p: not p.sharding.shards_parameters, "zero=3 alone shards parameters"
    ),
    _IdleKey(
        "stored_shards",
        lambda _, p: p.sharding.updates_on_host or not p.precision.keeps_master,
        "no copy of the optimizer's could stand for the shards here",
    ),
    _IdleKey(
        "grad_buckets", lambda _, p: p.sharding.shards_parameters, "zero=3 sums gradients block by block"
    ),
    _IdleKey("grad_buckets", lambda _, p: p.axes.dp * p.axes.cp == 1, "dp=1 sums no gradients"),
    _IdleKey("overlap_sends", lambda _, p: p.axes.pp == 1, "pp=1 sends nothing"),
    _IdleKey(
        "graphs",
        lambda c, p: p.recompute.graphs is Graphs.ROUTER and c.experts == 1,
        "the model has no router",
    ),
    _IdleKey(
        "recompute",
        lambda _, p: p.recompute.kind is Recompute.SELECTIVE and p.recompute.attention.on_chip,
        "scores stay on chip and are computed again in any case",
    ),
)
"""Keys that change nothing of some plans."""


def idle(config: TransformerConfig, plan: Plan, keys: Collection[str]) -> Iterator[str]:
    """Yield a sentence on each of some keys that changes nothing of a plan; none on default values."""
    default = Plan()
    for key, idles, reason in _IDLE_KEYS:
        if key in keys and plan.value(key) != default.value(key) and idles(config, plan):
            yield f"plan: {key}={plan.value(key)} changes nothing: {reason}"
