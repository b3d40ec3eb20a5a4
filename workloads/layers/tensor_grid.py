"""Tensor parallelism on a grid (SUMMA over rows and columns of ranks), and with its traffic overlapped.

Overlapped all-gathers and reduce-scatters are cut into shards that travel beside the products they feed.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.collectives.algorithms import Algorithm
from simulator.layout import Axis
from simulator.operators import Collective, CollectiveKind, Elementwise, Held, MatMul, Overlapped, Phase, Role
from workloads.layers.parts import NORMS
from workloads.layers.transformer import Item
from workloads.models.architecture import Norm, TransformerConfig
from workloads.plan.parts import Axes, TensorGrid
from workloads.plan.plan import Share


def overlapped(items: tuple[Item, ...], axes: Axes, element_bytes: int) -> tuple[Item, ...]:
    """Return a block's operators with every tensor-parallel collective beside a product, where one can be.

    Parameters
    ----------
    items : tuple
        Operators of one pass through one block, each standing once.
    axes : Axes
        Ranks along each axis.
    element_bytes : int
        Bytes of a stored element.

    Notes
    -----
    - An all-gather whose result a product multiplies: the ring hands shards on while the shard before is
      multiplied; the rank's own needs none.
    - A product whose result is reduce-scattered: shards are sent on as they are made, and the partial results
      that arrive are added up at the end.
    - A reduce-scatter after a weight gradient, which it does not need, travels beside it whole.

    A product of tp shards runs as tp products of m/tp rows, and costs what the unit takes for those. Grouped
    products of experts stay as they are, as in Transformer Engine. Traffic takes no share of the rate of the
    product beside it: 236 published steps that ran so are met without (`docs/validation_training.md`).

    References
    ----------
    Wang et al., "Overlap communication with dependent computation via decomposition in large deep learning
    models", ASPLOS 2023; NVIDIA Transformer Engine, `ub_overlap_ag`, `ub_overlap_rs` and
    `ub_bulk_wgrad`; PyTorch asynchronous tensor parallelism.
    """
    result: list[Item] = []
    left = list(items)
    while left:
        replaced = _gather_first(left, axes) or _scatter_last(left, axes, element_bytes)
        if replaced:
            count, replacement = replaced
            result += replacement
            del left[:count]
        else:
            result.append(left.pop(0))
    return tuple(result)


def _is_cast(item: Item) -> bool:
    """Return whether an item is the cast of a product's operand."""
    return isinstance(item[0], Elementwise) and item[0].casts is not Role.OTHER


def _gather_first(items: list[Item], axes: Axes) -> tuple[int, list[Item]] | None:
    """Return the overlapped form of items that begin with an all-gather for a product.

    Returns
    -------
    tuple of int and list, or None
        Number of items that it replaces, the all-gather, casts of its result and the product, and the
        replacement; None if the items do not begin so.
    """
    if not _is(items[0], CollectiveKind.ALL_GATHER):
        return None
    place = 1
    while place < len(items) and _is_cast(items[place]):
        place += 1
    if place == len(items) or not _cuttable(items[place], axes):
        return None
    return place + 1, [*items[1:place], (_ring(items[place], items[0], axes), 1)]


def _scatter_last(items: list[Item], axes: Axes, element_bytes: int) -> tuple[int, list[Item]] | None:
    """Return the overlapped form of items that begin with a product and the reduce-scatter of its result.

    Returns
    -------
    tuple of int and list, or None
        As `_gather_first`.
    """
    if len(items) < 2 or not _is(items[1], CollectiveKind.REDUCE_SCATTER):
        return None
    product, scatter = items[0][0], items[1][0]
    if not isinstance(product, MatMul) or not isinstance(scatter, Collective) or product.batch > 1:
        return None
    if product.phase is Phase.GRAD_WEIGHT:
        return 2, [(Overlapped(product=product, pieces=1, alone=0, collective=scatter), 1)]
    if not _cuttable(items[0], axes):
        return None
    shard = scatter.payload_bytes / axes.tp
    summed = Elementwise(
        name=f"{scatter.name}.sum",
        phase=scatter.phase,
        flops=(axes.tp - 1) * shard / element_bytes,
        read_bytes=axes.tp * shard,
        written_bytes=shard,
    )
    return 2, [(_ring(items[0], items[1], axes), 1), (summed, 1)]


