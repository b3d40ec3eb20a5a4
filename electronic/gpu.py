"""Electronic compute units, GPUs and the vector lanes beside photonic cores: time and energy of an operator.

A matrix product on a GPU, step by step:

1. *Tiles.* C is cut into tiles, of which each streaming multiprocessor (unit) computes one at a time; the
   last wave of tiles may leave units idle. Tile and split of the inner dimension are those of least time
   (`product_work`). Products inside a fused attention kernel follow `_fused_attention_work` instead.
2. *Memory wall.* Arithmetic and memory traffic overlap; the longer one counts (roofline).
3. *Power limit.* The clock falls until the mean power of the kernel is within the limit (`slowdown`).
4. The launch of the kernel comes before, and its energy has three parts: operations, bytes moved, and what
   the chip draws while any kernel runs (`active_j`).

Element-wise operators run on vector lanes: steps 2 to 4 without tiles.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from types import MappingProxyType

from electronic.devices import GpuChip, VectorEngine, accelerator_names, check_accelerator, load_memory, table
from simulator.amounts import Matrices
from simulator.errors import ParameterError, check_range, nearest
from simulator.interfaces import Bound, Cost, Numerics
from simulator.node import NO_PENALTIES, Memory, StepPenalties, has_weight, library_calls
from simulator.operators import CHUNKED, Elementwise, Held, MatMul, Phase


@dataclass(frozen=True, kw_only=True)
class VectorUnit:
    """Vector lanes beside a memory; they run element-wise work and no products.

    Notes
    -----
    Time is a launch and then the longer of arithmetic and memory traffic (roofline). Lanes keep their clock:
    under a power limit their arithmetic pauses until the mean power of operations and bytes moved is within
    the limit.
    """

    name: str = "vector"
    """Name shown in tables and traces."""
    engine: VectorEngine
    """The lanes."""
    memory: Memory
    """The memory they stream from."""
    penalties: StepPenalties | None = None
    """Penalties that they pay within a step; None for none."""
    limit_w: float | None = None
    """Most power of operations, bytes moved and `VectorEngine.active_w` together; None for no limit."""

    @property
    def static_w(self) -> float:
        """Power drawn all the time, without the memory's."""
        return self.engine.static_w

    @property
    def area_m2(self) -> float:
        """Die area."""
        return self.engine.area_m2

    @property
    def price_usd(self) -> float:
        """Price with memory."""
        return self.engine.price_usd

    def accepts(self, operator: MatMul | Elementwise) -> bool:
        """Return whether the operator is element-wise."""
        return isinstance(operator, Elementwise)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one run.

        Raises
        ------
        ParameterError
            If handed a product.
        """
        if not isinstance(operator, Elementwise):
            msg = (
                f"vector unit '{self.name}' runs no products, got '{operator.name}'; place products on a GPU "
                "or a photonic core"
            )
            raise ParameterError(msg)
        return _vector_cost(self, operator)

    def numerics(self, phase: Phase) -> Numerics:
        """Refuse: there are no products to execute.

        Raises
        ------
        ParameterError
            Always.
        """
        msg = f"vector unit '{self.name}' runs no products, so none in {phase}; ask the unit that does"
        raise ParameterError(msg)


@lru_cache(maxsize=65536)
def _vector_cost(unit: VectorUnit, operator: Elementwise) -> Cost:
    """Return the cost of an element-wise operator on vector lanes."""
    engine, penalties = unit.engine, unit.penalties or NO_PENALTIES
    limit_w = math.inf if unit.limit_w is None else unit.limit_w
    moved_bytes = operator.read_bytes + operator.written_bytes
    energy = {"vector": operator.flops * engine.energy_j_per_flop, "hbm": unit.memory.energy_j(moved_bytes)}
    compute_s = max(operator.flops / engine.rate_flop_per_s, sum(energy.values()) / limit_w) * penalties.lag
    memory_s = unit.memory.mixed_time_s(moved_bytes)
    time_s = engine.launch_s + max(compute_s, memory_s)
    energy["vector active"] = active_j(engine.active_w, sum(energy.values()), time_s, limit_w=limit_w)
    return Cost(
        time_s=time_s,
        energy_j=MappingProxyType(energy),
        bound=_bound(engine.launch_s, compute_s, memory_s),
        host_s=penalties.work_issue_s(operator) if moved_bytes else 0.0,
    )


def _bound(launch_s: float, compute_s: float, memory_s: float) -> Bound:
    """Return the longest of launch, arithmetic and memory traffic."""
    if launch_s > max(compute_s, memory_s):
        return Bound.LAUNCH
    return Bound.MEMORY if memory_s > compute_s else Bound.COMPUTE


def load_vector(name: str) -> VectorUnit:
    """Return a vector unit from the table.

    Parameters
    ----------
    name : str
        One of `vector_names`.

    Raises
    ------
    ParameterError
        If there is no such unit.
    """
    check_accelerator(name, "vector")
    return VectorUnit(
        name=name, engine=table("vector").build(VectorEngine, name), memory=load_memory(name, "vector")
    )


def vector_names() -> tuple[str, ...]:
    """Return the vector units of the table."""
    return accelerator_names("vector")


def active_j(active_w: float, drawn_j: float, time_s: float, *, limit_w: float) -> float:
    """Return the energy of clocks, instruction issue, caches and leakage while kernels run.

    Parameters
    ----------
    active_w : float
        Power of these, beyond idle power (`GpuChip.active_w`).
    drawn_j : float
        Energy of operations and bytes moved.
    time_s : float
        Time that the kernels take.
    limit_w : float
        Most power beyond idle: the energy is at most what operations and bytes moved leave of
        ``limit_w * time_s``.
    """
    return min(active_w * time_s, max(0.0, limit_w * time_s - drawn_j))


STEPS = 40
"""Halvings of the interval in which the clock's factor is sought."""


