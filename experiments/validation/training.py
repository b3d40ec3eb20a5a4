"""Step times and memory of published training runs against predictions and one trivial constant."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from electronic.gpu import Gpu
from experiments.validation.machines import (
    BILLION,
    HOST_MEMORY_BYTES,
    model_of,
    plan_of,
    system_of,
    with_ends_counted,
    with_room,
)
from experiments.validation.rows import (
    CONSTANT_SHARE,
    FileError,
    Outcome,
    Record,
    SkipError,
    check_provenance,
    judged,
)
from heliograph.systems import System
from simulator.engine.compiled.step import play_step
from simulator.errors import ParameterError
from simulator.operators import MatMul, total_flops
from simulator.results import PRODUCTS, summarise
from simulator.units import to_si
from workloads.layers.transformer import forward_layer, model_flops
from workloads.models.architecture import TransformerConfig
from workloads.models.config import load_model
from workloads.plan.parts import Attention, Precision, Recompute
from workloads.plan.plan import Plan
from workloads.plan.rules import check
from workloads.step.memory import layer_activation_bytes, memory_by_kind
from workloads.step.sharding import optimizer_bytes
from workloads.step.step import build_step

MOST_PASSES = 300
"""Passes of microbatches through stages beyond which a step is simulated in part; a choice of speed."""
LEAST_MICROBATCHES = 4
"""Fewest microbatches of a part."""


NEEDS = (
    ("id", "source"),
    ("system",),
    ("n_accelerators",),
    ("hidden",),
    ("iteration_time_s", "derived_iteration_time_s", "tokens_per_s_per_gpu"),
)
"""Groups of columns; a table of training runs has at least one column of each group."""
MEMORY_NEEDS = (("quantity",), ("measured",), ("unit",))
"""Groups of columns; a table of memory has at least one column of each group."""
TRAINING = (
    "source",
    "system",
    "n_accelerators",
    "model_name",
    "layers",
    "hidden",
    "heads",
    "seq_len",
    "global_batch_sequences",
    "precision",
)
"""Columns in which rows of the same training agree; the other columns are its plan."""
MEMORY_SHARE, CAST = "memory_share", "cast"
"""Keys of `Outcome.extra`: memory of the fullest rank over that of an accelerator, and whether products have
fewer bits than weights."""
LEAST_PLANS = 3
"""Fewest plans of a training that are ranked."""
APART = 0.05
"""Relative difference of two measured steps from which their order is judged; equal runs differ by less."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A predicted step."""

    step_time_s: float
    """Time of the step."""
    parts_s: dict[str, float]
    """Time by category, mean over ranks."""
    energy_j: float
    """Energy of all accelerators, their servers and the network."""
    components_j: dict[str, float]
    """Energy by component."""

    @property
    def hint(self) -> str:
        """Shares of the time of products, and of the largest other category, in words."""
        others = {name: seconds for name, seconds in self.parts_s.items() if name != PRODUCTS}
        if not others:
            return ""
        worst = max(others, key=lambda name: others[name])
        products = self.parts_s.get(PRODUCTS, 0.0) / self.step_time_s
        return f"{PRODUCTS} {products:.0%}, {worst} {others[worst] / self.step_time_s:.0%}"


