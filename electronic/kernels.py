"""Kernel times by name and shape, and the overhead of benchmarks' callers, beside published times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from electronic.devices import table
from electronic.fabrics.reductions import all_reduce_time_s
from electronic.gpu import Gpu, gpu_of, load_gpu
from simulator.checks import check_range
from simulator.errors import ParameterError, nearest
from simulator.operators import Elementwise, Held, MatMul, Phase
from simulator.units import to_si


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A program that times collectives from the host.

    Notes
    -----
    A process issues the kernels of its GPUs one after the other, and calls in a row overlap with what the
    GPUs still do: short collectives last as long as their issue, however few hops they take. Between events
    on an idle GPU, the host's way to the first kernel counts in full.

    References
    ----------
    nccl-tests, doc/PERFORMANCE.md (time over calls in a row) and issue 123 (one process with 2 to 8 A100).
    """

    name: str = "caller"
    """Name shown in tables."""
    issue_s: float
    """Time in which a process issues a collective to one of its GPUs."""
    exposed_s: float
    """Part of the measured time in which the GPUs wait for the host, once a call."""

    def __post_init__(self) -> None:
        check_range(self, "issue_s", "exposed_s")

    def measured_s(self, alone_s: float, gpus_per_process: int) -> float:
        """Return the time that the program prints for a collective.

        Parameters
        ----------
        alone_s : float
            Duration on the GPUs once all have begun.
        gpus_per_process : int
            GPUs that one process drives.
        """
        return self.exposed_s + max(alone_s, gpus_per_process * self.issue_s)


def load_caller(name: str) -> Caller:
    """Return a benchmark from the network table, e.g. ``"nccl-tests"``."""
    return table("network").build(Caller, name)


__all__ = ["all_reduce_time_s", "gpu_of", "kernel_time_s", "measured_s", "predicted_s"]

