"""Well-known training runs at their published plans: memory, speed and power, and the best plans for them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from electronic.gpu import Gpu
from experiments.validation.machines import YES, system_of
from experiments.validation.rows import Outcome, Record, SkipError, check_provenance, judged
from experiments.validation.training import constant_s, forecast, peak_flop_per_s, recomputed_flops
from heliograph.comparison.plan_estimates import Objective, estimates, feasible
from heliograph.systems import System
from simulator.errors import nearest
from simulator.units import to_si
from workloads.layers.transformer import model_flops
from workloads.models.architecture import Norm, Positions, TransformerConfig, divisors
from workloads.models.config import load_model, shipped_models
from workloads.pipeline.schedules import ONE_FORWARD_ONE_BACKWARD
from workloads.plan.parts import Recompute
from workloads.plan.plan import KEYS, Plan, parse_plan
from workloads.plan.rules import check
from workloads.search.costs import PlanPricer
from workloads.search.plans import grid
from workloads.step.memory import GIBIBYTE, fullest_stage, memory_by_kind

NEEDS = (("id",), ("source",), ("system",), ("model",), ("plan",), ("published",), ("unit",))
"""Groups of columns; a table of famous runs has at least one column of each group."""
NEAR = 0.10
"""Relative error within which a run counts as met; dimensionless."""
TRILLION = 1e12
"""Tokens for which accelerator hours are published."""
RUN_BY_ENGINE = 3
"""Number of plans, the best by estimate, that the engine runs; a choice."""
LARGEST_TENSOR = 16
"""Most tensor-parallel ranks that are tried, beside the published number; a choice."""
FASTER = 0.15
"""Speed-up over the published plan above which the report points at the difference; dimensionless."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run: hardware, model and plan."""

    system: System
    """Cluster."""
    config: TransformerConfig
    """Model."""
    plan: Plan
    """Plan of a step."""
    flops: float
    """Operations of a step, counted as the source does (`COUNTED`)."""


def outcome(record: Record) -> Outcome:
    """Return the outcome of a row of famous runs; an invalid cell raises `ParameterError`."""
    with judged(record) as row:
        run = run_of(record)
        row.measured = seconds_of(record, run)
        found = forecast(run.system, dataclasses.replace(run.config, name="model"), run.plan)
        stage = fullest_stage(run.config, run.plan)
        needed = sum(memory_by_kind(run.config, run.plan, stage).values())
        room = run.system.gpu.memory.capacity_bytes
        row.constant = constant_s(run.system.gpu, run.config, run.plan)
        row.extra = {
            "published": record.number("published") or 0.0,
            "ours": published_form(record, run, found.step_time_s),
            "published_unit": record.text("unit"),
            "fits": needed <= room,
            "memory_bytes": needed,
            "capacity_bytes": room,
            "cause": record.text("cause"),
        }
        row.predicted, row.hint = found.step_time_s, found.hint
    return row


def run_of(record: Record) -> Run:
    """Return the hardware, the model and the plan of a row."""
    config = famous_model(record)
    text = record.text("plan")
    if not text:
        msg = "its plan was not published"
        raise SkipError(msg)
    plan = parse_plan(f"{text},{shape_text(record)}")
    system = famous_system(record)
    check(config, plan, accelerators=system.accelerators)
    flops = COUNTED[record.text("counted") or "all"](config, plan)
    return Run(system=system, config=config, plan=plan, flops=flops)


def shape_text(record: Record) -> str:
    """Return the sequence length and the global batch of a row as a plan's text."""
    return f"sequence={record.needed('seq_len')},global_batch={record.needed('global_batch_sequences')}"


def famous_system(record: Record) -> System:
    """Return the cluster of a row: nodes on rails, or the torus that it names."""
    system = system_of(record)
    return dataclasses.replace(system, gpu=_computing(record, system.gpu))


