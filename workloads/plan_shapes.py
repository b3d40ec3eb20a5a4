"""What one microbatch costs one rank by the shape of its share: work, launches and traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from heliograph.collective_lines import CollectiveLines
from heliograph.mapping import Node
from heliograph.operators import Collective, Overlapped
from workloads.architecture import TransformerConfig
from workloads.choices import Schedule
from workloads.passes import Passes
from workloads.plan import Parallelism
from workloads.schedules import Pass
from workloads.sharding import StagePart
from workloads.transformer import Item

SHAPE = ("tp", "cp", "ep", "micro_batch", "recompute")
"""Columns that shape a rank's share of a microbatch."""
DIRECTIONS = (Pass.FORWARD, Pass.BACKWARD, Pass.WEIGHT)
"""Passes that are priced; what a backward pass takes beyond its weights' is that of its inputs."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Operators of one part of a stage in one direction, as numbers."""

    time_s: float = 0.0
    """Time of all products and element-wise work."""
    host_s: float = 0.0
    """Time the host needs to issue them."""
    energy_j: float = 0.0
    """Dynamic energy of one rank."""
    collectives: tuple[tuple[Collective, float], ...] = ()
    """Collectives that the pass waits for, and how often."""
    overlapped: tuple[tuple[Collective, float, float], ...] = ()
    """Collectives beside a product: how long that hides them in s, and how often."""
    beside_s: float = 0.0
    """Work on other ranks' keys, beside which those travel."""
    ring: tuple[tuple[Collective, float], ...] = ()
    """Collectives that bring them."""


def rank_share(base: Parallelism, shape: dict[str, object]) -> Parallelism:
    """Return the least plan whose ranks have a shape's share of a microbatch."""
    values = {name: shape[name] for name in SHAPE}
    cp, ep = int(str(values["cp"])), int(str(values["ep"]))
    dp = ep // math.gcd(ep, cp)
    return replace(
        base,
        **values,  # type: ignore[arg-type]
        pp=1,
        vpp=1,
        dp=dp,
        global_batch=dp * int(str(values["micro_batch"])),
        schedule=Schedule.ONE_FORWARD_ONE_BACKWARD,
        zero=0,
    )


class ShapeWork:
    """Work of a mean block, the embedding and the head on one rank of a shape.

    Parameters
    ----------
    config, plan : TransformerConfig, Parallelism
        The model, and a plan of one stage that `rank_share` gives.
    node : Node
        The accelerator.
    """

    def __init__(self, config: TransformerConfig, plan: Parallelism, node: Node) -> None:
        passes = Passes(config, plan)
        blocks = StagePart(
            layers=config.layers, dense=config.dense_layers, windowed=config.windowed_among(0, config.layers)
        )
        share = 1.0 / config.layers
        self.block = {
            one: _work(passes.of(blocks, one), node, share, passes.ring(blocks, one), config.layers)
            for one in DIRECTIONS
        }
        self.embedding = {
            one: _work(passes.of(StagePart(layers=0, embedding=True), one), node) for one in DIRECTIONS
        }
        self.head = {one: _work(passes.of(StagePart(layers=0, head=True), one), node) for one in DIRECTIONS}


def _work(
    items: tuple[Item, ...],
    node: Node,
    share: float = 1.0,
    ring: tuple[tuple[Item, ...], tuple[Collective, ...]] = ((), ()),
    rings: int = 1,
) -> Work:
    time_s = host_s = energy_j = beside_s = 0.0
    collectives, overlapped = [], []
    for one, count in items:
        if isinstance(one, Collective):
            collectives.append((one, count * share))
            continue
        times = float(count)
        operator = one.product if isinstance(one, Overlapped) else one
        if isinstance(one, Overlapped):
            hidden_s = node.cost(one.product).time_s * one.beside
            overlapped.append((one.collective, hidden_s, count * share))
            times = float(count * one.pieces)
            host_s -= (one.pieces - 1) * count * node.cost(one.product).host_s
        cost = node.cost(operator)
        time_s += cost.time_s * times
        host_s += cost.host_s * times
        energy_j += sum(cost.energy_j.values()) * times
    for one, count in ring[0]:
        cost = node.cost(one)  # type: ignore[arg-type]
        beside_s += cost.time_s * count
        host_s += cost.host_s * count
        energy_j += sum(cost.energy_j.values()) * count
    return Work(
        time_s=time_s * share,
        host_s=host_s * share,
        energy_j=energy_j * share,
        collectives=tuple(collectives),
        overlapped=tuple(overlapped),
        beside_s=beside_s * share,
        ring=tuple((one, rings * share) for one in ring[1]),
    )


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A part of a stage in one direction on one layout."""

    time_s: float
    """Work and what it waits for, launches apart."""
    host_s: float
    """Launches."""
    compute_j: float
    """Dynamic energy of one rank's work."""
    network_j: float
    """Dynamic energy of the class's transfers."""
    waited_s: float
    """What of the time is traffic."""
    tp_s: float
    """What of that is traffic of tensor ranks."""
    cp_s: float
    """What of that is traffic of context ranks, their ring apart."""
    ep_s: float
    """What of that is traffic of experts."""
    ring_s: float
    """Traffic on the ring of context ranks, hidden or not."""
    beside_s: float
    """Work that may hide it."""


def priced(work: Work, lines: dict[Collective, CollectiveLines]) -> Priced:
    """Return a part's work with its collectives' times.

    Parameters
    ----------
    work : Work
        The part.
    lines : dict
        Lines of every collective of it.
    """
    network_j = 0.0
    waits = {"tp": 0.0, "cp": 0.0, "ep": 0.0}
    for one, count in work.collectives:
        waits[one.axis] += float(lines[one].time_s(one.payload_bytes)) * count
        network_j += float(lines[one].energy_j(one.payload_bytes)) * count
    for one, hidden_s, count in work.overlapped:
        waits[one.axis] += max(0.0, float(lines[one].time_s(one.payload_bytes)) - hidden_s) * count
        network_j += float(lines[one].energy_j(one.payload_bytes)) * count
    ring_s = 0.0
    for one, count in work.ring:
        ring_s += float(lines[one].time_s(one.payload_bytes)) * count
        network_j += float(lines[one].energy_j(one.payload_bytes)) * count
    waited_s = sum(waits.values()) + max(0.0, ring_s - work.beside_s)
    return Priced(
        time_s=work.time_s + work.beside_s + waited_s,
        host_s=work.host_s,
        compute_j=work.energy_j,
        network_j=network_j,
        waited_s=waited_s,
        tp_s=waits["tp"],
        cp_s=waits["cp"],
        ep_s=waits["ep"],
        ring_s=ring_s,
        beside_s=work.beside_s,
    )
