"""Published times of single kernels by name and shape, and power of boards that generate text.

Generating text one token at a time is bound by memory, so that it tests the energy of memory where the
products of training do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from electronic.gpu import gpu_of, load_gpu
from experiments.validation.machines import accelerator_name
from experiments.validation.rows import (
    CONSTANT_SHARE,
    Outcome,
    Record,
    SkipError,
    check_provenance,
    judged,
)
from simulator.amounts import Matrices
from simulator.errors import ParameterError, nearest
from simulator.operators import Elementwise, Held, MatMul, Phase
from simulator.units import to_si

NEEDS = (("gpu",), ("op",), ("time_ms", "tflops", "efficiency_vs_peak"))
"""Groups of columns; a table of kernels has at least one column of each group."""
PRODUCTS = frozenset({"matmul", "group_matmul"})
"""Names of matrix products."""
ATTENTION_FORWARD, ATTENTION_BACKWARD = "sdp_fwd", "sdp_bwd"
"""Names of fused causal attention kernels."""
ATTENTION_PASSES = {ATTENTION_FORWARD: 2, ATTENTION_BACKWARD: 5}
"""Products of s x s, by fused attention kernel, that operations are counted by; backward repeats one."""


HOST_TIMED_S = to_si("time_s", 22.0, "us")
"""Time that a host clock adds to one kernel that it waits for. Fitted on the smallest even-numbered products
of LLMCompass figure 5 (A100), which all take about 30 us."""
DTYPE_BYTES = MappingProxyType({"fp8": 1, "bf16": 2, "fp16": 2, "": 2, "tf32": 4, "fp32": 4})
"""Bytes of an operand's element by name; an empty name is bf16."""


@dataclass(frozen=True, kw_only=True)
class ElementwiseKind:
    """Operation of an element-wise kernel on each of its m n elements."""

    flops: float
    """Operations."""
    reads: float
    """Elements read."""
    writes: float
    """Elements written."""


ELEMENTWISE = MappingProxyType(
    {
        "copy": ElementwiseKind(flops=0, reads=1, writes=1),
        "add": ElementwiseKind(flops=1, reads=2, writes=1),
        "gelu": ElementwiseKind(flops=8, reads=1, writes=1),
        "swiglu": ElementwiseKind(flops=6, reads=2, writes=1),
        "softmax": ElementwiseKind(flops=5, reads=1, writes=1),
        "layernorm": ElementwiseKind(flops=7, reads=1, writes=1),
        "rmsnorm": ElementwiseKind(flops=4, reads=1, writes=1),
        # Gradient in bf16; weight and two moments in single precision read and written; a bf16 copy written.
        "adam": ElementwiseKind(flops=12, reads=7, writes=7),
    }
)
"""Kernels without a product; m rows of n elements."""


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """A fused attention kernel."""

    batch: int
    """Sequences."""
    sequence: int
    """Tokens of a sequence."""
    heads: int
    """Query heads."""
    query_dim: int
    """Size of a query and key head."""
    value_dim: int
    """Size of a value head."""
    causal: bool = True
    """Whether later keys are masked."""
    window: int = 0
    """Latest keys that a query sees under that mask; 0 for all."""

    def products(self, *, backward: bool) -> tuple[MatMul, ...]:
        """Return the products of the kernel over the keys that a query sees on average."""
        seen = min(self.window or self.sequence, self.sequence)
        keys = seen - seen * (seen - 1) // (2 * self.sequence) if self.causal else self.sequence
        sizes = (self.query_dim, keys, self.value_dim)
        scores = self._product(Phase.FORWARD, sizes[0], sizes[1], Matrices.C)
        if not backward:
            return scores, self._product(Phase.FORWARD, sizes[1], sizes[2], Matrices.A)
        grad = Phase.GRAD_INPUT
        return (
            scores,
            self._product(grad, sizes[2], sizes[1], Matrices.C),
            self._product(grad, sizes[1], sizes[2], Matrices.A),
            self._product(grad, sizes[1], sizes[0], Matrices.A),
            self._product(grad, sizes[1], sizes[0], Matrices.A),
        )

    def _product(self, phase: Phase, k: int, n: int, on_chip: Matrices) -> MatMul:
        return MatMul(
            name="attention",
            phase=phase,
            batch=self.batch * self.heads,
            m=self.sequence,
            k=k,
            n=n,
            on_chip=on_chip,
        )