def _computing(record: Record, gpu: Gpu) -> Gpu:
    """Return an accelerator without the units that a run reserved for communication."""
    reserved = record.whole("reserved_units")
    if reserved is None:
        return gpu
    record.assume(f"{reserved} of {gpu.chip.units} units carry traffic")
    return dataclasses.replace(gpu, chip=dataclasses.replace(gpu.chip, units=gpu.chip.units - reserved))


def famous_model(record: Record) -> TransformerConfig:
    """Return a shipped model by name, or the one of a row's sizes."""
    name = record.text("model")
    if name in shipped_models():
        shipped = load_model(name)
        return dataclasses.replace(shipped, layers=record.whole("layers") or shipped.layers, dropout=False)
    gated = record.text("ffn_gated").lower() in YES
    old = record.text("plan").find("attention=full") >= 0
    sequence = record.needed("seq_len")
    return TransformerConfig(
        name=name,
        layers=record.needed("layers"),
        hidden=record.needed("hidden"),
        heads=record.needed("heads"),
        kv_heads=record.needed("kv_heads"),
        head_dim=record.needed("head_dim"),
        ffn_hidden=record.needed("ffn_hidden"),
        vocabulary=record.needed("vocab"),
        max_sequence=sequence,
        gated=gated,
        tied_embeddings=old,
        norm=Norm.RMS if gated else Norm.LAYER,
        positions=Positions.LEARNED if old else Positions.ROTARY,
        position_rows=sequence if old else 0,
        qkv_bias=old,
        output_bias=old,
        mlp_bias=old,
        dropout=old,
    )


COUNTED: Mapping[str, Callable[[TransformerConfig, Plan], float]] = MappingProxyType(
    {
        "all": lambda config, plan: model_flops(config, plan.share),
        "causal": lambda config, plan: model_flops(config, plan.share, causal=True),
        "hardware": lambda config, plan: (
            model_flops(config, plan.share)
            + (recomputed_flops(config, plan) if plan.recompute.kind is Recompute.FULL else 0.0)
        ),
    }
)
"""Operations of a step by the count that a source uses: ``all`` pairs of attention, their ``causal`` half, or
``hardware``, which adds recomputation."""


def _tokens(run: Run) -> float:
    return float(run.plan.batch.tokens_per_step)


FORMS: Mapping[str, Callable[[Run, float], float]] = MappingProxyType(
    {
        "s": lambda run, time: time,
        "TFLOP/s": lambda run, time: run.flops / run.system.accelerators / time / to_si("f_hz", 1.0, "THz"),
        "% of peak": lambda run, time: (
            100.0 * run.flops / run.system.accelerators / time / peak_flop_per_s(run.system.gpu, run.plan)
        ),
        "tokens/s a GPU": lambda run, time: _tokens(run) / run.system.accelerators / time,
        "h/10^12 tokens": lambda run, time: (
            time * run.system.accelerators * TRILLION / _tokens(run) / to_si("t_s", 1.0, "h")
        ),
    }
)
"""Published figure by unit, from a run and its step time in s: the time, or its inverse, times a constant."""


def published_form(record: Record, run: Run, step_time_s: float) -> float:
    """Return a step's time in the form in which a row publishes its own.

    Raises
    ------
    SkipError
        For a form that is not known.
    """
    unit = record.text("unit")
    if unit not in FORMS:
        msg = f"unit '{unit}' is none of {', '.join(FORMS)}"
        raise SkipError(msg)
    return FORMS[unit](run, step_time_s)


def seconds_of(record: Record, run: Run) -> float:
    """Return the step time that a row's published figure stands for."""
    value = record.measured("published")
    at_one_second = published_form(record, run, 1.0)
    grows_with_time = published_form(record, run, 2.0) > at_one_second
    return value / at_one_second if grows_with_time else at_one_second / value