HOST_TIMED_S = to_si("time_s", 22.0, "us")
"""What a clock on the host adds to one kernel that it waits for: fitted on the smallest even-numbered
products of LLMCompass figure 5 (A100), which all take about 30 us."""
DTYPE_BYTES = MappingProxyType({"fp8": 1, "bf16": 2, "fp16": 2, "": 2, "tf32": 4, "fp32": 4})
"""Bytes of an operand's element by name; an empty name is bf16."""
ATTENTION_FORWARD, ATTENTION_BACKWARD = "sdp_fwd", "sdp_bwd"
"""Names of fused causal attention kernels."""


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
    """A causal attention kernel."""

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

    @property
    def square_flops(self) -> int:
        """Multiply-accumulates of both products over all s x s pairs, the mask not counted."""
        return self.batch * self.heads * self.sequence**2 * (self.query_dim + self.value_dim)

    def products(self, *, backward: bool) -> tuple[MatMul, ...]:
        """Return the products of the kernel, half of each hidden by the causal mask."""
        keys = (self.sequence + 1) // 2
        sizes = (self.query_dim, keys, self.value_dim)
        scores = self._product(Phase.FORWARD, sizes[0], sizes[1], "c")
        if not backward:
            return scores, self._product(Phase.FORWARD, sizes[1], sizes[2], "a")
        grad = Phase.GRAD_INPUT
        return (
            scores,
            self._product(grad, sizes[2], sizes[1], "c"),
            self._product(grad, sizes[1], sizes[2], "a"),
            self._product(grad, sizes[1], sizes[0], "a"),
            self._product(grad, sizes[1], sizes[0], "a"),
        )

    def _product(self, phase: Phase, k: int, n: int, on_chip: str) -> MatMul:
        return MatMul(
            name="attention",
            layer="block",
            phase=phase,
            batch=self.batch * self.heads,
            m=self.sequence,
            k=k,
            n=n,
            on_chip=on_chip,
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
    """Return how long one kernel takes on a GPU.

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
        Operands: one of `DTYPE_BYTES`. A product that sums into single precision has bf16 operands.
    note : str
        ``key=value`` pairs that say more: ``accumulate``, ``out_dtype``, ``main_grad_dtype``, ``stage``;
        for attention ``batch, seq_len, head_num, qk_head_dim, v_head_dim``.
    host_timed : bool
        Whether the time is that of a clock on the host that waits for the one kernel.

    Raises
    ------
    ParameterError
        If GPU, operation or type is unknown.
    """
    gpu = replace(load_gpu(gpu_of(gpu_name)), alone=True)
    fields = dict(re.findall(r"(\w+)=(\w+)", note))
    if op in ELEMENTWISE:
        one = gpu.cost(_elementwise(op, m * n * batch, _element_bytes(dtype)))
        return max(one.time_s, gpu.chip.host_launch_s)
    if op in {ATTENTION_FORWARD, ATTENTION_BACKWARD}:
        products = _attention(fields, m, n, k, batch).products(backward=op == ATTENTION_BACKWARD)
    elif op in {"matmul", "group_matmul"}:
        products = (_product(fields, m, n, k, batch=batch, dtype=dtype),)
    else:
        known = ("matmul", "group_matmul", ATTENTION_FORWARD, ATTENTION_BACKWARD, *ELEMENTWISE)
        msg = f"no kernel is called '{op}'; {nearest(op, known, noun='kernel')}"
        raise ParameterError(msg)
    calls = batch if op == "group_matmul" else 1
    run_s = max(sum(gpu.cost(one).time_s for one in products), gpu.chip.host_launch_s * calls)
    return run_s + (HOST_TIMED_S if host_timed else 0.0)


def measured_s(row: Mapping[str, str]) -> float:
    """Return the time that a row of kernel measurements states, or that its share of the peak implies.

    Parameters
    ----------
    row : mapping
        Columns ``gpu, op, m, n, k, batch, layout_or_note, time_ms, efficiency_vs_peak``.

    Notes
    -----
    Attention is counted over all s x s pairs, two products forward and five backward, as SimuMax does.
    """
    if row["time_ms"]:
        return to_si("time_s", float(row["time_ms"]), "ms")
    gpu: Gpu = load_gpu(gpu_of(row["gpu"]))
    if row["op"] in {ATTENTION_FORWARD, ATTENTION_BACKWARD}:
        shape = _attention(dict(re.findall(r"(\w+)=(\w+)", row["layout_or_note"])), *_sizes(row))
        flops = (2 if row["op"] == ATTENTION_FORWARD else 5) * shape.square_flops
    else:
        m, n, k, batch = _sizes(row)
        flops = 2 * m * n * k * batch
    return flops / (gpu.peak_flop_per_s * float(row["efficiency_vs_peak"]))


def predicted_s(row: Mapping[str, str]) -> float:
    """Return the predicted time of a row of kernel measurements (`measured_s`'s columns, and ``dtype``).

    A row that prints a time was measured by a clock on the host, one that prints a share of the peak from a
    long run of kernels, unless its note names ``events``.
    """
    waited = bool(row["time_ms"]) and "events" not in row["layout_or_note"]
    m, n, k, batch = _sizes(row)
    return kernel_time_s(
        row["gpu"], row["op"], m, n, k, batch, row["dtype"], row["layout_or_note"], host_timed=waited
    )


def _sizes(row: Mapping[str, str]) -> list[int]:
    return [int(row[name] or 1) for name in ("m", "n", "k", "batch")]


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
    return MatMul(
        name="product",
        layer="block",
        phase=Phase.GRAD_WEIGHT if sums else Phase.FORWARD,
        batch=batch,
        m=m,
        k=k,
        n=n,
        held=Held.NONE if sums else Held.B,
        element_bytes=2 if sums else _element_bytes(dtype),
    )


def _attention(fields: Mapping[str, str], m: int, n: int, k: int, batch: int) -> AttentionShape:
    return AttentionShape(
        batch=int(fields.get("batch", batch)),
        sequence=int(fields.get("seq_len", m)),
        heads=int(fields.get("head_num", n)),
        query_dim=int(fields.get("qk_head_dim", k)),
        value_dim=int(fields.get("v_head_dim", k)),
    )


def _elementwise(op: str, elements: int, element_bytes: int) -> Elementwise:
    kind = ELEMENTWISE[op]
    return Elementwise(
        name=op,
        layer="block",
        phase=Phase.FORWARD,
        flops=kind.flops * elements,
        read_bytes=kind.reads * elements * element_bytes,
        written_bytes=kind.writes * elements * element_bytes,
    )
