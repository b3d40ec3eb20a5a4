"""How long a GPU's units and memory work on a product at the full clock: tiles, waves, alignment."""

from __future__ import annotations

import math
from dataclasses import dataclass

from electronic.devices import GpuChip
from heliograph.memory import Memory
from heliograph.operators import Held, MatMul, Phase

TILES = ((128, 256, 0), (256, 128, 0), (128, 128, 1), (128, 64, 2), (64, 128, 2), (64, 64, 3))
"""Tiles of C that one unit computes in tuned libraries: rows, columns, how often halved."""
SPLITS = (1, 2, 4, 8, 16)
"""Ways to split the inner dimension over units, so that a product with few tiles still fills the chip."""
PARTIAL_SUM_BYTES = 4
"""Partial sums of a split product are kept in single precision."""
ACCUMULATED_BYTES = 8
"""Bytes per element of a weight gradient added to a single-precision sum: read and written (Megatron-LM)."""
ALIGNED_BYTES = 16
"""Widest load of a thread; rows that do not start on such a boundary are loaded in narrower pieces."""
EXPERT_STREAMS = 4
"""Streams on which the products of several experts run beside each other (Transformer Engine, GroupedLinear:
a library call for each expert, dealt to four streams in turn)."""
ATTENTION_ROWS = 128
"""Queries that one unit takes at a time in a fused attention kernel (FlashAttention-2)."""
HEAD_STEP = 32
"""Head sizes are padded to multiples of this in a fused attention kernel (FlashAttention-2)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What one product asks of a chip at its full clock."""

    compute_s: float
    """Time of the units, with what of storing is not hidden."""
    memory_s: float
    """Time of the memory traffic."""
    moved_bytes: float
    """Memory traffic."""
    launches: int = 1
    """Kernels started; none for a later part of a fused one."""
    calls: int = 1
    """Library calls that the host makes."""

    @property
    def time_s(self) -> float:
        """Time of whichever takes longer."""
        return max(self.compute_s, self.memory_s)


def product_work(chip: GpuChip, memory: Memory, product: MatMul) -> Work:
    """Return what a product asks of a chip with the best tile and split.

    Parameters
    ----------
    chip : GpuChip
        The die.
    memory : Memory
        Its memory.
    product : MatMul
        The product; operands of one byte run at the 8-bit rate, of four at the rate for single precision.
    """
    if product.on_chip:
        return _fused(chip, memory, product)
    operands = _traffic_bytes(chip, product)
    outputs = product.batch * product.m * product.n
    stored = outputs * output_bytes(product)
    traffic = operands + stored - outputs * product.element_bytes
    share = alignment_share(chip, product)
    calls = product.batch if weighted(product) else 1
    best = Work(compute_s=math.inf, memory_s=math.inf, moved_bytes=traffic)
    for split in SPLITS:
        partial = 2 * split * outputs * PARTIAL_SUM_BYTES if split > 1 else 0
        written_s = memory.time_s(stored) * (1.0 - chip.store_overlap) + memory.time_s(partial)
        candidate = Work(
            compute_s=_mainloop_s(chip, product, split) / share + written_s,
            memory_s=memory.time_s(traffic + partial),
            moved_bytes=traffic + partial,
            calls=calls,
        )
        if candidate.time_s < best.time_s:
            best = candidate
    return best


def output_bytes(product: MatMul) -> int:
    """Return the bytes that an element of C moves: weight gradients are summed in single precision."""
    return ACCUMULATED_BYTES if product.phase is Phase.GRAD_WEIGHT else product.element_bytes