def _is(item: Item, kind: CollectiveKind) -> bool:
    """Return whether an item is a collective of tensor ranks of a kind."""
    return isinstance(item[0], Collective) and item[0].kind is kind and item[0].axis == Axis.TENSOR


def _cuttable(item: Item, axes: Axes) -> bool:
    """Return whether an item is a product with a weight whose rows the ranks can share evenly."""
    product = item[0]
    return (
        isinstance(product, MatMul)
        and product.batch == 1
        and product.held is Held.B
        and product.m % axes.tp == 0
    )


def _ring(product: Item, collective: Item, axes: Axes) -> Overlapped:
    """Return a product in shards beside the ring that gathers its operand or scatters its result."""
    whole, moved = product[0], collective[0]
    assert isinstance(whole, MatMul)  # noqa: S101 - narrows the type
    assert isinstance(moved, Collective)  # noqa: S101 - narrows the type
    return Overlapped(
        product=replace(whole, m=whole.m // axes.tp),
        pieces=axes.tp,
        alone=1,
        collective=replace(moved, algorithm=str(Algorithm.RING)),
    )


CUT_BY_ROWS = frozenset({Role.ATTENTION_OUTPUT, Role.MLP_DOWN})
"""Products whose weight is cut along its inner dimension over a row of ranks (arXiv:1909.08053)."""
STATISTICS = {Norm.LAYER: 2, Norm.SCALE: 2, Norm.RMS: 1}
"""Sums that a norm needs of every token, forward and again backward."""
STATISTIC_BYTES = 4
"""Bytes of such a sum (fp32)."""


def on_one_row(share: Share) -> Share:
    """Return the share of one row of a grid as if it were all: tp its columns, its part of the batch.

    Notes
    -----
    Heads and inner widths are cut over columns as Megatron-LM cuts them over all ranks; sequences are cut
    over rows and depth (Optimus, arXiv:2104.05343, section 3.2; Tesseract, arXiv:2105.14500, section 3.1).
    Norms, activations and attention are therefore those of such a plan; products are not (`on_grid`).
    """
    if share.axes.tensor_grid is TensorGrid.LINE:
        return share
    return share.with_(
        tp=share.axes.columns,
        micro_batch=share.batch.micro_batch // share.axes.rows,
        vocabulary_multiple=share.axes.vocabulary_multiple * share.axes.rows,
        tensor_grid=TensorGrid.LINE,
        tensor_depth=1,
    )


def on_grid(items: tuple[Item, ...], config: TransformerConfig, share: Share) -> tuple[Item, ...]:
    """Return the operators of a rank on a tensor grid, derived from the operators of one row of the grid.

    Parameters
    ----------
    items : tuple
        Operators under `on_one_row`, one pass through a block, an embedding or a head.
    config, share : TransformerConfig, Share
        The model, and the plan with the grid.

    Notes
    -----
    On q x q ranks each product takes q steps. C = A B: a step broadcasts a block of A along every row and one
    of B along every column. dA = dC B^T broadcasts B along columns and reduces dA along rows; dB = A^T dC
    broadcasts A along rows and reduces dB along columns, and with depth sums it from grid to grid. A norm
    sums its statistics along a row. Left out: reading C again to add to it in every step but the first, and
    the few bytes of the gradients of norms and biases, which every row holds.

    References
    ----------
    van de Geijn and Watts, Concurrency 9 (1997) 255: SUMMA. Xu et al., arXiv:2104.05343, algorithms 1 to 3.
    Wang et al., arXiv:2105.14500, algorithms 3 and 4.
    """
    if share.axes.tensor_grid is TensorGrid.LINE:
        return items
    grid = _Grid(config, share)
    return tuple(item for one, count in items for item in grid.items(one, count))


Operation = MatMul | Elementwise | Collective | Overlapped
"""Operators of a run."""


def _part(one: Elementwise, ranks: int) -> Elementwise:
    """Return the part of element-wise work on each of some ranks."""
    return replace(
        one,
        flops=one.flops / ranks,
        read_bytes=one.read_bytes / ranks,
        written_bytes=one.written_bytes / ranks,
    )


class _Grid:
    """Derivation of a grid's operators from the operators of one of its rows."""

    def __init__(self, config: TransformerConfig, share: Share) -> None:
        self.config = config
        self.share = share
        self.row = on_one_row(share)
        self.side = share.axes.columns
        self.width = share.precision.element_bytes

    def items(self, one: Operation, count: int) -> list[Item]:
        """Return the items of the grid for a repeated operator; none for collectives of the row."""
        items: list[Item]
        match one:
            case MatMul() if one.held is Held.B or one.phase is Phase.GRAD_WEIGHT:
                items = self.product(one)
            case Elementwise() if one.role is Role.EMBEDDING_LOOKUP:
                items = self.lookup(one)
            case Elementwise() if one.role in NORMS:
                sums = STATISTICS[self.config.norm] * self.row.tokens * STATISTIC_BYTES
                items = [(one, 1), (self.move(one, CollectiveKind.ALL_REDUCE, Axis.ROW, sums), 1)]
            case Elementwise() if one.casts in CUT_BY_ROWS:
                # The cast of an output's gradient is cut over columns as well.
                items = [(_part(one, self.side if one.phase is Phase.GRAD_INPUT else 1), 1)]
            case Collective() if one.role is Role.HEAD_LOSS:
                items = [(replace(one, axis=Axis.ROW, size=self.side), 1)]
            case Collective() if one.axis == Axis.TENSOR:
                items = []
            case _:
                items = [(one, 1)]
        return [(each, times * count) for each, times in items]

    def product(self, one: MatMul) -> list[Item]:
        """Return the q steps of a product and their traffic."""
        side = self.side
        by_rows = one.role in CUT_BY_ROWS
        match one.phase:
            case Phase.FORWARD:
                step = replace(one, n=one.n // side) if by_rows else replace(one, k=one.k // side)
                a, b = step.m * step.k, step.k * step.n
                return [
                    (self.move(one, CollectiveKind.BROADCAST, Axis.ROW, a * one.element_bytes), side),
                    (self.move(one, CollectiveKind.BROADCAST, Axis.COLUMN, b * one.element_bytes), side),
                    (step, side),
                ]
            case Phase.GRAD_INPUT:
                step = replace(one, k=one.k // side) if by_rows else replace(one, n=one.n // side)
                b, c = step.k * step.n, step.m * step.n
                return [
                    (self.move(one, CollectiveKind.BROADCAST, Axis.COLUMN, b * one.element_bytes), side),
                    (step, side),
                    (self.move(one, CollectiveKind.REDUCE, Axis.ROW, c * self.width), side),
                ]
            case _:
                step = replace(one, n=one.n // side) if by_rows else replace(one, m=one.m // side)
                a, c = step.m * step.k, step.m * step.n
                return [
                    (self.move(one, CollectiveKind.BROADCAST, Axis.ROW, a * one.element_bytes), side),
                    (step, side),
                    (self.move(one, CollectiveKind.REDUCE, Axis.COLUMN, c * self.width), side),
                    *self.from_grid_to_grid(one, c),
                ]

    def lookup(self, one: Elementwise) -> list[Item]:
        """Return the look-up of a rank's columns of the embedding, whose rows its column of ranks holds."""
        part = _part(one, self.side)
        rows = self.share.axes.padded_vocabulary(self.config) // self.side
        block = rows * self.config.hidden // self.side
        if one.phase is Phase.FORWARD:
            return [
                (self.move(one, CollectiveKind.BROADCAST, Axis.COLUMN, block * self.width), self.side),
                (part, 1),
            ]
        reduced = self.move(one, CollectiveKind.REDUCE, Axis.COLUMN, block * self.width)
        return [(part, 1), (reduced, self.side), *self.from_grid_to_grid(one, block)]

    def from_grid_to_grid(self, one: MatMul | Elementwise, elements: int) -> list[Item]:
        """Return the sum of a block's gradient over the grids, which hold the same weights."""
        if self.share.axes.tensor_depth == 1:
            return []
        payload = elements * self.width
        return [(self.move(one, CollectiveKind.ALL_REDUCE, Axis.DEPTH, payload), 1)]

    def move(
        self, one: MatMul | Elementwise, kind: CollectiveKind, axis: str, payload_bytes: float
    ) -> Collective:
        """Return a collective on behalf of an operator."""
        return Collective(
            name=one.name,
            phase=one.phase,
            kind=kind,
            axis=axis,
            size=self.share.axes.tensor_depth if axis == Axis.DEPTH else self.side,
            payload_bytes=float(payload_bytes),
        )
