"""Lines of the collectives of many layouts on one fabric, each geometry of groups worked out once."""

from __future__ import annotations

import numpy as np

from heliograph.collective_lines import NOTHING, CollectiveLines, collective_lines, traffic_alone
from heliograph.demand import skewed_flows
from heliograph.errors import RouteError
from heliograph.interfaces import Fabric, Flows
from heliograph.layout import RankLayout
from heliograph.operators import Collective

PIPELINE = "pp"
"""Axis of the sends between stages."""


class LinePrices:
    """Prices of collectives on a fabric that carries one axis at a time.

    Parameters
    ----------
    fabric : Fabric
        What carries them; one with circuits sets all of them for the axis that is asked for.

    Notes
    -----
    Groups of equal size that stand alike, of classes that do, cost the same on every fabric here whose
    switches are alike; a class in the middle of the pipeline stands for all. On fabrics whose endpoints
    differ (dragonflies, graphs of a file) that is where an estimate may be wrong.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._known: dict[tuple[object, ...], CollectiveLines | None] = {}

    def lines(self, operator: Collective, layout: RankLayout) -> CollectiveLines | None:
        """Return the lines of a collective on a layout; None where the fabric cannot carry it.

        Parameters
        ----------
        operator : Collective
            What is done; its payload does not matter.
        layout : RankLayout
            Where the ranks stand.
        """
        if operator.size == 1:
            return NOTHING
        rank_class = max(0, min(layout.pp // 2, layout.pp - 2))
        members = layout.members(rank_class)
        near = layout.groups(operator.axis, rank_class)[0] if operator.axis != PIPELINE else members
        far = layout.members(rank_class + operator.shift) if operator.shift else near
        start = members[0] // self.fabric.node_size * self.fabric.node_size
        key = (
            operator.kind,
            operator.size,
            operator.two_level,
            operator.spread,
            operator.skew,
            operator.algorithm,
            operator.shift != 0 and layout.pp > 2,
            (near - start).tobytes(),
            (far - start).tobytes() if operator.shift else b"",
            (members - start).tobytes(),
        )
        if key not in self._known:
            self._known[key] = self._measured(operator, layout, rank_class)
        return self._known[key]

    def _measured(self, operator: Collective, layout: RankLayout, rank_class: int) -> CollectiveLines | None:
        try:
            traffic = traffic_alone(layout, self.fabric, self._demand(operator, layout, rank_class))
            return collective_lines(operator, traffic, rank_class)
        except RouteError:
            return None

    def _demand(
        self, operator: Collective, layout: RankLayout, rank_class: int
    ) -> dict[tuple[str, int, int], Flows]:
        """Return the traffic of one axis: a ring in every group, or sends both ways between all stages."""
        pairs: dict[tuple[str, int, int], tuple[np.ndarray, np.ndarray]] = {}
        if operator.shift:
            step = abs(operator.shift)
            for stage in range(layout.pp - step):
                near, far = layout.members(stage), layout.members(stage + step)
                pairs[operator.axis, stage, step] = near, far
                pairs[operator.axis, stage + step, -step] = far, near
        elif operator.skew is not None:
            groups = layout.groups(operator.axis, rank_class)
            out = operator.skew.turned() if operator.skew.returns else operator.skew
            return {(operator.axis, rank_class, 0): skewed_flows(groups, operator.axis, {out: 2.0})}
        else:
            groups = layout.groups(operator.axis, rank_class)
            pairs[operator.axis, rank_class, 0] = groups.ravel(), np.roll(groups, -1, axis=1).ravel()
        return {
            key: Flows(sources=sources, destinations=destinations, size_bytes=1.0, axis=operator.axis)
            for key, (sources, destinations) in pairs.items()
        }