def alignment_share(chip: GpuChip, product: MatMul) -> float:
    """Return the share of its rate that a product keeps with the alignment of its rows.

    Notes
    -----
    Rows of a multiple of 16 bytes keep all. Otherwise one large product keeps `misaligned_efficiency`, and a
    batched product of activations, for which libraries had no such kernel, `misaligned_batch_efficiency`.
    Rows of activations' products and weight gradients lie along m too, for one operand is read transposed.
    """
    step = max(1, ALIGNED_BYTES // product.element_bytes)
    along = (product.k, product.n, product.m) if product.held is Held.NONE else (product.k, product.n)
    if all(size % step == 0 for size in along):
        return 1.0
    batched = product.batch > 1 and product.held is Held.NONE and product.phase is not Phase.GRAD_WEIGHT
    return chip.misaligned_batch_efficiency if batched else chip.misaligned_efficiency


def unit_flop_per_s(chip: GpuChip, product: MatMul) -> float:
    """Return the rate of one unit at the full clock for a product's element size, before any loss.

    Notes
    -----
    Operations of a sparse product are counted as if it were dense, as vendors quote their sparse peaks.
    """
    rates = {1: chip.byte_flops_per_cycle, 2: chip.flops_per_cycle}
    faster = chip.sparse_ratio if product.sparse else 1.0
    return rates.get(product.element_bytes, chip.single_flops_per_cycle) * chip.clock_hz * faster


def _mainloop_s(chip: GpuChip, product: MatMul, split: int) -> float:
    """Return the time of the multiply-accumulates alone, with the best tile."""
    step = max(1, chip.k_step * 2 // product.element_bytes)
    depth = math.ceil(math.ceil(product.k / split) / step) * step
    rate = unit_flop_per_s(chip, product) * chip.matmul_efficiency
    rate *= chip.byte_efficiency if product.element_bytes == 1 else 1.0
    best_s = math.inf
    for rows, columns, halvings in TILES:
        tiles = split * math.ceil(product.m / rows) * math.ceil(product.n / columns)
        waves = _waves(chip, product, tiles)
        tile_s = 2 * rows * columns * depth / (rate * chip.halved_tile_efficiency**halvings)
        best_s = min(best_s, waves * (tile_s + chip.fill_s))
    return best_s


def _waves(chip: GpuChip, product: MatMul, tiles: int) -> int:
    """Return how often the units take a tile each, of `tiles` a product.

    Notes
    -----
    Products of activations are one kernel. Products with weights of several experts are a kernel each, on
    `EXPERT_STREAMS` streams: the tiles of so many kernels fill the chip together, not those of all.
    """
    if not weighted(product):
        return math.ceil(product.batch * tiles / chip.units)
    together = min(product.batch, EXPERT_STREAMS)
    rounds, left = divmod(product.batch, together)
    return rounds * math.ceil(together * tiles / chip.units) + math.ceil(left * tiles / chip.units)


def weighted(product: MatMul) -> bool:
    """Return whether a product has a weight or its gradient, not activations alone."""
    return product.held is not Held.NONE or product.phase is Phase.GRAD_WEIGHT


def _traffic_bytes(chip: GpuChip, product: MatMul) -> float:
    """Return the bytes a product moves to and from memory, given the cache (Hong and Kung's bound)."""
    cached = math.sqrt(chip.l2_bytes / product.element_bytes)
    return max(float(product.operand_bytes), product.flops / cached * product.element_bytes)


def _fused(chip: GpuChip, memory: Memory, product: MatMul) -> Work:
    """Return what one product inside a fused attention kernel asks; only the first of a kernel is launched.

    Notes
    -----
    Units take blocks of `ATTENTION_ROWS` queries. Under a causal mask the longest block is twice the mean,
    without one the last wave is seldom full, so that the last unit ends about one mean block late.
    """
    sizes = sorted((product.m, product.k, product.n))
    head = math.ceil(sizes[0] / HEAD_STEP) * HEAD_STEP
    blocks = product.batch * math.ceil(sizes[2] / ATTENTION_ROWS)
    forward = product.phase is Phase.FORWARD
    share = chip.attention_efficiency if forward else chip.attention_backward_efficiency
    rate = unit_flop_per_s(chip, product) * share
    block_s = 2 * ATTENTION_ROWS * head * sizes[1] / rate
    moved = float(product.operand_bytes)
    first = product.on_chip == "c"
    return Work(
        compute_s=(max(blocks / chip.units, 1.0) + 1.0) * block_s,
        memory_s=memory.time_s(moved),
        moved_bytes=moved,
        launches=int(first),
        calls=int(first),
    )