def slowdown(*, compute_s: float, least_s: float, compute_j: float, other_j: float, limit_w: float) -> float:
    """Return the factor, at least 1, by which the clock must fall to keep the mean power within a limit.

    Parameters
    ----------
    compute_s : float
        Time of the units at the full clock, which stretches with the factor.
    least_s : float
        Time of the memory traffic, which the clock does not change.
    compute_j : float
        Energy of the units at the full clock; it falls with the square of the factor, as the voltage does.
    other_j : float
        Energy of the bytes moved, which the clock does not change.
    limit_w : float
        Most mean power beyond idle.

    Notes
    -----
    Finds x >= 1 with ``compute_j / x^2 + other_j = limit_w max(compute_s x, least_s)``, by bisection. Voltage
    is taken proportional to the clock (P = C V^2 f; Rabaey, Digital Integrated Circuits, section 5.5), so
    that dynamic power falls with the cube of the clock, and the time of work that is limited by power alone
    goes with the cube root of 1 / `limit_w`.
    """

    def excess_j(factor: float) -> float:
        return compute_j / factor**2 + other_j - limit_w * max(compute_s * factor, least_s)

    if compute_s == 0.0 or excess_j(1.0) <= 0.0:
        return 1.0
    low, high = 1.0, 2.0
    while excess_j(high) > 0.0:
        low, high = high, 2.0 * high
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if excess_j(middle) > 0.0 else (low, middle)
    return high