def famous_text(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each run: the published figure, ours, and whether the plan fits the memory."""
    lines = ["\nAs published, at the published plan:\n"]
    for row in outcomes:
        if row.predicted is None:
            lines.append(f"  {row.id}: {row.skipped}\n")
            continue
        extra: Mapping[str, Any] = row.extra
        room = (extra["capacity_bytes"] - extra["memory_bytes"]) / GIBIBYTE
        fits = f"fits, {room:.1f} GiB free" if extra["fits"] else f"does not fit, {-room:.1f} GiB too much"
        error = row.relative_error or 0.0
        verdict = "met" if abs(error) <= NEAR else f"missed: {extra['cause'] or row.hint}"
        lines.append(
            f"  {row.id}: {extra['published']:g} {extra['published_unit']} published, {extra['ours']:.4g} "
            f"ours (step {error:+.1%}); {fits}; {verdict}\n"
        )
    return "".join(lines)


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best plan found for a run."""

    plan: Plan
    """The plan."""
    step_time_s: float
    """Simulated step time."""
    ranked: int
    """Number of plans that were estimated."""


def searched(record: Record) -> Outcome:
    """Return the step of the best plan found for a famous run, against that of the published plan.

    Notes
    -----
    The "measured" value is the *predicted* step of the published plan, so that the difference is due to the
    plan and not to our model. Where no plan was published, it is the published step itself.
    """
    with judged(record) as row:
        known = run_of(record) if record.text("plan") else None
        run = known or unpublished(record)
        config = dataclasses.replace(run.config, name="model")
        best = best_plan(run)
        reference = forecast(run.system, config, run.plan).step_time_s if known else seconds_of(record, run)
        if known and reference <= best.step_time_s:
            best = dataclasses.replace(best, plan=run.plan, step_time_s=reference)
        row.constant = constant_s(run.system.gpu, run.config, best.plan)
        row.extra = {
            "plan": changes(Plan(), best.plan),
            "uses": changes(run.plan, best.plan) if known else "",
            "published_plan": bool(known),
            "ranked": best.ranked,
        }
        row.measured, row.predicted = reference, best.step_time_s
    return row


def unpublished(record: Record) -> Run:
    """Return a run whose plan was not published, with the default plan."""
    config = famous_model(record)
    plan = parse_plan(shape_text(record))
    system = famous_system(record)
    return Run(system=system, config=config, plan=plan, flops=model_flops(config, plan.share))


def best_plan(run: Run) -> Best:
    """Return the best plan for a run among those that use the same techniques.

    Raises
    ------
    SkipError
        If no plan fits.

    Notes
    -----
    Free are the degrees of tensor, pipeline and data parallelism, the microbatch, the chunks of a stage,
    the stage of ZeRO and full recomputation. Everything else is that of the published plan: kernels, formats,
    context and expert ranks, operators that are recomputed. 1F1B stands for every other schedule.
    """
    plan = run.plan
    base = plan.with_(schedule=ONE_FORWARD_ONE_BACKWARD, shard_group=0, recompute_share=1.0)
    free: dict[str, tuple[int, ...]] = {name: (value,) for name, value in _pinned(plan).items()}
    free |= _tried(run)
    arrays = grid(base, run.system.accelerators, run.config.experts, free)
    plans, _ = feasible(run.config, arrays, run.system.gpu.memory.capacity_bytes)
    if not len(plans):
        msg = "no plan of this kind fits its accelerators"
        raise SkipError(msg)
    config = dataclasses.replace(run.config, name="model")
    times = estimates(run.system, PlanPricer(run.config, run.system.node()), plans).values[Objective.TIME]
    order = np.argsort(times, kind="stable")[:RUN_BY_ENGINE]
    ran = [(plans.plan(int(row)), int(row)) for row in order if np.isfinite(times[row])]
    found = [(forecast(run.system, config, one).step_time_s, number) for number, (one, _) in enumerate(ran)]
    step_time_s, number = min(found)
    return Best(plan=ran[number][0], step_time_s=step_time_s, ranked=len(plans))


def _pinned(plan: Plan) -> Mapping[str, int]:
    """Return the columns that keep the published value."""
    axes, overlap = plan.axes, int(plan.traffic.overlap_tensor)
    return {"cp": axes.cp, "ep": axes.ep, "schedule": 0, "overlap_tensor": overlap, "placement": 0}


def _tried(run: Run) -> Mapping[str, tuple[int, ...]]:
    """Return the values that are tried of the columns that are free."""
    plan, config = run.plan, run.config
    tensor = {one for one in divisors(config.heads) if one <= LARGEST_TENSOR} | {plan.axes.tp}
    again = (0,) if plan.recompute.by_operator else (0, 2)
    sharding = (1, 3) if plan.sharding.zero in {1, 3} else (plan.sharding.zero,)
    return {
        "tp": tuple(sorted(tensor)),
        "micro_batch": tuple(sorted({1, 2, 4, plan.batch.micro_batch})),
        "vpp": tuple(sorted({1, 2, 4, 8, plan.schedule.vpp})),
        "recompute": again,
        "zero": sharding,
    }


def changes(old: Plan, new: Plan) -> str:
    """Return the keys in which a plan differs from another, with its values."""
    shown = [f"{key}={new.value(key)}" for key in KEYS if new.value(key) != old.value(key)]
    return ", ".join(shown)


def search_text(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each run: the speed-up of the best plan, and where it differs."""
    lines = ["\nBest plan found, against the published plan (both predicted):\n"]
    for row in outcomes:
        if row.predicted is None or row.measured is None:
            lines.append(f"  {row.id}: {row.skipped}\n")
            continue
        extra: Mapping[str, Any] = row.extra
        gain = row.measured / row.predicted - 1.0
        if not extra["published_plan"]:
            text = f"{gain:+.1%} against the published rate (no plan published); plan {extra['plan']}"
        elif not extra["uses"]:
            text = "the published plan is the best of those tried"
        else:
            text = f"{gain:+.1%} faster; it has {extra['uses']}"
            text += "" if gain <= FASTER else f" (more than {FASTER:.0%}: what they did not use)"
        lines.append(f"  {row.id}: {text}; {extra['ranked']:,} plans ranked\n")
    return "".join(lines)


POWER_NEEDS = (("id",), ("source",), ("system",), ("model",), ("plan",), ("power_w",), ("reach",))
"""Groups of columns; a table of power has at least one column of each group."""
HELD = ("scale-up", "nic")
"""Items of a network's bill that are inside servers."""
ON_BOARD = ("compute", "gpu active", "hbm", "memory static", "gpu idle")
"""Components of a step's energy that an accelerator's own meter counts."""


class Reach(StrEnum):
    """Extent of a measurement."""

    ACCELERATOR = "accelerator"
    """An accelerator with its memory, by its own meter."""
    SERVER = "server"
    """A server with all that it holds, its network cards among it."""
    MACHINE = "machine"
    """Servers and the network between them."""


def power_outcome(record: Record) -> Outcome:
    """Return the outcome of a row of measured power per accelerator, W."""
    with judged(record, unit="W") as row:
        row.measured = record.measured("power_w")
        check_provenance(record)
        run = run_of(record)
        pairs = (pair.partition("=") for pair in record.text("set").split(",") if pair)
        system = run.system.with_({path: value for path, _, value in pairs})
        found = forecast(system, dataclasses.replace(run.config, name="model"), run.plan)
        reach = _reach(record)
        parts_j = [found.components_j[name] for name in ON_BOARD]
        energy_j = math.fsum(parts_j) if reach is Reach.ACCELERATOR else found.energy_j
        power_w = energy_j / found.step_time_s / system.accelerators
        if reach is Reach.SERVER:
            power_w -= _outside_w(system)
        row.predicted, row.hint = power_w, record.text("notes")
    return row


def _reach(record: Record) -> Reach:
    """Return the extent of a row's measurement."""
    text = record.text("reach")
    if text not in tuple(Reach):
        msg = f"reach {text or 'is empty'}: {nearest(text, tuple(Reach), noun='reach')}"
        raise SkipError(msg)
    return Reach(text)


def _outside_w(system: System) -> float:
    """Return the power of switches and modules outside of servers, per accelerator."""
    bill = system.fabric.bill()
    outside = (item for name, item in bill.items() if name not in HELD)
    return math.fsum(item.count * item.w_each for item in outside) / system.accelerators
