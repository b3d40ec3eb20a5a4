"""Published times of single kernels against what is predicted."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from electronic.gpu import load_gpu
from electronic.kernels import kernel_time_s
from experiments.validation.machines import accelerator_name
from experiments.validation.rows import Outcome, Record, SkipError, begun, check_provenance, skipped
from simulator.errors import HeliographError
from simulator.units import to_si

NEEDS = (("gpu",), ("op",), ("time_ms", "tflops", "efficiency_vs_peak"))
"""Columns without which a file is no table of kernels; of each group one."""
CONSTANT_SHARE = 0.5
"""Share of the peak that the trivial constant assumes; dimensionless."""
PRODUCTS = frozenset({"matmul", "group_matmul"})
"""Kernels that are matrix products."""
ATTENTION_PASSES = {"sdp_fwd": 2, "sdp_bwd": 5}
"""Fused attention kernels and the s x s products by which operations are counted; backward repeats one."""


def validate_kernels(records: Sequence[Record]) -> tuple[Outcome, ...]:
    """Return what becomes of each row of measured kernels.

    Raises
    ------
    ParameterError
        If a row holds a number that cannot be one (not finite, negative).
    """
    return tuple(_outcome(record) for record in records)


def _outcome(record: Record) -> Outcome:
    blank = begun(record)
    try:
        check_provenance(record)
        gpu_name = accelerator_name(record.text("gpu"))
        flops = kernel_flops(record)
        peak = load_gpu(gpu_name).peak_flop_per_s
        blank = dataclasses.replace(blank, measured=_measured_s(record, flops, peak))
        predicted = kernel_s(gpu_name, record)
    except HeliographError as error:
        return skipped(blank, record, error)
    sizes = " x ".join(record.text(column) for column in ("batch", "m", "n", "k") if record.text(column))
    return dataclasses.replace(
        blank,
        predicted=predicted,
        constant=flops / (peak * CONSTANT_SHARE),
        assumed=tuple(record.assumed),
        hint=f"{record.text('op')} {sizes or record.text('layout_or_note')}",
    )


def kernel_flops(record: Record) -> float:
    """Return the operations of a row's kernel: of a product, or of attention over all s x s pairs.

    Raises
    ------
    SkipError
        If the kind is unknown or a size is missing.
    """
    operation = record.text("op").lower()
    if operation in PRODUCTS:
        m, n, k, batch = _sizes(record)
        return 2.0 * m * n * k * batch
    if operation in ATTENTION_PASSES:
        note = note_sizes(record)
        widths = (note.get("qk_head_dim", 0) + note.get("v_head_dim", 0)) / 2
        pairs = note.get("batch", 0) * note.get("head_num", 0) * note.get("seq_len", 0) ** 2
        if not pairs * widths:
            msg = "the note gives no batch, seq_len, head_num, qk_head_dim and v_head_dim"
            raise SkipError(msg)
        record.assume("operations counted over all s x s pairs")
        return ATTENTION_PASSES[operation] * 2.0 * pairs * widths
    msg = f"kernel '{operation}' is not modelled"
    raise SkipError(msg)


def _sizes(record: Record) -> tuple[int, int, int, int]:
    m, n, k = (record.needed(column) for column in ("m", "n", "k"))
    return m, n, k, record.whole("batch") or 1


def note_sizes(record: Record) -> dict[str, int]:
    """Return the whole numbers that a note gives as ``name=number``."""
    found = re.findall(r"(\w+)=(\d+)\b", record.text("layout_or_note"))
    return {name: int(value) for name, value in found}


def _timed_from_host(record: Record) -> bool:
    """Return whether a row's time is that of a clock on the host around one kernel, its wait included."""
    if record.number("time_ms") is None or "event" in record.text("layout_or_note").lower():
        return False
    record.assume("timed from the host")
    return True


def _measured_s(record: Record, flops: float, peak: float) -> float:
    value = record.number("time_ms", strict=True)
    if value is not None:
        return to_si("time_s", value, "ms")
    value = record.number("tflops", strict=True)
    if value is not None:
        record.assume("time from TFLOP/s")
        return flops / to_si("rate_flop_per_s", value, "TFLOP/s")
    share = record.number("efficiency_vs_peak", strict=True)
    if share is None:
        msg = "neither time, nor rate, nor share of peak is given"
        raise SkipError(msg)
    record.assume(f"time from the share of {to_terascale(peak):.0f} TFLOP/s")
    return flops / (share * peak)


def to_terascale(rate_flop_per_s: float) -> float:
    """Return a rate in TFLOP/s, for messages."""
    return rate_flop_per_s / to_si("rate_flop_per_s", 1.0, "TFLOP/s")


def kernel_s(gpu_name: str, record: Record) -> float:
    """Return the predicted time of a row's kernel; as the model of kernels has it.

    Raises
    ------
    SkipError
        If there is no model of such a kernel.
    """
    operation = record.text("op").lower()
    m, n, k, batch = _sizes(record) if operation in PRODUCTS else (1, 1, 1, 1)
    return kernel_time_s(
        *(gpu_name, operation, m, n, k, batch, record.text("dtype"), record.text("layout_or_note")),
        host_timed=_timed_from_host(record),
    )
