"""The operators of every pass through a part of a stage, worked out once for all stages and microbatches."""

from __future__ import annotations

from heliograph.operators import Collective, Phase
from workloads.architecture import TransformerConfig
from workloads.plan import Parallelism
from workloads.schedules import Pass
from workloads.sharding import StagePart
from workloads.transformer import (
    Item,
    backward_embedding,
    backward_head,
    backward_layer,
    forward_embedding,
    forward_head,
    forward_layer,
    ring_layer,
)


class Passes:
    """Operators of any part of a model under a plan, in any direction.

    Parameters
    ----------
    config, plan : TransformerConfig, Parallelism
        A pair that `workloads.rules.check` accepts.
    """

    def __init__(self, config: TransformerConfig, plan: Parallelism) -> None:
        self._layer = _directions(forward_layer(config, plan), backward_layer(config, plan))
        ahead, forward_ring = ring_layer(config, plan, self._layer[Pass.FORWARD], forward=True)
        back, backward_ring = ring_layer(config, plan, self._layer[Pass.BACKWARD], forward=False)
        self._others = _directions(ahead, back)
        self._ring = {
            Pass.FORWARD: forward_ring,
            Pass.BACKWARD: backward_ring,
            Pass.INPUT: backward_ring,
            Pass.WEIGHT: (),
        }
        self._embedding = _directions(forward_embedding(config, plan), backward_embedding(config, plan))
        self._head = _directions(forward_head(config, plan), backward_head(config, plan))
        self._known: dict[tuple[StagePart, Pass], tuple[Item, ...]] = {}

    def of(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return a part's operators in a direction; identical blocks become repeats."""
        found = self._known.get((part, direction))
        if found is None:
            found = self._known[part, direction] = self._built(part, direction)
        return found

    def ring(self, part: StagePart, direction: Pass) -> tuple[tuple[Item, ...], tuple[Collective, ...]]:
        """Return a part's attention to other ranks' keys, and the traffic of one block beside it."""
        layer = self._others[direction] if part.layers else ()
        others = tuple((one, count * part.layers) for one, count in layer)
        return others, self._ring[direction] if others else ()

    def _built(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        layer = self._layer[direction] if part.layers else ()
        blocks = tuple((operator, count * part.layers) for operator, count in layer)
        first = self._embedding[direction] if part.embedding else ()
        last = self._head[direction] if part.head else ()
        if direction is Pass.FORWARD:
            return (*first, *blocks, *last)
        return (*last, *blocks, *first)


def _directions(forward: tuple[Item, ...], backward: tuple[Item, ...]) -> dict[Pass, tuple[Item, ...]]:
    """Return the operators of every kind of pass; the split of a backward pass loses none."""
    weights = tuple(item for item in backward if item[0].phase is Phase.GRAD_WEIGHT)
    inputs = tuple(item for item in backward if item[0].phase is not Phase.GRAD_WEIGHT)
    return {Pass.FORWARD: forward, Pass.BACKWARD: backward, Pass.INPUT: inputs, Pass.WEIGHT: weights}
