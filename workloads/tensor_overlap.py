"""Tensor-parallel traffic beside the products it feeds: all-gathers and reduce-scatters cut into shards."""

from __future__ import annotations

from dataclasses import replace

from heliograph.collectives import Algorithm
from heliograph.operators import Collective, CollectiveKind, Elementwise, Held, MatMul, Overlapped, Phase
from workloads.plan import Parallelism
from workloads.transformer import Item


def overlapped(items: tuple[Item, ...], plan: Parallelism) -> tuple[Item, ...]:
    """Return a block's operators with every tensor-parallel collective beside a product, where one can be.

    Parameters
    ----------
    items : tuple
        Operators of one pass through one block, each standing once.
    plan : Parallelism
        The plan; with `Parallelism.overlap_tensor` false the items come back as they are.

    Notes
    -----
    - An all-gather whose result a product multiplies: the ring hands shards on while the shard before is
      multiplied; the rank's own needs none.
    - A product whose result is reduce-scattered: shards are sent on as they are made, and the partial results
      that arrive are added up at the end.
    - A reduce-scatter after a weight gradient, which it does not need, travels beside it whole.

    A product of tp shards runs as tp products of m/tp rows, and costs what the unit takes for those. Grouped
    products of experts stay as they are, as in Transformer Engine. Not charged: multiprocessors that a
    communication kernel takes from the product beside it.

    References
    ----------
    Wang et al., "Overlap communication with dependent computation via decomposition in large deep learning
    models", ASPLOS 2023; NVIDIA Transformer Engine, `ub_overlap_ag`, `ub_overlap_rs` and
    `ub_bulk_wgrad`; PyTorch asynchronous tensor parallelism.
    """
    if not plan.overlap_tensor:
        return items
    done: list[Item] = []
    left = list(items)
    while left:
        taken = _gather_first(left, plan) or _scatter_last(left, plan)
        if taken:
            count, made = taken
            done += made
            del left[:count]
        else:
            done.append(left.pop(0))
    return tuple(done)


def _gather_first(items: list[Item], plan: Parallelism) -> tuple[int, list[Item]] | None:
    """Return how many items an all-gather, casts of what it brings and their product are, and what for."""
    if not _is(items[0], CollectiveKind.ALL_GATHER):
        return None
    place = 1
    while place < len(items) and items[place][0].name.endswith(".cast"):
        place += 1
    if place == len(items) or not _cuttable(items[place], plan):
        return None
    return place + 1, [*items[1:place], (_ring(items[place], items[0], plan), 1)]


def _scatter_last(items: list[Item], plan: Parallelism) -> tuple[int, list[Item]] | None:
    """Return the items of a product and the reduce-scatter after it, and what stands for them."""
    if len(items) < 2 or not _is(items[1], CollectiveKind.REDUCE_SCATTER):
        return None
    product, scatter = items[0][0], items[1][0]
    if not isinstance(product, MatMul) or not isinstance(scatter, Collective) or product.batch > 1:
        return None
    if product.phase is Phase.GRAD_WEIGHT:
        return 2, [(Overlapped(product=product, pieces=1, alone=0, collective=scatter), 1)]
    if not _cuttable(items[0], plan):
        return None
    shard = scatter.payload_bytes / plan.tp
    summed = Elementwise(
        name=f"{scatter.name}.sum",
        layer=scatter.layer,
        phase=scatter.phase,
        flops=(plan.tp - 1) * shard / plan.precision.element_bytes,
        read_bytes=plan.tp * shard,
        written_bytes=shard,
    )
    return 2, [(_ring(items[0], items[1], plan), 1), (summed, 1)]


def _is(item: Item, kind: CollectiveKind) -> bool:
    return isinstance(item[0], Collective) and item[0].kind is kind and item[0].axis == "tp"


def _cuttable(item: Item, plan: Parallelism) -> bool:
    product = item[0]
    return (
        isinstance(product, MatMul)
        and product.batch == 1
        and product.held is Held.B
        and product.m % plan.tp == 0
    )


def _ring(product: Item, collective: Item, plan: Parallelism) -> Overlapped:
    """Return a product in shards beside the ring that brings them or takes them away."""
    whole, moved = product[0], collective[0]
    assert isinstance(whole, MatMul)  # noqa: S101 - narrows the type
    assert isinstance(moved, Collective)  # noqa: S101 - narrows the type
    return Overlapped(
        product=replace(whole, m=whole.m // plan.tp),
        pieces=plan.tp,
        alone=1,
        collective=replace(moved, algorithm=str(Algorithm.RING)),
    )
