"""A GPU as a compute unit: tiles on multiprocessors, waves, the memory wall and the power limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from electronic.devices import GpuChip, accelerator_names, check_accelerator, load_memory, table
from heliograph.errors import ParameterError
from heliograph.interfaces import Bound, Cost, Numerics
from heliograph.memory import Memory
from heliograph.operators import Elementwise, MatMul, Phase

TILES = ((128, 256, 0), (256, 128, 0), (128, 128, 1), (128, 64, 2), (64, 128, 2))
"""Tiles of C that one unit computes in tuned libraries: rows, columns, how often halved."""
SPLITS = (1, 2, 4, 8, 16)
"""Ways to split the inner dimension over units, so that a product with few tiles still fills the chip."""
PARTIAL_SUM_BYTES = 4
"""Partial sums of a split product are kept in single precision."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU with its memory.

    Notes
    -----
    *Time of a product.* C is cut into tiles; `units` tiles run at a time, so the mainloop takes
    ``ceil(tiles / units)`` waves of full tiles with the inner dimension padded to `k_step`; tile and split of
    the inner dimension are chosen for the least time, as a tuned library does. What of writing C is not
    hidden (`store_overlap`) follows the mainloop. The whole is at least as long as its memory traffic takes,
    the operands or ``2 b m n k / sqrt(S)`` elements, whichever is more, for a cache of S elements [1]_, and
    at least as long as the power limit asks. A launch is added.

    *Energy.* One operation takes ``(tdp_w - idle_w - memory.static_w) / (peak * matmul_efficiency)``: a large
    product that keeps all units busy draws the power limit, which is what GPUs are seen to do. When memory
    traffic comes on top, the clock gives way (time is stretched), so power never exceeds the limit. Vector
    operations are priced by the same law against the vector peak, an upper bound.

    Not modelled: misaligned leading dimensions, sparsity, 8-bit rates, overlap of consecutive kernels.

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

    def __post_init__(self) -> None:
        if not self.chip.tdp_w > self.chip.idle_w + self.memory.static_w:
            msg = (
                f"Gpu '{self.name}': tdp_w ({self.chip.tdp_w:g}) must exceed idle_w ({self.chip.idle_w:g}) "
                f"plus the memory's static_w ({self.memory.static_w:g}); raise the one or lower the others"
            )
            raise ParameterError(msg)

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
        """Energy of one bf16 operation of a product."""
        return self.dynamic_w / (self.peak_flop_per_s * self.chip.matmul_efficiency)

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


@lru_cache(maxsize=65536)
def _matmul_cost(gpu: Gpu, product: MatMul) -> Cost:
    """Return the cost of a product with the best tile and split."""
    traffic = _traffic_bytes(gpu, product)
    output = product.batch * product.m * product.n
    stored = product.batch * product.elements_off_chip[2]
    work_s, moved_bytes, bound = math.inf, traffic, Bound.COMPUTE
    for split in SPLITS:
        moved = traffic + (2 * split * output * PARTIAL_SUM_BYTES if split > 1 else 0)
        written_s = gpu.memory.time_s(stored * product.element_bytes) * (1.0 - gpu.chip.store_overlap)
        summed_s = gpu.memory.time_s(moved - traffic)
        compute_s = _mainloop_s(gpu.chip, product, split) + written_s + summed_s
        memory_s = gpu.memory.time_s(moved)
        energy_j = product.flops * gpu.energy_j_per_flop + gpu.memory.energy_j(moved)
        candidate_s = max(compute_s, memory_s, energy_j / gpu.dynamic_w)
        if candidate_s < work_s:
            work_s, moved_bytes = candidate_s, moved
            bound = Bound.MEMORY if memory_s > compute_s else Bound.COMPUTE
    return _cost(gpu, work_s, product.flops * gpu.energy_j_per_flop, moved_bytes, bound)


def _mainloop_s(chip: GpuChip, product: MatMul, split: int) -> float:
    """Return the time of the multiply-accumulates alone, with the better tile."""
    depth = math.ceil(math.ceil(product.k / split) / chip.k_step) * chip.k_step
    rate = chip.flops_per_cycle * chip.clock_hz * chip.matmul_efficiency
    best_s = math.inf
    for rows, columns, halvings in TILES:
        tiles = product.batch * split * math.ceil(product.m / rows) * math.ceil(product.n / columns)
        waves = math.ceil(tiles / chip.units)
        share = chip.halved_tile_efficiency**halvings
        best_s = min(best_s, waves * 2 * rows * columns * depth / (rate * share))
    return best_s


def _traffic_bytes(gpu: Gpu, product: MatMul) -> float:
    """Return the bytes a product moves to and from memory, given the cache (Hong and Kung's bound)."""
    if product.on_chip:  # a fused kernel streams its other operands once
        return float(product.operand_bytes)
    cached = math.sqrt(gpu.chip.l2_bytes / product.element_bytes)
    return max(float(product.operand_bytes), product.flops / cached * product.element_bytes)


@lru_cache(maxsize=65536)
def _elementwise_cost(gpu: Gpu, operator: Elementwise) -> Cost:
    """Return the cost of work without a product."""
    moved = operator.read_bytes + operator.written_bytes
    energy_j = operator.flops * gpu.vector_energy_j_per_flop
    compute_s, memory_s = operator.flops / gpu.vector_flop_per_s, gpu.memory.time_s(moved)
    power_s = (energy_j + gpu.memory.energy_j(moved)) / gpu.dynamic_w
    bound = Bound.MEMORY if memory_s > compute_s else Bound.COMPUTE
    return _cost(gpu, max(compute_s, memory_s, power_s), energy_j, moved, bound)


def _cost(gpu: Gpu, work_s: float, compute_j: float, moved_bytes: float, bound: Bound) -> Cost:
    """Return the cost of a run with its launch."""
    return Cost(
        time_s=gpu.chip.launch_s + work_s,
        energy_j=MappingProxyType({"compute": compute_j, "hbm": gpu.memory.energy_j(moved_bytes)}),
        bound=Bound.LAUNCH if gpu.chip.launch_s > work_s else bound,
    )