def forecast(system: System, config: TransformerConfig, plan: Plan) -> Forecast:
    """Return the predicted step, whether or not it fits the memory.

    Notes
    -----
    Once its pipeline is full, a step is periodic: every further microbatch (or round of them, where stages
    are interleaved) takes as long as the one before. A step of more than `MOST_PASSES` passes is therefore
    run with as few microbatches as fill the pipeline, and with twice as many, and extrapolated linearly. The
    error is below half a per cent (a test holds it); ``heliograph step`` always runs the whole step.
    """
    least = max(LEAST_MICROBATCHES, plan.schedule.kind.least_microbatches.of(plan.axes.pp))
    twice = 2 if plan.schedule.kind.splits_backward else 1  # up to 2 pp - 1 passes are in flight (ZB-H2)
    filled = twice * plan.axes.pp * -(-least // plan.axes.pp)
    if plan.microbatches <= 2 * filled or plan.microbatches * plan.axes.pp * plan.schedule.vpp <= MOST_PASSES:
        return _run(system, config, plan)
    short, long = (
        _run(system, config, plan.with_(global_batch=count * plan.axes.dp * plan.batch.micro_batch))
        for count in (filled, 2 * filled)
    )
    rounds = plan.microbatches / filled - 1.0
    return Forecast(
        step_time_s=_extrapolated(short.step_time_s, long.step_time_s, rounds),
        parts_s=_extrapolated_parts(short.parts_s, long.parts_s, rounds),
        energy_j=_extrapolated(short.energy_j, long.energy_j, rounds),
        components_j=_extrapolated_parts(short.components_j, long.components_j, rounds),
    )


def _extrapolated(short: float, long: float, rounds: float) -> float:
    return short + (long - short) * rounds


def _extrapolated_parts(short: dict[str, float], long: dict[str, float], rounds: float) -> dict[str, float]:
    return {name: _extrapolated(short.get(name, 0.0), long.get(name, 0.0), rounds) for name in short | long}


@lru_cache(maxsize=512)
def _run(system: System, config: TransformerConfig, plan: Plan) -> Forecast:
    node = system.node()
    graph = build_step(config, plan)
    trace = play_step(graph, node, system.fabric)
    metrics = summarise(trace, graph, node, system.fabric)
    return Forecast(
        step_time_s=metrics.step_time_s,
        parts_s=metrics.time_by_category_s,
        energy_j=metrics.energy_j,
        components_j=metrics.energy_by_component_j,
    )


def outcome(record: Record) -> Outcome:
    """Return the outcome of a published training run; an invalid cell raises `ParameterError`."""
    with judged(record) as row:
        row.measured = measured_s(record)
        check_provenance(record)
        system, config, plan = run_of(record)
        found = forecast(system, dataclasses.replace(config, name="model"), plan)
        row.constant = constant_s(system.gpu, config, plan)
        row.extra = {
            "training": " | ".join(map(record.text, TRAINING)),
            MEMORY_SHARE: _fullest_bytes(config, plan) / system.gpu.memory.capacity_bytes,
            CAST: plan.precision.kind.is_cast,
        }
        row.predicted, row.hint = found.step_time_s, found.hint
    return row


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Order of the plans of the same training, predicted against measured."""

    trainings: int
    """Trainings of at least `LEAST_PLANS` plans."""
    plans: int
    """Their plans."""
    pairs: int
    """Pairs of plans whose measured steps differ by `APART` at least."""
    ordered: float
    """Share of those pairs that come out in the right order."""
    fastest: int
    """Trainings whose plan predicted fastest is the fastest measured."""
    mean_loss: float
    """Measured step of the plan predicted fastest, over the fastest measured, less 1; mean of trainings."""
    worst_loss: float
    """Largest such loss of a training."""


def ranking(outcomes: Iterable[Outcome], forecast_of: Callable[[Outcome], float | None]) -> Ranking | None:
    """Return the quality of a ranking of plans; None if no training has `LEAST_PLANS` of them.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Rows of published runs.
    forecast_of : callable
        Returns the step time of a row by which plans are ranked; None leaves the row out.
    """
    trainings: dict[Any, list[tuple[float, float]]] = {}
    for row in outcomes:
        step_s = forecast_of(row)
        if row.measured is not None and step_s is not None and "training" in row.extra:
            trainings.setdefault(row.extra["training"], []).append((row.measured, step_s))
    ranked = [np.array(plans).T for plans in trainings.values() if len(plans) >= LEAST_PLANS]
    if not ranked:
        return None
    losses = [  # of plans predicted alike, the mean
        float(measured[predicted == predicted.min()].mean() / measured.min()) - 1.0
        for measured, predicted in ranked
    ]
    right = []
    for measured, predicted in ranked:
        slower = np.argwhere(measured[:, None] >= (1.0 + APART) * measured)
        right.append(predicted[slower[:, 0]] > predicted[slower[:, 1]])
    pairs = np.concatenate(right)
    return Ranking(
        trainings=len(ranked),
        plans=sum(measured.size for measured, _ in ranked),
        pairs=pairs.size,
        ordered=float(pairs.mean()) if pairs.size else 1.0,
        fastest=losses.count(0.0),
        mean_loss=float(np.mean(losses)),
        worst_loss=float(max(losses)),
    )


def ranking_text(outcomes: Iterable[Outcome]) -> str:
    """Return in words the quality of the predicted ranking, with that of the trivial constant in brackets."""
    rows = tuple(outcomes)
    found, constant = (ranking(rows, of) for of in (lambda one: one.predicted, lambda one: one.constant))
    if found is None or constant is None:
        return ""
    lines = (
        f"Plans of one training: {found.plans} of {found.trainings} trainings; the constant in brackets.",
        f"Of {found.pairs} pairs whose steps differ by {APART:.0%} or more, {found.ordered:.0%} come out in "
        f"the right order ({constant.ordered:.0%}).",
        f"The plan predicted fastest is the fastest in {found.fastest} ({constant.fastest}), "
        f"{found.mean_loss:.1%} slower in the mean ({constant.mean_loss:.1%}) and "
        f"{found.worst_loss:.1%} at worst ({constant.worst_loss:.1%}).",
    )
    return "\n".join((*lines, ""))


def refused_text(outcomes: Iterable[Outcome]) -> str:
    """Return in words the number of published plans that the memory model would refuse."""
    shares = {
        width: [float(one.extra[MEMORY_SHARE]) for one in rows]
        for width, rows in _by_width(outcomes).items()
        if rows
    }
    if not shares:
        return ""
    refused = {width: sum(share > 1.0 for share in each) for width, each in shares.items()}
    counts = (f"{refused[width]} of {len(each)} in {width}" for width, each in shares.items())
    total, worst = sum(map(len, shares.values())), max(map(max, shares.values()))
    return (
        f"Memory: {sum(refused.values())} of {total} plans that ran would be refused ({', '.join(counts)}); "
        f"the fullest needs {worst:.2f} of what there is.\n"
    )


def _by_width(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    rows = [row for row in outcomes if row.predicted is not None and MEMORY_SHARE in row.extra]
    return {
        "16 bits": [row for row in rows if not row.extra[CAST]],
        "8 or 4": [row for row in rows if row.extra[CAST]],
    }


def measured_s(record: Record) -> float:
    """Return the measured step time: published, derived from published numbers, or from the throughput.

    Raises
    ------
    SkipError
        If the row has none of them.
    ParameterError
        If it is not a finite positive number.
    """
    for column in ("iteration_time_s", "derived_iteration_time_s"):
        value = record.number(column, strict=True)
        if value is not None:
            return value
    rate = record.number("tokens_per_s_per_gpu", strict=True)
    if rate is None:
        msg = "neither a step time nor tokens per second are given"
        raise SkipError(msg)
    tokens = record.needed("global_batch_sequences") * record.needed("seq_len")
    record.assume("step time from tokens per second")
    return tokens / (rate * record.needed("n_accelerators"))


class PublishedRun(NamedTuple):
    """System, model and plan of a published run."""

    system: System
    config: TransformerConfig
    plan: Plan


def run_of(record: Record) -> PublishedRun:
    """Return the run that a row describes."""
    system = system_of(record)
    plan = plan_of(record, system.accelerators)
    dropout = plan.recompute.attention is Attention.FULL
    config = model_of(record, pp=plan.axes.pp, dropout=dropout)
    plan = with_ends_counted(record, plan, config.layers)
    check(config, plan, accelerators=system.accelerators)
    host_bytes = HOST_MEMORY_BYTES.get(system.gpu.name, 0.0)
    plan = with_room(record, config, plan, system.gpu.memory.capacity_bytes + host_bytes)
    return PublishedRun(system, config, plan)


def constant_s(gpu: Gpu, config: TransformerConfig, plan: Plan) -> float:
    """Return the step time that one constant gives: half of peak, and the pipeline bubble.

    Notes
    -----
    Hardware operations / (N peak 0.5) x (1 + (p - 1) / (v m)), with p stages, v chunks a stage and m
    microbatches. Hardware operations are the model's and, with full recomputation, once more the blocks'
    forward pass: for a GPT 96 B L s h^2 (1 + s/6h + V/16Lh), equation 3 of arXiv:2104.04473.
    """
    flops = model_flops(config, plan.share)
    if plan.recompute.kind is Recompute.FULL:
        flops += recomputed_flops(config, plan)
    bubble = 1.0 + (plan.axes.pp - 1) / (plan.schedule.vpp * plan.microbatches)
    return flops / (plan.axes.ranks * peak_flop_per_s(gpu, plan) * CONSTANT_SHARE) * bubble


def recomputed_flops(config: TransformerConfig, plan: Plan) -> float:
    """Return the operations of the forward passes of blocks that are recomputed whole, over the batch."""
    kept = {name: plan.value(name) for name in ("micro_batch", "sequence_length", "precision")}
    bare = Plan.of(**kept, attention=Attention.FULL)
    products = (
        total_flops(operator) * repeat
        for operator, repeat in forward_layer(config, bare.share)
        if isinstance(operator, MatMul)
    )
    layers = plan.recompute.whole_blocks(config.layers)
    return sum(products) * layers * plan.batch.global_batch / plan.batch.micro_batch


def peak_flop_per_s(gpu: Gpu, plan: Plan) -> float:
    """Return the dense peak of products with weights at the plan's precision."""
    return gpu.peak_flop_per_s_of(plan.precision.kind.linear_bytes)


def memory_outcome(record: Record) -> Outcome:
    """Return the outcome of a row of published memory; an invalid cell raises `ParameterError`."""
    share = record.text("unit") in {"1", "%"}
    with judged(record, unit="1" if share else "B") as row:
        name = "share" if share else "measured_bytes"
        row.measured = _in_si(record, name, record.measured("measured"))
        check_provenance(record)
        quantity = record.text("quantity").lower()
        if quantity not in QUANTITIES:
            msg = f"quantity '{quantity}' is not one of {', '.join(QUANTITIES)}"
            raise SkipError(msg)
        row.predicted, row.hint = QUANTITIES[quantity](record), record.text("quantity")
    return row


def _in_si(record: Record, name: str, value: float) -> float:
    try:
        return to_si(name, value, record.text("unit"))
    except ParameterError as error:
        msg = f"{record.where}: {error}"
        raise FileError(msg) from None


def _model_and_plan(record: Record) -> tuple[TransformerConfig, Plan]:
    plan = plan_of(record, record.needed("n_accelerators"))
    dropout = plan.recompute.attention is Attention.FULL
    return model_of(record, pp=plan.axes.pp, dropout=dropout), plan


def _uninterleaved(record: Record) -> tuple[TransformerConfig, Plan]:
    """Return the model and the plan of a row without interleaving, as closed forms take it."""
    return _model_and_plan(Record(record.where, record.cells | {"vpp": "1"}, record.assumed))


def first_stage_activations(record: Record) -> float:
    """Return the activations of the first stage: as large as those of all layers, or more.

    References
    ----------
    Korthikanti et al., arXiv:2205.05198, section 4.2.3: L layers, times 1 + (p - 1)/(p v) if p stages of
    v chunks are interleaved.
    """
    config, plan = _uninterleaved(record)
    chunks = record.whole("vpp") or 1
    extra = 1.0 + (plan.axes.pp - 1) / (plan.axes.pp * chunks) if chunks > 1 else 1.0
    return layer_activation_bytes(config, plan.share) * config.layers * extra


def activations_share(record: Record) -> float:
    """Return a block's activations over those with tensor parallelism alone."""
    config, plan = _uninterleaved(record)
    alone = plan.with_(sequence_parallel=False, recompute=Recompute.NONE)
    return layer_activation_bytes(config, plan.share) / layer_activation_bytes(config, alone.share)


def block_states(record: Record) -> float:
    """Return weights, gradients and optimizer of all blocks' matrices over tensor and pipeline ranks.

    References
    ----------
    Korthikanti et al., arXiv:2205.05198, figure 1: 12 L h^2 parameters of 18 bytes, embeddings left out.
    """
    config, plan = _uninterleaved(record)
    plan = plan.with_(precision=Precision.BF16, grad_bytes=4)
    matrices = config.layers * (config.attention_matrices + config.experts * config.expert_matrices)
    return matrices * _state_bytes(plan) / (plan.axes.tp * plan.axes.pp)


def model_states(record: Record) -> float:
    """Return weights, gradients and optimizer states of a rank, from the number of parameters (``params_B``).

    References
    ----------
    Rajbhandari et al., ZeRO, SC 2020 (arXiv:1910.02054), section 3 and table 1: 2 + 2 + 12 bytes.
    """
    billions = record.number("params_B")
    if not billions:
        msg = "no params_B is given"
        raise SkipError(msg)
    stage = record.number("zero_or_fsdp")
    plan = Plan.of(dp=record.needed("dp"), zero=0, grad_bytes=2)
    return billions * BILLION * _state_bytes(plan, zero=int(stage or 0))


def _state_bytes(plan: Plan, *, zero: int = 0) -> float:
    """Return the bytes of one parameter's states on a rank, cut as the stage of ZeRO says."""
    shares = [1.0 / plan.axes.dp if zero >= least else 1.0 for least in (3, 2, 1)]
    # Adam's states do not depend on the shape of the matrices; any model will do.
    optimizer = optimizer_bytes(load_model("gpt2"), plan.axes, plan.precision)
    kinds = (plan.precision.element_bytes, plan.precision.grad_bytes, optimizer)
    return sum(each * share for each, share in zip(kinds, shares, strict=True))


def fullest_rank(record: Record) -> float:
    """Return all memory of the fullest stage's rank."""
    return _fullest_bytes(*_model_and_plan(record))


def _fullest_bytes(config: TransformerConfig, plan: Plan) -> float:
    return max(sum(memory_by_kind(config, plan, stage).values()) for stage in range(plan.axes.pp))


QUANTITIES: Mapping[str, Callable[[Record], float]] = MappingProxyType(
    {
        "activations": first_stage_activations,
        "activations share": activations_share,
        "block states": block_states,
        "model states": model_states,
        "peak allocated": fullest_rank,
    }
)
"""Predictions of memory by the quantity that a row measured."""
