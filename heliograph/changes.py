"""Changes of circuits that happened during a step, and how they look on its time line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heliograph.layout import RankLayout
from heliograph.trace import Span, Stream


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of circuits that happened."""

    start_s: float
    """When the ports began to move."""
    end_s: float
    """When light passed again."""
    axis: str
    """Axis of parallelism that asked for it."""
    sources: np.ndarray
    """Endpoints whose traffic asked for it, shape [F]."""
    energy_j: float
    """Energy of moving."""


def circuit_spans(changes: list[Change], layout: RankLayout) -> list[Span]:
    """Return the time that ports moved, for each class whose traffic asked for it.

    Parameters
    ----------
    changes : list of Change
        What moved.
    layout : RankLayout
        Where the classes stand.
    """
    return [
        Span(
            rank_class=int(rank_class),
            stream=Stream.CIRCUITS,
            name=f"circuits to {change.axis}",
            start_s=change.start_s,
            end_s=change.end_s,
        )
        for change in changes
        for rank_class in layout.classes_at(change.sources)
    ]
