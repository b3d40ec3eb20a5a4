"""The operators of every pass through a part of a stage, worked out once for all stages and microbatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from simulator.operators import Collective, Phase
from workloads.layers.retrieval import RetrievalParts
from workloads.layers.tensor_grid import on_grid, on_one_row, overlapped
from workloads.layers.transformer import (
    Item,
    backward_embedding,
    backward_head,
    backward_layer,
    backward_steps,
    forward_embedding,
    forward_head,
    forward_layer,
    forward_steps,
    ring_layer,
)
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import Pass
from workloads.plan.choices import Recompute
from workloads.plan.plan import Share
from workloads.step.sharding import StagePart

Ways = dict[Pass, tuple[Item, ...]]
"""Operators by kind of pass."""


class _Block:
    """Operators of one kind of block: its own, and what ring attention adds."""

    def __init__(self, config: TransformerConfig, share: Share, *, overlap_tensor: bool) -> None:
        row = on_one_row(share)
        own = _directions(
            on_grid(forward_layer(config, row), config, share),
            on_grid(backward_layer(config, row), config, share),
        )
        ahead, forward_ring = ring_layer(config, share, own[Pass.FORWARD], forward=True)
        back, backward_ring = ring_layer(config, share, own[Pass.BACKWARD], forward=False)
        self.own = _beside(own, share) if overlap_tensor else own
        self.others = _directions(ahead, back)
        self.traffic: dict[Pass, tuple[Collective, ...]] = {
            Pass.FORWARD: forward_ring,
            Pass.BACKWARD: backward_ring,
            Pass.INPUT: backward_ring,
            Pass.WEIGHT: (),
        }


class Passes:
    """Operators of any part of a model under a share, in any direction.

    Parameters
    ----------
    config, share : TransformerConfig, Share
        The model, and a rank's share under a plan that `workloads.plan.rules.check` accepts.
    overlap_tensor : bool
        Whether traffic of tensor ranks travels beside the products that it feeds.
    """

    def __init__(self, config: TransformerConfig, share: Share, *, overlap_tensor: bool) -> None:
        self._block = _Block(config.unbounded, share, overlap_tensor=overlap_tensor)
        keeping = share.with_(recompute=Recompute.NONE, recompute_share=1.0)
        partly = share.recompute.recompute_share < 1.0
        self._kept = _Block(config, keeping, overlap_tensor=overlap_tensor) if partly else self._block
        windows = config.windowed_among(0, config.layers)
        self._windowed = (
            _Block(config.windowed, share, overlap_tensor=overlap_tensor) if windows else self._block
        )
        self._dense = (
            _Block(config.dense, share, overlap_tensor=overlap_tensor) if config.dense_layers else self._block
        )
        self._patterns = share.experts.expert_patterns
        row = on_one_row(share)
        self._embedding = _directions(
            on_grid(forward_embedding(config, row), config, share),
            on_grid(backward_embedding(config, row), config, share),
        )
        self._head = _directions(
            on_grid(forward_head(config, row), config, share),
            on_grid(backward_head(config, row), config, share),
        )
        self._cross, self._encoder = _retrieval(config, share, overlap_tensor=overlap_tensor)
        self._known: dict[tuple[StagePart, Pass], tuple[Item, ...]] = {}
        self._rings: dict[tuple[StagePart, Pass], tuple[tuple[Item, ...], tuple[Collective, ...]]] = {}

    def of(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return a part's operators in a direction; identical blocks become repeats."""
        found = self._known.get((part, direction))
        if found is None:
            found = self._known[part, direction] = self._built(part, direction)
        return found

    def one_by_one(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return a part's operators in a direction in the order in which its blocks run."""
        first = self._embedding[direction] if part.embedding else ()
        last = self._head[direction] if part.head else ()
        blocks = self._in_order(part, direction)
        return (*first, *blocks, *last) if direction is Pass.FORWARD else (*last, *blocks, *first)

    def _in_order(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return the operators of a part's blocks one block after the other, each with its own pattern."""
        narrow = [part.windowed * (place + 1) // part.layers for place in range(part.layers)]
        kinds = [
            self._dense
            if place < part.dense
            else (self._windowed if narrow[place] > (narrow[place - 1] if place else 0) else self._block)
            for place in range(part.layers)
        ]
        if part.kept:
            kinds = [self._block] * (part.layers - part.kept) + [self._kept] * part.kept
        places = range(part.layers) if direction is Pass.FORWARD else reversed(range(part.layers))
        return tuple(
            item
            for place in places
            for item in _patterned(kinds[place].own[direction], (part.pattern + place) % self._patterns)
        )

    def ring(self, part: StagePart, direction: Pass) -> tuple[tuple[Item, ...], tuple[Collective, ...]]:
        """Return a part's attention to other ranks' keys, and the traffic of one block beside it."""
        found = self._rings.get((part, direction))
        if found is None:
            others = self._blocks(part, direction, lambda block: block.others)
            found = others, self._block.traffic[direction] if others else ()
            self._rings[part, direction] = found
        return found

    def _blocks(
        self, part: StagePart, direction: Pass, ways_of: Callable[[_Block], Ways]
    ) -> tuple[Item, ...]:
        rest = part.layers - part.dense - part.windowed - part.kept
        kinds = [
            (self._dense, part.dense),
            (self._windowed, part.windowed),
            (self._block, rest),
            (self._kept, part.kept),
        ]
        ordered = kinds if direction is Pass.FORWARD else kinds[::-1]
        return tuple(
            (one, count * blocks)
            for block, blocks in ordered
            if blocks
            for one, count in ways_of(block)[direction]
        )

    def _built(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        if self._patterns == 1:
            blocks = self._blocks(part, direction, lambda block: block.own)
        else:
            blocks = self._in_order(part, direction)
        first = self._embedding[direction] if part.embedding else ()
        last = self._head[direction] if part.head else ()
        if part.encodes:
            blocks = (*blocks, *self._encoder[direction])
        if part.retrieving:
            blocks = (*blocks, *((one, count * part.retrieving) for one, count in self._cross[direction]))
        if direction is Pass.FORWARD:
            return (*first, *blocks, *last)
        return (*last, *blocks, *first)


def _retrieval(config: TransformerConfig, share: Share, *, overlap_tensor: bool) -> tuple[Ways, Ways]:
    """Return the operators of one cross-attention to neighbours, and of their encoder."""
    if config.retrieval is None:
        return {}, {}
    parts = RetrievalParts(config, share, config.retrieval)
    cross, encoder = (
        _directions(forward_steps(steps, share), backward_steps(steps, share))
        for steps in (parts.cross(), parts.encoder())
    )
    return (_beside(cross, share), _beside(encoder, share)) if overlap_tensor else (cross, encoder)


def _patterned(items: tuple[Item, ...], pattern: int) -> tuple[Item, ...]:
    """Return a block's operators with its uneven exchanges after a pattern."""
    if not pattern:
        return items
    return tuple(
        (replace(one, skew=replace(one.skew, pattern=pattern)), count)
        if isinstance(one, Collective) and one.skew is not None
        else (one, count)
        for one, count in items
    )


def _beside(ways: Ways, share: Share) -> Ways:
    """Return operators with the traffic of tensor ranks beside the products that it feeds."""
    width = share.precision.element_bytes
    return {direction: overlapped(items, share.axes, width) for direction, items in ways.items()}


def _directions(forward: tuple[Item, ...], backward: tuple[Item, ...]) -> Ways:
    """Return the operators of every kind of pass; the split of a backward pass loses none."""
    weights = tuple(item for item in backward if item[0].phase is Phase.GRAD_WEIGHT)
    inputs = tuple(item for item in backward if item[0].phase is not Phase.GRAD_WEIGHT)
    return {Pass.FORWARD: forward, Pass.BACKWARD: backward, Pass.INPUT: inputs, Pass.WEIGHT: weights}
