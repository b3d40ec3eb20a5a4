"""Cards of a node that carry what leaves it: those on the destination's rail, or others where it is down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optical.fabrics.circuits import Circuits
from simulator.interfaces import Flows
from simulator.topology.scale_up import ScaleUp


@dataclass(frozen=True, kw_only=True, eq=False)
class RailRoutes:
    """Ends of flows between nodes: where they leave one node and arrive at the other, on one rail."""

    carriers: np.ndarray
    """Endpoint in the source's node whose lanes send, shape [F]."""
    landings: np.ndarray
    """Endpoint in the destination's node whose lanes receive, shape [F]."""


def rail_routes(scale_up: ScaleUp, flows: Flows, circuits: Circuits | None = None) -> RailRoutes:
    """Return the rail that each flow takes.

    Parameters
    ----------
    scale_up : ScaleUp
        The domain inside a node, over which a source reaches the other cards of its node.
    flows : Flows
        Flows between any endpoints.
    circuits : Circuits, optional
        Present circuits, with the ports that are down; without them all work.

    Notes
    -----
    Traffic leaves by the card on the destination's rail, as NCCL's PXN sends it ("Doubling all2all
    performance with NCCL 2.12", 2022). Where no lane works at both ends there, or its circuits stay dark and
    `Circuits.relays` lets others help, it takes another rail and crosses the destination's node as well: a
    rail that is lit now before one that could be, and the source's own before others. Sources without one of
    their own spread over the rest. A flow that no rail can take keeps its own, and so waits.
    """
    size = scale_up.size
    carriers = scale_up.node_of(flows.sources) * size + scale_up.rail_of(flows.destinations)
    own = RailRoutes(carriers=carriers, landings=flows.destinations)
    if circuits is None or not circuits.failed.size:
        return own
    works = circuits.works
    stuck = scale_up.off_node(flows)
    stuck &= ~(circuits.lit[carriers] == flows.destinations[:, None]).any(axis=1)
    if not circuits.relays:
        stuck &= ~(works[carriers] & works[flows.destinations]).any(axis=1)
    if not stuck.any():
        return own
    rails = np.arange(size)
    out = scale_up.node_of(flows.sources[stuck])[:, None] * size + rails
    into = scale_up.node_of(flows.destinations[stuck])[:, None] * size + rails
    lit = (circuits.lit[out] == into[:, :, None]).any(axis=2)
    usable = (works[out] & works[into]).any(axis=2)
    usable[circuits.relays & usable[np.arange(len(usable)), scale_up.rail_of(flows.destinations[stuck])]] = (
        False
    )
    choices = np.where(lit.any(axis=1)[:, None], lit, usable)
    rail, found = _chosen(choices, scale_up.rail_of(flows.sources[stuck]))
    place, line = np.flatnonzero(stuck)[found], np.flatnonzero(found)
    carriers, landings = own.carriers.copy(), own.landings.copy()
    carriers[place], landings[place] = out[line, rail[found]], into[line, rail[found]]
    return RailRoutes(carriers=carriers, landings=landings)


def _chosen(choices: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rail of each flow, its own if that is a choice [F, rails], and whether it has any."""
    count = choices.sum(axis=1)
    nth = own % np.maximum(count, 1)
    rail = (choices.cumsum(axis=1) > nth[:, None]).argmax(axis=1)
    return np.where(choices[np.arange(len(own)), own], own, rail), count > 0