def outcome(record: Record) -> Outcome:
    """Return the outcome of a row of measured kernels; an invalid cell raises `ParameterError`."""
    with judged(record) as row:
        check_provenance(record)
        gpu_name = accelerator_name(record.text("gpu"))
        flops = kernel_flops(record)
        peak = load_gpu(gpu_name).peak_flop_per_s
        row.measured = _measured_s(record, flops, peak)
        row.predicted = kernel_s(gpu_name, record)
        row.constant = flops / (peak * CONSTANT_SHARE)
        sizes = " x ".join(filter(None, map(record.text, ("batch", "m", "n", "k"))))
        row.hint = f"{record.text('op')} {sizes or record.text('layout_or_note')}"
    return row


def kernel_flops(record: Record) -> float:
    """Return the operations of a row's kernel: of a product, or of attention over all s x s pairs.

    Raises
    ------
    SkipError
        If the kind is unknown or a size is missing.
    """
    operation = record.text("op").lower()
    if operation in PRODUCTS:
        return 2.0 * math.prod(_product_sizes(record))
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


class _ProductSizes(NamedTuple):
    """Sizes of a batch of products: C is m x n, the sums have length k."""

    m: int
    n: int
    k: int
    batch: int


def _product_sizes(record: Record) -> _ProductSizes:
    m, n, k = (record.needed(column) for column in ("m", "n", "k"))
    return _ProductSizes(m, n, k, record.whole("batch") or 1)


def note_sizes(record: Record) -> dict[str, int]:
    """Return the whole numbers that a note gives as ``name=number``."""
    found = re.findall(r"(\w+)=(\d+)\b", record.text("layout_or_note"))
    return {name: int(value) for name, value in found}


def _timed_from_host(record: Record) -> bool:
    """Return whether a row's time was taken by a host clock around one kernel and the wait for it."""
    if record.number("time_ms") is None or "event" in record.text("layout_or_note").lower():
        return False
    record.assume("timed from the host")
    return True


def _measured_s(record: Record, flops: float, peak: float) -> float:
    """Return the measured time of a kernel: published, or from its rate, or from its share of the peak."""
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
    record.assume(f"time from the share of {peak / to_si('rate_flop_per_s', 1.0, 'TFLOP/s'):.0f} TFLOP/s")
    return flops / (share * peak)


def kernel_s(gpu_name: str, record: Record) -> float:
    """Return the predicted time of a row's kernel."""
    operation = record.text("op").lower()
    sizes = _product_sizes(record) if operation in PRODUCTS else _ProductSizes(1, 1, 1, 1)
    return kernel_time_s(
        gpu_name,
        operation,
        *sizes,
        record.text("dtype"),
        record.text("layout_or_note"),
        host_timed=_timed_from_host(record),
    )


