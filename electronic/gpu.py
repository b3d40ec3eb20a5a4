"""A GPU as a compute unit: tiles on multiprocessors, waves, the memory wall and the power limit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from statistics import NormalDist
from types import MappingProxyType

from electronic.devices import GpuChip, accelerator_names, check_accelerator, load_memory, table
from electronic.power import slowdown
from electronic.products import Work, product_work, unit_flop_per_s
from heliograph.checks import check_range
from heliograph.errors import ParameterError, nearest
from heliograph.interfaces import Bound, Cost, Numerics
from heliograph.memory import Memory
from heliograph.operators import Elementwise, MatMul, Phase

BLOM = 0.375
"""Plotting position for the expected order statistics of normal draws (Blom 1958, section 6.9)."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU with its memory.

    Notes
    -----
    *Time of a product.* See `electronic.products`: tiles of C, `units` at a time, in whole waves; the inner
    dimension padded to `k_step`; tile and split of the inner dimension chosen for the least time, as a tuned
    library does; a pipeline fill per wave; what of writing C is not hidden (`store_overlap`) after the main
    loop; rows that are not aligned at a lower rate. The whole is at least as long as its memory traffic
    takes: the operands or ``2 b m n k / sqrt(S)`` elements, whichever is more, for a cache of S elements
    [1]_. Products inside a fused attention kernel run at that kernel's share of the peak, and an element-wise
    operator that moves no bytes is part of such a kernel and takes no time.

    *Power.* An operation takes `energy_j_per_flop` at the full clock. Where that would exceed the power
    limit, the clock falls until the limit is kept (`electronic.power`), so a product that leaves units idle
    in its last wave is throttled less, and one set of constants serves a chip at any power limit. Operands of
    half the width take half the energy. Vector operations draw the limit at the vector peak, an upper bound.

    *Within a step.* Unless `alone`, products but fused attention run at `in_situ_efficiency` of their rate,
    before the clock gives way; and everything goes at the pace of the slowest of `slowest_of` chips.

    *Host.* `Cost.host_s` is the time to issue an operator, and each further library call of a product of
    several experts; it binds over a run of operators only, as the host runs ahead.

    *Sparsity.* Products with a weight pruned 2 of 4 run at `sparse_ratio` times the rate, with as much of the
    peak as dense ones and half the energy; what feeds them (`MatMul.operand_bytes`) and fills stays.

    Not modelled: overlap of consecutive kernels, seconds of full clock before a limit bites.

    References
    ----------
    .. [1] J.-W. Hong, H. T. Kung, "I/O complexity: the red-blue pebble game", STOC 1981.
    """

    name: str = "gpu"
    """Name shown in tables and traces."""
    chip: GpuChip
    """The die."""
    memory: Memory
    """Its memory."""
    slowest_of: int = 1
    """Chips that wait for each other: the slowest of so many sets the pace."""
    alone: bool = False
    """Whether kernels run one by one, as in a benchmark of kernels, rather than within a training step."""

    def __post_init__(self) -> None:
        check_range(self, "slowest_of", low=1)
        if not self.chip.tdp_w > self.chip.idle_w + self.memory.static_w:
            msg = (
                f"Gpu '{self.name}': tdp_w ({self.chip.tdp_w:g}) must exceed idle_w ({self.chip.idle_w:g}) "
                f"plus the memory's static_w ({self.memory.static_w:g}); raise the one or lower the others"
            )
            raise ParameterError(msg)

    @property
    def lag(self) -> float:
        """Factor by which the slowest of `slowest_of` chips is expected to be slower than the mean one."""
        return 1.0 + self.chip.clock_spread * expected_maximum(self.slowest_of)

    @property
    def peak_flop_per_s(self) -> float:
        """Dense bf16 peak."""
        return self.chip.units * self.chip.flops_per_cycle * self.chip.clock_hz

    @property
    def vector_flop_per_s(self) -> float:
        """Single-precision peak of the vector lanes."""
        return self.chip.units * self.chip.vector_flops_per_cycle * self.chip.clock_hz

    @property
    def static_w(self) -> float:
        """Idle power, without the memory's."""
        return self.chip.idle_w

    @property
    def dynamic_w(self) -> float:
        """Power that work may add before the limit is reached."""
        return self.chip.tdp_w - self.chip.idle_w - self.memory.static_w

    @property
    def energy_j_per_flop(self) -> float:
        """Energy of one bf16 operation of a product at the full clock."""
        return self.chip.energy_j_per_flop

    @property
    def vector_energy_j_per_flop(self) -> float:
        """Energy of one vector operation."""
        return self.dynamic_w / self.vector_flop_per_s

    @property
    def area_m2(self) -> float:
        """Die area."""
        return self.chip.area_m2

    @property
    def price_usd(self) -> float:
        """Price with memory."""
        return self.chip.price_usd

    def accepts(self, operator: MatMul | Elementwise) -> bool:
        """Return True: a GPU runs everything."""
        return isinstance(operator, MatMul | Elementwise)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one run."""
        return (
            _matmul_cost(self, operator)
            if isinstance(operator, MatMul)
            else _elementwise_cost(self, operator)
        )

    def numerics(self, phase: Phase) -> Numerics:
        """Return bf16 products with single-precision accumulation, in every phase."""
        from electronic.numerics import BfloatNumerics  # noqa: PLC0415

        return BfloatNumerics()


@cache
def load_gpu(name: str) -> Gpu:
    """Return a GPU from the table.

    Parameters
    ----------
    name : str
        One of `gpu_names`.

    Raises
    ------
    ParameterError
        If there is no such GPU.
    """
    check_accelerator(name, "gpus")
    return Gpu(name=name, chip=table("gpus").build(GpuChip, name), memory=load_memory(name, "gpus"))


def gpu_names() -> tuple[str, ...]:
    """Return the GPUs of the table."""
    return accelerator_names("gpus")


def gpu_of(label: str) -> str:
    """Return the GPU of the table that a label names, e.g. ``a100-pcie`` for ``"a100_pcie"``.

    Raises
    ------
    ParameterError
        If no GPU's name begins the label.
    """
    plain = re.sub(r"[_ ]+", "-", label.strip().lower())
    found = [name for name in gpu_names() if plain.startswith(name)]
    if not found:
        msg = f"no GPU is called '{label}'; {nearest(plain, gpu_names(), noun='GPU')}"
        raise ParameterError(msg)
    return max(found, key=len)


@lru_cache(maxsize=65536)
def _matmul_cost(gpu: Gpu, product: MatMul) -> Cost:
    """Return the cost of a product with the best tile and split, at the clock that the power limit leaves."""
    work = product_work(gpu.chip, gpu.memory, product)
    # An operation on half as wide operands takes half the energy, as half the peak power per rate shows.
    width = gpu.chip.flops_per_cycle * gpu.chip.clock_hz / unit_flop_per_s(gpu.chip, product)
    compute_j = product.flops * gpu.energy_j_per_flop * width
    # A fused attention kernel keeps its operands on chip, whatever ran before it.
    company = 1.0 if gpu.alone or product.on_chip else gpu.chip.in_situ_efficiency
    return _cost(gpu, replace(work, compute_s=work.compute_s / company), compute_j)


@lru_cache(maxsize=65536)
def _elementwise_cost(gpu: Gpu, operator: Elementwise) -> Cost:
    """Return the cost of work without a product; what moves nothing is part of the kernel before it."""
    moved = operator.read_bytes + operator.written_bytes
    work = Work(
        compute_s=operator.flops / gpu.vector_flop_per_s,
        memory_s=gpu.memory.mixed_time_s(moved),
        moved_bytes=moved,
        launches=operator.issued,
    )
    compute_j = operator.flops * gpu.vector_energy_j_per_flop
    if not moved:
        return Cost(time_s=0.0, energy_j=MappingProxyType({"compute": compute_j, "hbm": 0.0}))
    return replace(_cost(gpu, work, compute_j), host_s=gpu.chip.host_operator_s * operator.issued)


@cache
def expected_maximum(count: int) -> float:
    """Return the expected largest of so many standard normal draws, in standard deviations (Blom 1958)."""
    return NormalDist().inv_cdf((count - BLOM) / (count - 2 * BLOM + 1))


def _cost(gpu: Gpu, work: Work, compute_j: float) -> Cost:
    """Return the cost of a run with its launch, the clock lowered until the power limit is kept."""
    hbm_j = gpu.memory.energy_j(work.moved_bytes)
    factor = slowdown(
        compute_s=work.compute_s,
        least_s=work.memory_s,
        compute_j=compute_j,
        other_j=hbm_j,
        limit_w=gpu.dynamic_w,
    )
    compute_s = work.compute_s * factor * gpu.lag
    work_s = max(compute_s, work.memory_s)
    time_s = gpu.chip.launch_s * work.launches + work_s
    bound = Bound.MEMORY if work.memory_s > compute_s else Bound.COMPUTE
    return Cost(
        time_s=time_s,
        energy_j=MappingProxyType({"compute": compute_j / factor**2, "hbm": hbm_j}),
        bound=Bound.LAUNCH if time_s - work_s > work_s else bound,
        host_s=gpu.chip.host_operator_s * min(work.calls, 1)
        + gpu.chip.host_launch_s * max(work.calls - 1, 0),
    )