TILES = ((128, 256, 0), (256, 128, 0), (128, 128, 1), (128, 64, 2), (64, 128, 2), (64, 64, 3))
"""Tiles of C in tuned libraries: rows, columns, and halvings of the area from the largest tile."""
SPLITS = (1, 2, 4, 8, 16)
"""Parts into which the inner dimension may be split, to fill the chip with a product of few tiles."""
PARTIAL_SUM_BYTES = 4
"""Partial sums of a split product are kept in single precision."""
NIBBLE_BYTES = 0.5
"""Bytes of an element of 4 bits."""
ALIGNED_BYTES = 16
"""Widest load of a thread; rows that do not start at a multiple of it are loaded in narrower pieces."""
ATTENTION_ROWS = 128
"""Queries that one unit takes at a time in a fused attention kernel (FlashAttention-2)."""
HEAD_STEP = 32
"""Head sizes are padded to multiples of this in a fused attention kernel (FlashAttention-2)."""
USUAL_HEAD = 128
"""Head size for which a chip's share of the peak in fused attention is stated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelWork:
    """Arithmetic and memory traffic of one operator on a chip at its full clock."""

    compute_s: float
    """Time of the units: arithmetic, and the stores that do not hide behind it."""
    memory_s: float
    """Time of the memory traffic, which runs beside the arithmetic."""
    moved_bytes: float
    """Memory traffic."""
    launches: int = 1
    """Kernels started; 0 for the later products of a fused attention kernel."""
    calls: int = 1
    """Library calls that the host makes."""

    @property
    def time_s(self) -> float:
        """Time at the full clock, without launch (roofline)."""
        return max(self.compute_s, self.memory_s)


def product_work(chip: GpuChip, memory: Memory, product: MatMul) -> KernelWork:
    """Return arithmetic and traffic of a product with the tile and the split of least time.

    Parameters
    ----------
    chip : GpuChip
        The die.
    memory : Memory
        Its memory.
    product : MatMul
        The product; operands of one byte run at the 8-bit rate, of less at the 4-bit rate, of four at
        the rate for single precision.

    Notes
    -----
    A split product writes and reads partial sums in single precision, `split` for each element of C.
    """
    if product.on_chip and product.role not in CHUNKED:
        return _fused_attention_work(chip, memory, product)
    outputs = product.batch * product.m * product.n
    result_bytes = 0.0 if Matrices.C in product.on_chip else outputs * product.moved_per_result
    traffic_bytes = _traffic_bytes(chip, product)
    aligned_share = alignment_share(chip, product)
    best = KernelWork(compute_s=math.inf, memory_s=math.inf, moved_bytes=traffic_bytes)
    for split in SPLITS:
        partial_bytes = 2 * split * outputs * PARTIAL_SUM_BYTES if split > 1 else 0
        store_s = memory.time_s(result_bytes) * (1.0 - chip.store_overlap) + memory.time_s(partial_bytes)
        candidate = KernelWork(
            compute_s=_mainloop_s(chip, product, split) / aligned_share + store_s,
            memory_s=memory.time_s(traffic_bytes + partial_bytes),
            moved_bytes=traffic_bytes + partial_bytes,
            calls=library_calls(product),
        )
        if candidate.time_s < best.time_s:
            best = candidate
    return best


def alignment_share(chip: GpuChip, product: MatMul) -> float:
    """Return the share of its rate that a product keeps if its rows are not aligned, 0 to 1.

    Notes
    -----
    Rows in memory of a multiple of 16 bytes keep all. Otherwise one large product keeps
    `misaligned_efficiency`, and a batched product of activations, for which libraries had no such kernel,
    `misaligned_batch_efficiency`. Rows are as long as k and n; in products of activations and in weight
    gradients one operand is read transposed, so that there are rows of m elements too.
    """
    step = max(1, int(ALIGNED_BYTES // packed_bytes(product.element_bytes)))
    row_sizes = (product.k, product.n, product.m) if product.held is Held.NONE else (product.k, product.n)
    if all(size % step == 0 for size in row_sizes):
        return 1.0
    batched = product.batch > 1 and product.held is Held.NONE and product.phase is not Phase.GRAD_WEIGHT
    return chip.misaligned_batch_efficiency if batched else chip.misaligned_efficiency


def unit_flop_per_s(chip: GpuChip, product: MatMul) -> float:
    """Return the rate of one unit at the full clock for a product's element size, before any loss.

    Notes
    -----
    Operations of a sparse product are counted as if it were dense, as vendors quote their sparse peaks.
    """
    faster = chip.sparse_ratio if product.sparse else 1.0
    return _flops_per_cycle(chip, product.element_bytes) * chip.clock_hz * faster


def packed_bytes(element_bytes: float) -> float:
    """Return the bytes of an element without its share of a block's scale."""
    return NIBBLE_BYTES if element_bytes < 1 else math.floor(element_bytes)


def _flops_per_cycle(chip: GpuChip, element_bytes: float) -> float:
    """Return the operations of one unit in a cycle on operands of `element_bytes`."""
    if element_bytes < 1 and not chip.nibble_flops_per_cycle:
        msg = f"{chip.name} has no units for operands of 4 bits (nvfp4); try precision=fp8, or b200 or b300"
        raise ParameterError(msg)
    if 1 < element_bytes < 2 and not chip.block_efficiency:
        msg = (
            f"{chip.name} has no units for scales of 32 elements (mxfp8); try precision=fp8, or b200 or b300"
        )
        raise ParameterError(msg)
    rates = {NIBBLE_BYTES: chip.nibble_flops_per_cycle, 1: chip.byte_flops_per_cycle, 2: chip.flops_per_cycle}
    return rates.get(packed_bytes(element_bytes), chip.single_flops_per_cycle)