def kernel_time_s(  # noqa: PLR0917 - the columns of a table of kernel measurements
    gpu_name: str,
    op: str,
    m: int,
    n: int,
    k: int,
    batch: int = 1,
    dtype: str = "bf16",
    note: str = "",
    *,
    host_timed: bool = False,
) -> float:
    """Return the time of one kernel on a GPU.

    Parameters
    ----------
    gpu_name : str
        GPU, as `gpu_of` reads it.
    op : str
        ``matmul``, ``group_matmul`` (`batch` experts), ``sdp_fwd``, ``sdp_bwd`` or one of `ELEMENTWISE`.
    m, n, k : int
        C is m x n, the inner dimension k. For attention: sequence, heads and head size. Element-wise: m x n.
    batch : int
        Products, experts or sequences.
    dtype : str
        Operands: one of `DTYPE_BYTES`. A product that sums into single precision has bf16 operands; one of
        fp8 operands writes bf16 unless the note's ``out_dtype`` says otherwise.
    note : str
        ``key=value`` pairs that say more: ``accumulate``, ``out_dtype``, ``main_grad_dtype``, ``stage``;
        for attention ``batch, seq_len, head_num, qk_head_dim, v_head_dim``, ``mask=none``, ``window``;
        ``clock=full`` for runs too short for the power limit to bite.
    host_timed : bool
        Whether a host clock takes the time, from the call to the end of its wait for the kernel.
    """
    gpu = replace(load_gpu(gpu_of(gpu_name)), alone=True)
    fields = dict(re.findall(r"(\w+)=(\w+)", note))
    if fields.get("clock") == "full":
        gpu = replace(gpu, chip=replace(gpu.chip, tdp_w=math.inf))
    if op in ELEMENTWISE:
        one = gpu.cost(_elementwise(op, m * n * batch, _element_bytes(dtype)))
        return max(one.time_s, gpu.chip.host_launch_s)
    if op in ATTENTION_PASSES:
        products = _attention(fields, m, n, k, batch).products(backward=op == ATTENTION_BACKWARD)
    elif op in PRODUCTS:
        products = (_product(fields, m, n, k, batch=batch, dtype=dtype),)
    else:
        known = (*sorted(PRODUCTS, reverse=True), *ATTENTION_PASSES, *ELEMENTWISE)
        msg = f"no kernel is called '{op}'; {nearest(op, known, noun='kernel')}"
        raise ParameterError(msg)
    calls = batch if op == "group_matmul" else 1
    run_s = max(sum(gpu.cost(one).time_s for one in products), gpu.chip.host_launch_s * calls)
    return run_s + (HOST_TIMED_S if host_timed else 0.0)


def _element_bytes(dtype: str) -> int:
    if dtype not in DTYPE_BYTES:
        msg = f"no type is called '{dtype}'; {nearest(dtype, tuple(DTYPE_BYTES), noun='type')}"
        raise ParameterError(msg)
    return DTYPE_BYTES[dtype]


def _product(fields: Mapping[str, str], m: int, n: int, k: int, *, batch: int, dtype: str) -> MatMul:
    """Return the product of a row; `dtype` fp32 with a note is that of a sum with bf16 operands."""
    stage = fields.get("stage", "")
    if stage == "bwd_grad_w":
        m, k = k, m
    elif stage == "bwd_grad_act":
        n, k = k, n
    sums = fields.get("out_dtype") == "fp32" or (
        fields.get("main_grad_dtype") == "fp32" and stage == "bwd_grad_w"
    )
    sums = sums and fields.get("accumulate") == "True"
    element_bytes = 2 if sums else _element_bytes(dtype)
    # Units for narrow operands write their sums wider, as products within a step do.
    wider = _element_bytes(fields.get("out_dtype", "bf16")) if element_bytes < 2 else 0
    return MatMul(
        name="product",
        phase=Phase.GRAD_WEIGHT if sums else Phase.FORWARD,
        batch=batch,
        m=m,
        k=k,
        n=n,
        held=Held.NONE if sums else Held.B,
        element_bytes=element_bytes,
        result_bytes=float(2 * _element_bytes("fp32") if sums else wider),
    )


def _attention(fields: Mapping[str, str], m: int, n: int, k: int, batch: int) -> AttentionShape:
    return AttentionShape(
        batch=int(fields.get("batch", batch)),
        sequence=int(fields.get("seq_len", m)),
        heads=int(fields.get("head_num", n)),
        query_dim=int(fields.get("qk_head_dim", k)),
        value_dim=int(fields.get("v_head_dim", k)),
        causal=fields.get("mask") != "none",
        window=int(fields.get("window", 0)),
    )


def _elementwise(op: str, elements: int, element_bytes: int) -> Elementwise:
    kind = ELEMENTWISE[op]
    return Elementwise(
        name=op,
        phase=Phase.FORWARD,
        flops=kind.flops * elements,
        read_bytes=kind.reads * elements * element_bytes,
        written_bytes=kind.writes * elements * element_bytes,
    )


