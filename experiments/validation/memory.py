"""Published memory of training runs, in closed form and as allocated, against ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

from experiments.validation.machines import BILLION, model_of, plan_of
from experiments.validation.rows import (
    FileError,
    Outcome,
    Record,
    SkipError,
    begun,
    check_provenance,
    skipped,
)
from simulator.errors import HeliographError, ParameterError
from simulator.units import to_si
from workloads.models.architecture import TransformerConfig
from workloads.models.config import load_model
from workloads.plan.parts import Attention, Precision, Recompute
from workloads.plan.plan import Plan
from workloads.step.memory import layer_activation_bytes, memory_by_kind
from workloads.step.sharding import optimizer_bytes

NEEDS = (("quantity",), ("measured",), ("unit",))
"""Columns without which a file is no table of memory; of each group one."""


def outcome(record: Record) -> Outcome:
    """Return what becomes of a row of published memory; numbers that cannot be raise `ParameterError`."""
    share = record.text("unit") in {"1", "%"}
    blank = begun(record, unit="1" if share else "B")
    try:
        value = record.number("measured", strict=True)
        if value is None:
            msg = "nothing measured is given"
            raise SkipError(msg)
        name = "share" if share else "measured_bytes"
        blank = dataclasses.replace(blank, measured=_in_si(record, name, value))
        check_provenance(record)
        quantity = record.text("quantity").lower()
        if quantity not in QUANTITIES:
            msg = f"quantity '{quantity}' is not one of {', '.join(QUANTITIES)}"
            raise SkipError(msg)
        predicted = QUANTITIES[quantity](record)
    except HeliographError as error:
        return skipped(blank, record, error)
    return dataclasses.replace(
        blank, predicted=predicted, assumed=tuple(record.assumed), hint=record.text("quantity")
    )


def _in_si(record: Record, name: str, value: float) -> float:
    try:
        return to_si(name, value, record.text("unit"))
    except ParameterError as error:
        msg = f"{record.where}: {error}"
        raise FileError(msg) from None


def _run(record: Record) -> tuple[TransformerConfig, Plan]:
    plan = plan_of(record, record.needed("n_accelerators"))
    dropout = plan.recompute.attention is Attention.FULL
    return model_of(record, pp=plan.axes.pp, dropout=dropout), plan


def _uninterleaved(record: Record) -> tuple[TransformerConfig, Plan, int]:
    """Return model, plan without interleaving, and the chunks that a closed form takes into account."""
    chunks = record.whole("vpp") or 1
    plain = Record(record.where, record.cells | {"vpp": "1"}, record.assumed)
    return *_run(plain), chunks


def first_stage_activations(record: Record) -> float:
    """Return the activations of the first stage: all layers' worth, more if stages are interleaved.

    References
    ----------
    Korthikanti et al., arXiv:2205.05198, section 4.2.3: L layers, times 1 + (p - 1)/(p v) when interleaved.
    """
    config, plan, chunks = _uninterleaved(record)
    extra = 1.0 + (plan.axes.pp - 1) / (plan.axes.pp * chunks) if chunks > 1 else 1.0
    return layer_activation_bytes(config, plan.share) * config.layers * extra


def activations_share(record: Record) -> float:
    """Return a block's activations over those with tensor parallelism alone."""
    config, plan, _ = _uninterleaved(record)
    alone = plan.with_(sequence_parallel=False, recompute=Recompute.NONE)
    return layer_activation_bytes(config, plan.share) / layer_activation_bytes(config, alone.share)


def block_states(record: Record) -> float:
    """Return weights, gradients and optimizer of all blocks' matrices over tensor and pipeline ranks.

    References
    ----------
    Korthikanti et al., arXiv:2205.05198, figure 1: 12 L h^2 parameters of 18 bytes, embeddings left out.
    """
    config, plan, _ = _uninterleaved(record)
    plan = plan.with_(precision=Precision.BF16, grad_bytes=4)
    matrices = config.layers * (config.attention_matrices + config.experts * config.expert_matrices)
    return matrices * _state_bytes(plan) / (plan.axes.tp * plan.axes.pp)


def model_states(record: Record) -> float:
    """Return weights, gradients and optimizer of a model of so many parameters over data-parallel ranks.

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
    config, plan = _run(record)
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
"""What a row may have measured, and how it is predicted."""
