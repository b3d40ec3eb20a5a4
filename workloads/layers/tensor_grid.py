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
    remaining = list(items)
    while remaining:
        replaced = _gather_first(remaining, axes) or _scatter_last(remaining, axes, element_bytes)
        if replaced:
            count, replacement = replaced
            result += replacement
            del remaining[:count]
        else:
            result.append(remaining.pop(0))
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
CUT_DIMS = {
    Phase.FORWARD: ("n", "k"),
    Phase.GRAD_INPUT: ("k", "n"),
    Phase.GRAD_WEIGHT: ("n", "m"),
}
"""Dimension of a product that the ranks of a row share, step by step: where the weight is `CUT_BY_ROWS`, and
where it is cut by columns."""
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
    return tuple(item for operator, count in items for item in grid.items(operator, count))


Operation = MatMul | Elementwise | Collective | Overlapped
"""Operators of a run."""


def _part(work: Elementwise, ranks: int) -> Elementwise:
    """Return the part of element-wise work on each of some ranks."""
    return replace(
        work,
        flops=work.flops / ranks,
        read_bytes=work.read_bytes / ranks,
        written_bytes=work.written_bytes / ranks,
    )


class _Grid:
    """Derivation of a grid's operators from the operators of one of its rows."""

    def __init__(self, config: TransformerConfig, share: Share) -> None:
        self.config = config
        self.share = share
        self.row = on_one_row(share)
        self.side = share.axes.columns
        self.width = share.precision.element_bytes

    def items(self, operator: Operation, count: int) -> list[Item]:
        """Return the items of the grid for a repeated operator; none for collectives of the row."""
        items: list[Item]
        match operator:
            case MatMul() if operator.held is Held.B or operator.phase is Phase.GRAD_WEIGHT:
                items = self.product(operator)
            case Elementwise() if operator.role is Role.EMBEDDING_LOOKUP:
                items = self.lookup(operator)
            case Elementwise() if operator.role in NORMS:
                sums = STATISTICS[self.config.norm] * self.row.tokens * STATISTIC_BYTES
                items = [(operator, 1), (self.move(operator, CollectiveKind.ALL_REDUCE, Axis.ROW, sums), 1)]
            case Elementwise() if operator.casts in CUT_BY_ROWS:
                # The cast of an output's gradient is cut over columns as well.
                items = [(_part(operator, self.side if operator.phase is Phase.GRAD_INPUT else 1), 1)]
            case Collective() if operator.role is Role.HEAD_LOSS:
                items = [(replace(operator, axis=Axis.ROW, size=self.side), 1)]
            case Collective() if operator.axis == Axis.TENSOR:
                items = []
            case _:
                items = [(operator, 1)]
        return [(each, times * count) for each, times in items]

    def product(self, product: MatMul) -> list[Item]:
        """Return the q steps of a product and their traffic."""
        by_rows, others = CUT_DIMS[product.phase]
        dim = by_rows if product.role in CUT_BY_ROWS else others
        step = replace(product, **{dim: getattr(product, dim) // self.side})
        a, b, c = step.m * step.k, step.k * step.n, step.m * step.n
        width = product.element_bytes
        rows_of_a = self.move(product, CollectiveKind.BROADCAST, Axis.ROW, a * width)
        columns_of_b = self.move(product, CollectiveKind.BROADCAST, Axis.COLUMN, b * width)
        steps: list[Operation]
        match product.phase:
            case Phase.FORWARD:
                steps = [rows_of_a, columns_of_b, step]
            case Phase.GRAD_INPUT:
                steps = [
                    columns_of_b,
                    step,
                    self.move(product, CollectiveKind.REDUCE, Axis.ROW, c * self.width),
                ]
            case _:
                steps = [
                    rows_of_a,
                    step,
                    self.move(product, CollectiveKind.REDUCE, Axis.COLUMN, c * self.width),
                ]
        whole = self.from_grid_to_grid(product, c) if product.phase is Phase.GRAD_WEIGHT else []
        return [*((operator, self.side) for operator in steps), *whole]

    def lookup(self, work: Elementwise) -> list[Item]:
        """Return the look-up of a rank's columns of the embedding, whose rows its column of ranks holds."""
        part = _part(work, self.side)
        rows = self.share.axes.padded_vocabulary(self.config) // self.side
        block = rows * self.config.hidden // self.side
        if work.phase is Phase.FORWARD:
            return [
                (self.move(work, CollectiveKind.BROADCAST, Axis.COLUMN, block * self.width), self.side),
                (part, 1),
            ]
        reduced = self.move(work, CollectiveKind.REDUCE, Axis.COLUMN, block * self.width)
        return [(part, 1), (reduced, self.side), *self.from_grid_to_grid(work, block)]

    def from_grid_to_grid(self, operator: MatMul | Elementwise, elements: int) -> list[Item]:
        """Return the sum of a block's gradient over the grids, which hold the same weights."""
        if self.share.axes.tensor_depth == 1:
            return []
        payload = elements * self.width
        return [(self.move(operator, CollectiveKind.ALL_REDUCE, Axis.DEPTH, payload), 1)]

    def move(
        self, operator: MatMul | Elementwise, kind: CollectiveKind, axis: str, payload_bytes: float
    ) -> Collective:
        """Return a collective on behalf of an operator."""
        return Collective(
            name=operator.name,
            phase=operator.phase,
            kind=kind,
            axis=axis,
            size=self.share.axes.tensor_depth if axis == Axis.DEPTH else self.side,
            payload_bytes=float(payload_bytes),
        )