BOARD_NEEDS = (("gpu",), ("layers",), ("hidden",), ("sequences",), ("tokens_per_s",), ("power_w",))
"""Groups of columns; a table of boards has at least one column of each group."""
PROMPT_TOKENS = 100
"""Tokens of a prompt, which are not published; with none, or twice as many, the mean error changes by less
than half a point."""
BUSY_SHARE = 0.5
"""Share of the measured time that kernels must fill: elsewhere the board waits for its host."""
STORED_BYTES = 2
"""Bytes of an element of keys, values and the head."""


def board_outcome(record: Record) -> Outcome:
    """Return the outcome of a row of measured power of one board, W."""
    with judged(record, unit="W") as row:
        check_provenance(record)
        gpu = replace(load_gpu(gpu_of(record.text("gpu"))), alone=True)
        rate, power_w, sequences = map(record.measured, ("tokens_per_s", "power_w", "sequences"))
        row.measured, row.constant = power_w, gpu.chip.tdp_w
        costs = [(count, gpu.cost(one)) for count, one in token_work(record, sequences)]
        step_s, kernels_s = sequences / rate, math.fsum(count * cost.time_s for count, cost in costs)
        if kernels_s < BUSY_SHARE * step_s:
            msg = f"kernels fill less than {BUSY_SHARE:.0%} of the time: the board waited for its host"
            raise SkipError(msg)
        drawn_j = math.fsum(
            count * (cost.energy_j["compute"] + cost.energy_j["hbm"]) for count, cost in costs
        )
        row.predicted = gpu.power_w(drawn_j, step_s)
        row.hint = f"kernels fill {kernels_s / step_s:.0%} of the time"
    return row


def token_work(record: Record, sequences: float) -> list[tuple[int, MatMul | Elementwise]]:
    """Return the operators of one token of every sequence on one of the row's GPUs, each with its count.

    Weights are split over the GPUs as tensor ranks split them. What the ranks exchange is left out.
    """
    layers, hidden, ffn = (record.needed(name) for name in ("layers", "hidden", "ffn_hidden"))
    heads, kv_heads, head_dim = (record.needed(name) for name in ("heads", "kv_heads", "head_dim"))
    gpus, vocab, weight_bytes = (record.needed(name) for name in ("gpus", "vocab", "weight_bytes"))
    many = round(sequences)
    context = PROMPT_TOKENS + (record.number("output_tokens") or 0.0) / 2.0
    record.assume(f"prompts of {PROMPT_TOKENS} tokens, outputs half done on average")

    def weight(rows: int, columns: int, element_bytes: int = weight_bytes) -> MatMul:
        return MatMul(
            name="weight",
            phase=Phase.FORWARD,
            batch=1,
            m=many,
            k=rows,
            n=columns,
            element_bytes=element_bytes,
        )

    def streamed(flops: float, read: float, written: float) -> Elementwise:
        return Elementwise(
            name="streamed",
            phase=Phase.FORWARD,
            flops=flops,
            read_bytes=STORED_BYTES * read,
            written_bytes=STORED_BYTES * written,
        )

    keys = many * context / gpus
    inner, norm = many * ffn / gpus, many * hidden
    return [
        (layers, weight(hidden, (heads + 2 * kv_heads) * head_dim // gpus)),
        (layers, weight(heads * head_dim // gpus, hidden)),
        (layers, weight(hidden, 2 * ffn // gpus)),
        (layers, weight(ffn // gpus, hidden)),
        (layers, streamed(4.0 * keys * heads * head_dim, 2.0 * keys * kv_heads * head_dim, 0.0)),
        (layers, streamed(4.0 * inner, 2.0 * inner, inner)),
        (2 * layers, streamed(4.0 * norm, norm, norm)),
        (1, weight(hidden, vocab // gpus, STORED_BYTES)),
    ]
