"""Phases of traffic that a step has on its circuits, and where moving between them pays (Opus)."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.breakeven import technologies
from experiments.step import StepResult
from heliograph.carrying import play
from heliograph.engine import Simulation
from heliograph.errors import ParameterError
from optical.fabrics import OcsRails
from optical.scheduling.phases import PhasePlan, TrafficPhase, plan_phases
from optical.scheduling.plant import Lanes


@dataclass(frozen=True, kw_only=True)
class Burst:
    """A stretch in which one axis sends from an endpoint, with no other axis in its gaps."""

    axis: str
    """Axis of parallelism."""
    start_s: float
    """When it starts."""
    end_s: float
    """When it ends."""
    sent_bytes: dict[int, float]
    """Bytes to each peer."""
    exchanges: int = 1
    """Times that it sends to the peer that it sends to most often."""


@dataclass(frozen=True, kw_only=True)
class PhaseStudy:
    """The busiest port's phases in a step, and a plan of its lanes for each technology."""

    name: str
    """Model and system."""
    endpoint: int
    """Accelerator that sends most between nodes."""
    step_s: float
    """The step as the engine ran it."""
    lanes: Lanes
    """Lanes of a port, with the system's own switches."""
    bursts: tuple[Burst, ...]
    """Its traffic."""
    phases: tuple[TrafficPhase, ...]
    """The same as the planner takes it."""
    plan: PhasePlan
    """Lanes by phase with the system's own switches."""
    by_switch: dict[str, PhasePlan]
    """Lanes by phase with each switch technology."""
    delays_s: dict[str, float]
    """Dark time of each switch technology."""

    def record(self) -> dict[str, Any]:
        """Return the numbers as plain data."""
        return {
            "name": self.name,
            "endpoint": self.endpoint,
            "step_s": self.step_s,
            "lanes": self.lanes,
            "phases": list(self.phases),
            "plan": plan_numbers(self.plan),
            "by_switch": {
                name: {"delay_s": self.delays_s[name]} | plan_numbers(plan)
                for name, plan in self.by_switch.items()
            },
        }


def plan_numbers(plan: PhasePlan) -> dict[str, Any]:
    """Return what a plan of phases says as plain data."""
    return {
        "moves": sum(plan.moves),
        "turns": sum(plan.turns),
        "time_s": plan.time_s,
        "exposed_s": sum(plan.exposed_s),
        "turning_s": sum(plan.turning_s),
        "static_s": plan.static_s,
        "bound_s": plan.bound_s,
        "axes": list(plan.axes),
        "lanes": [list(lanes) for lanes in plan.lanes],
    }


def study_phases(result: StepResult) -> PhaseStudy:
    """Return the phases of a step on circuits, and where moving them pays.

    Parameters
    ----------
    result : StepResult
        The step; its fabric has circuits of lanes (`OcsRails`).

    Raises
    ------
    ParameterError
        If the fabric has no lanes that move, or nothing leaves a node.

    Notes
    -----
    Bytes, peers and gaps are those of the port that sends most, as the engine ran the step. The planner takes
    its bursts one after the other; where two axes send at once, its time is what they need in turn.
    """
    fabric = result.system.fabric
    if not isinstance(fabric, OcsRails):
        msg = (
            f"{fabric.name} has no lanes that a port shares out among axes; take gpu_ocs, photonic_ocs or "
            "a file of a system with ocs_rails, where every peer needs a circuit of its own (elsewhere nodes "
            "pass traffic on or packets carry the rest, and `heliograph step` tells what moving saves)"
        )
        raise ParameterError(msg)
    simulation = Simulation(result.graph, result.system.node(), fabric, fuse=False)
    simulation.network.samples = []
    simulation.start()
    play(simulation.network)
    step_s = simulation.finish().makespan_s
    endpoint, bursts = _bursts(simulation, fabric.node_size)
    if not bursts:
        msg = f"nothing leaves a node of {result.system.name} in this step; take more nodes than one"
        raise ParameterError(msg)
    phases = _phases(bursts)
    lanes = Lanes(
        count=fabric.lanes,
        rate_bytes_per_s=fabric.lane_bytes_per_s,
        delay_s=fabric.switch.reconfiguration_s,
    )
    delays_s = technologies()
    return PhaseStudy(
        name=f"{result.model} on {result.system.name}",
        endpoint=endpoint,
        step_s=step_s,
        lanes=lanes,
        bursts=bursts,
        phases=phases,
        plan=plan_phases(phases, lanes),
        by_switch={
            name: plan_phases(phases, dataclasses.replace(lanes, delay_s=delay_s))
            for name, delay_s in delays_s.items()
        },
        delays_s=delays_s,
    )


def _bursts(simulation: Simulation, size: int) -> tuple[int, tuple[Burst, ...]]:
    """Return the endpoint that sends most between nodes, and its traffic in stretches of one axis."""
    sent: dict[int, list[tuple[float, float, str, int, float]]] = defaultdict(list)
    for (start_s, moving), (end_s, _) in pairwise(simulation.network.samples or []):
        for bundle, rate in moving if end_s > start_s else ():
            flows = bundle.flows
            weights = np.ones(len(flows.sources)) if flows.weights is None else flows.weights
            for place in np.flatnonzero(flows.sources // size != flows.destinations // size):
                peer, moved = int(flows.destinations[place]), float(rate * weights[place] * (end_s - start_s))
                sent[int(flows.sources[place])].append((start_s, end_s, flows.axis, peer, moved))
    if not sent:
        return 0, ()
    endpoint = max(sent, key=lambda one: (sum(row[-1] for row in sent[one]), -one))
    bursts: list[Burst] = []
    stretches: list[dict[int, list[float]]] = []
    for start_s, end_s, axis, peer, moved in sorted(sent[endpoint]):
        same = [index for index, one in enumerate(bursts) if one.axis == axis]
        joins = same and not any(one.end_s > bursts[same[-1]].end_s for one in bursts[same[-1] + 1 :])
        if joins:
            last = bursts[same[-1]]
            total = last.sent_bytes | {peer: last.sent_bytes.get(peer, 0.0) + moved}
            bursts[same[-1]] = dataclasses.replace(last, end_s=max(last.end_s, end_s), sent_bytes=total)
        else:
            bursts.append(Burst(axis=axis, start_s=start_s, end_s=end_s, sent_bytes={peer: moved}))
            stretches.append({})
        ends = stretches[same[-1] if joins else -1].setdefault(peer, [])
        if ends and start_s <= ends[-1]:
            ends[-1] = end_s
        else:
            ends.append(end_s)
    exchanges = [max(map(len, one.values())) for one in stretches]
    return endpoint, tuple(
        dataclasses.replace(one, exchanges=count) for one, count in zip(bursts, exchanges, strict=True)
    )


def _phases(bursts: Sequence[Burst]) -> tuple[TrafficPhase, ...]:
    """Return bursts as phases, each after the time in which the port was idle before it."""
    phases, free_s = [], 0.0
    for one in bursts:
        phases.append(
            TrafficPhase(
                axis=one.axis,
                bytes_per_pair=max(one.sent_bytes.values()),
                peers=len(one.sent_bytes),
                exchanges=one.exchanges,
                idle_s=max(0.0, one.start_s - free_s),
            )
        )
        free_s = max(free_s, one.end_s)
    return tuple(phases)