def _mainloop_s(chip: GpuChip, product: MatMul, split: int) -> float:
    """Return the time of the multiply-accumulates with the tile of least time, stores not counted."""
    packed = packed_bytes(product.element_bytes)
    step = max(1, int(chip.k_step * 2 // packed))
    depth = math.ceil(math.ceil(product.k / split) / step) * step
    rate = unit_flop_per_s(chip, product) * chip.matmul_efficiency
    rate *= chip.byte_efficiency if packed <= 1 else 1.0
    rate *= chip.block_efficiency if 1 == packed < product.element_bytes else 1.0
    best_s = math.inf
    for rows, columns, halvings in TILES:
        tiles = split * math.ceil(product.m / rows) * math.ceil(product.n / columns)
        waves = _waves(chip, product, tiles)
        tile_s = 2 * rows * columns * depth / (rate * chip.halved_tile_efficiency**halvings)
        best_s = min(best_s, waves * (tile_s + chip.fill_s))
    return best_s


def _waves(chip: GpuChip, product: MatMul, tiles: int) -> int:
    """Return the waves, in each of which every unit computes one tile, of a batch with `tiles` per product.

    A batch of activations' products is one kernel. The products of several experts are a kernel each, of
    which only `GpuChip.experts_together` fill the chip together.
    """
    if not has_weight(product):
        return math.ceil(product.batch * tiles / chip.units)
    together = min(product.batch, chip.experts_together)
    rounds, rest = divmod(product.batch, together)
    return rounds * math.ceil(together * tiles / chip.units) + math.ceil(rest * tiles / chip.units)


def _traffic_bytes(chip: GpuChip, product: MatMul) -> float:
    """Return the bytes a product moves to and from memory, given the cache (Hong and Kung's bound)."""
    cached = math.sqrt(chip.l2_bytes / product.element_bytes)
    wider = product.moved_per_result - product.element_bytes
    least = product.flops / cached * product.element_bytes + product.batch * product.m * product.n * wider
    return max(float(product.operand_bytes), least)


def attention_share(chip: GpuChip, head: int, *, forward: bool) -> float:
    """Return the share of the peak that the products of a fused attention kernel reach, 0 to 1.

    Parameters
    ----------
    chip : GpuChip
        The die.
    head : int
        Elements of a head, padded.
    forward : bool
        Whether the kernel is that of the forward pass.

    Notes
    -----
    A score takes one exponential and, in products, 4 d operations forward and 10 d backward for heads of size
    d. Units for exponentials are as fast in a new chip as in an old one, so that they weigh the more the
    faster products are and the shorter heads (Shah et al. 2024, arXiv:2407.08608, section 3.1: half of the
    products' time on an H100 with d = 128). Of the time per score that the share with heads of `USUAL_HEAD`
    tells, the exponential's stays and all else goes with d: heads of 64 over those of 128 have 0.63 on a B200
    and 0.94 on an H20 (measured: 0.66, FlashAttention, pull request 2605; 0.98, its issue 1310). Longer heads
    gain nothing, for their tiles are smaller (cuDNN: heads of 192 and 256 stand with those of 128); arrays
    that pad heads to their own depth do.
    """
    share = chip.attention_efficiency if forward else chip.attention_backward_efficiency
    products_cycles = (4 if forward else 10) * USUAL_HEAD / (chip.flops_per_cycle * share)
    softmax = min(1.0, 1.0 / (chip.exponentials_per_cycle * products_cycles))
    longest = min(head, max(USUAL_HEAD, chip.k_step))
    return share / (1.0 + softmax * (USUAL_HEAD / longest - 1.0))


def _fused_attention_work(chip: GpuChip, memory: Memory, product: MatMul) -> KernelWork:
    """Return arithmetic and traffic of one product inside a fused attention kernel.

    Units take blocks of `ATTENTION_ROWS` queries. Besides its products a block takes, once per kernel, the
    time to load queries, start the pipeline, mask the tiles at the ends of its keys and write the result:
    counted with the kernel's first product, the one that is a library call. Under a causal mask the longest
    block is twice the mean, without one the last wave is seldom full, so that the last unit ends about one
    mean block late.
    """
    sizes = sorted((product.m, product.k, product.n))
    step = chip.k_step if chip.k_step >= USUAL_HEAD else HEAD_STEP  # arrays as deep as heads take whole ones
    head = math.ceil(sizes[0] / step) * step
    blocks = product.batch * math.ceil(sizes[2] / ATTENTION_ROWS)
    forward = product.phase is Phase.FORWARD
    rate = unit_flop_per_s(chip, product) * attention_share(chip, head, forward=forward)
    block_s = 2 * ATTENTION_ROWS * head * sizes[1] / rate
    moved = float(product.operand_bytes)
    calls = library_calls(product)
    if calls:
        block_s += chip.attention_fill_s if forward else chip.attention_backward_fill_s
    return KernelWork(
        compute_s=(max(blocks / chip.units, 1.0) + 1.0) * block_s,
        memory_s=memory.time_s(moved),
        moved_bytes=moved,
        launches=calls,
        calls=calls,
    )


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU with its memory.

    Notes
    -----
    *Time of a product.* Tiles of C, `units` at a time, in whole waves with a pipeline fill each; the inner
    dimension padded to `k_step`; tile and split of the inner dimension chosen for the least time, as a tuned
    library does; the part of writing C that is not hidden (`store_overlap`) after the main loop; rows that
    are not aligned at a lower rate. The whole is at least as long as its memory traffic takes: the operands
    or ``2 b m n k / sqrt(S)`` elements, whichever is more, for a cache of S elements [1]_. Products of a
    recurrence's chunks are such products, less what stays on chip. Those inside a fused attention kernel run
    at that kernel's share of the peak, and an element-wise operator that moves no bytes is part of such a
    kernel and takes no time.

    *Power.* An operation takes `energy_j_per_flop` at the full clock. Where that would exceed the power
    limit, the clock falls until the limit is kept (`slowdown`), so a product that leaves units idle in its
    last wave is throttled less, and one set of constants serves a chip at any power limit. Operands of half
    the width take half the energy. Vector operations at their peak draw the limit with which the chip is
    sold, an upper bound. While a kernel runs, the chip draws `active_w` besides, as far as the limit leaves
    it (`active_j`).

    *Within a step.* Unless `alone`, a product takes longer than in a benchmark
    (`GpuChip.in_situ_efficiency`); so it draws less power, and is throttled less. Everything goes at the pace
    of the slowest chip, waits for its host and draws idle power (`simulator.node`).

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
    """Number of chips that wait for each other; the slowest of them sets the pace."""
    alone: bool = False
    """Whether kernels run alone, as in a benchmark, rather than within a training step."""
    penalised: bool = True
    """Whether it pays the penalties of a step (`simulator.node.StepPenalties`), idle power among them."""

    def __post_init__(self) -> None:
        check_range(self, "slowest_of", low=1)
        if not self.chip.tdp_w > self.chip.idle_w + self.memory.static_w:
            msg = (
                f"Gpu '{self.name}': tdp_w ({self.chip.tdp_w:g}) must exceed idle_w ({self.chip.idle_w:g}) "
                f"plus the memory's static_w ({self.memory.static_w:g}); raise the one or lower the others"
            )
            raise ParameterError(msg)

    @cached_property
    def penalties(self) -> StepPenalties:
        """Penalties that it pays within a step."""
        if not self.penalised:
            return StepPenalties()
        return StepPenalties(
            host_operator_s=self.chip.host_operator_s,
            host_launch_s=self.chip.host_launch_s,
            in_situ_efficiency=1.0 if self.alone else self.chip.in_situ_efficiency,
            collective_share=self.chip.collective_share,
            clock_spread=self.chip.clock_spread,
            slowest_of=self.slowest_of,
            idle_w=self.chip.idle_w,
        )

    @property
    def peak_flop_per_s(self) -> float:
        """Dense bf16 peak."""
        return self.peak_flop_per_s_of(element_bytes=2)

    def peak_flop_per_s_of(self, element_bytes: float) -> float:
        """Return the dense peak of products whose operands have elements of `element_bytes`."""
        return self.chip.units * _flops_per_cycle(self.chip, element_bytes) * self.chip.clock_hz

    @property
    def vector_flop_per_s(self) -> float:
        """Single-precision peak of the vector lanes."""
        return self.chip.units * self.chip.vector_flops_per_cycle * self.chip.clock_hz

    @property
    def static_w(self) -> float:
        """Idle power, without the memory's."""
        return self.penalties.idle_w

    @property
    def dynamic_w(self) -> float:
        """Most power of kernels, memory included: the limit less idle power."""
        return self.chip.tdp_w - self.static_w - self.memory.static_w

    @property
    def vector_energy_j_per_flop(self) -> float:
        """Energy of one vector operation at the full clock, the same under a lower power limit."""
        sold = load_gpu(self.name).chip if self.name in gpu_names() else self.chip
        return (sold.tdp_w - self.static_w - self.memory.static_w) / self.vector_flop_per_s

    @property
    def area_m2(self) -> float:
        """Die area."""
        return self.chip.area_m2

    @property
    def price_usd(self) -> float:
        """Price with memory."""
        return self.chip.price_usd

    def power_w(self, drawn_j: float, time_s: float) -> float:
        """Return the mean power of the board, memory included, while it runs kernels all the time.

        Parameters
        ----------
        drawn_j : float
            Energy of their operations and of the bytes that they move.
        time_s : float
            Time that they take.
        """
        more_j = active_j(self.chip.active_w, drawn_j, time_s, limit_w=self.dynamic_w)
        return self.static_w + self.memory.static_w + (drawn_j + more_j) / time_s

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
    prefixes = [name for name in gpu_names() if plain.startswith(name)]
    if not prefixes:
        msg = f"no GPU is called '{label}'; {nearest(plain, gpu_names(), noun='GPU')}"
        raise ParameterError(msg)
    return max(prefixes, key=len)


@lru_cache(maxsize=65536)
def _matmul_cost(gpu: Gpu, product: MatMul) -> Cost:
    """Return the cost of a product with the tile and split of least time, at the clock of the power limit."""
    chip = gpu.chip
    work = product_work(chip, gpu.memory, product)
    # An operation on half as wide operands takes half the energy, as half the peak power per rate shows.
    relative_j = chip.flops_per_cycle * chip.clock_hz / unit_flop_per_s(chip, product)
    if product.element_bytes < 1:  # units for such operands alone may be more than the width accounts for
        relative_j = max(relative_j, packed_bytes(product.element_bytes) / 2)
    compute_j = product.flops * chip.energy_j_per_flop * relative_j
    compute_s = gpu.penalties.in_situ_s(work.compute_s, product)
    return _kernel_cost(gpu, replace(work, compute_s=compute_s), compute_j)


@lru_cache(maxsize=65536)
def _elementwise_cost(gpu: Gpu, operator: Elementwise) -> Cost:
    """Return the cost of an element-wise operator.

    One that moves no bytes is part of a product's kernel: it is not launched, and that kernel's share of the
    peak tells its time unless its exponentials are counted.
    """
    moved_bytes = operator.read_bytes + operator.written_bytes
    compute_j = operator.flops * gpu.vector_energy_j_per_flop
    if not moved_bytes and not operator.exponentials:
        return Cost(
            time_s=0.0, energy_j=MappingProxyType({"compute": compute_j, "hbm": 0.0, "gpu active": 0.0})
        )
    exponentials_per_s = gpu.chip.exponentials_per_cycle * gpu.chip.units * gpu.chip.clock_hz
    work = KernelWork(
        compute_s=operator.flops / gpu.vector_flop_per_s + operator.exponentials / exponentials_per_s,
        memory_s=gpu.memory.mixed_time_s(moved_bytes),
        moved_bytes=moved_bytes,
        launches=operator.issued + operator.kernels if moved_bytes else 0,
    )
    host_s = gpu.penalties.work_issue_s(operator) if moved_bytes else 0.0
    return replace(_kernel_cost(gpu, work, compute_j), host_s=host_s)


def _kernel_cost(gpu: Gpu, work: KernelWork, compute_j: float) -> Cost:
    """Return the cost of a kernel with its launch, the clock lowered until the power limit is kept.

    Memory traffic that alone would draw more than the limit is slowed to it.
    """
    limit_w, hbm_j = gpu.dynamic_w, gpu.memory.energy_j(work.moved_bytes)
    memory_s = max(work.memory_s, hbm_j / limit_w)
    factor = slowdown(
        compute_s=work.compute_s, least_s=memory_s, compute_j=compute_j, other_j=hbm_j, limit_w=limit_w
    )
    compute_s = work.compute_s * factor * gpu.penalties.lag
    launch_s = gpu.chip.launch_s * work.launches
    time_s = launch_s + max(compute_s, memory_s)
    energy = {"compute": compute_j / factor**2, "hbm": hbm_j}
    energy["gpu active"] = active_j(gpu.chip.active_w, sum(energy.values()), time_s, limit_w=limit_w)
    return Cost(
        time_s=time_s,
        energy_j=MappingProxyType(energy),
        bound=_bound(launch_s, compute_s, memory_s),
        host_s=gpu.penalties.issue_s(work.calls),
    )
