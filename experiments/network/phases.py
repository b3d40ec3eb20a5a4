"""Phases of traffic that a step has on its circuits, and where moving between them pays (Opus)."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.network.breakeven import technologies
from experiments.network.links import sampled_run
from experiments.study import Block, Result, Row
from heliograph.report import format_si, prefix_of, table_of
from heliograph.simulation import StepResult
from heliograph.style import DARK_TIME, PALETTE, REFERENCE, name_rows, new_figure, styled, swatches
from optical.scheduling.schedule import Lanes, PhasePlan, TrafficPhase, plan_phases
from simulator.engine.simulation import Simulation
from simulator.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Burst:
    """A stretch in which one axis sends from an endpoint, with no other axis in its gaps."""

    axis: str
    """Axis of parallelism."""
    start_s: float
    """Start."""
    end_s: float
    """End."""
    sent_bytes: dict[int, float]
    """Bytes to each peer."""
    exchanges: int = 1
    """Times that it sends to the peer that it sends to most often."""


@dataclass(frozen=True, kw_only=True)
class StepPhases(Result):
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
            "lane_plan": plan_numbers(self.plan),
            "by_switch": {
                name: {"reconfiguration_s": self.delays_s[name]} | plan_numbers(plan)
                for name, plan in self.by_switch.items()
            },
        }

    def report(self) -> list[Block]:
        """Return a table with a line for each switch technology, and what circuits at rest would take."""
        own_switches = ("its own switches", self.plan, self.lanes.reconfiguration_s)
        others = [(name, self.by_switch[name], self.delays_s[name]) for name in _by_delay(self)]
        own, count = self.plan, len(self.phases)
        title = (
            f"{self.name}: {count} {'phase' if count == 1 else 'phases'} of {', '.join(own.axes)} on "
            f"{self.lanes.count} lanes of accelerator {self.endpoint}, {format_si(self.step_s, 's')} a step"
        )
        static = (
            f"{format_si(own.static_s, 's')}" if math.isfinite(own.static_s) else "more lanes than there are"
        )
        return [
            table_of(title, [own_switches, *others], lambda one: one[0], _COLUMNS),
            f"Circuits that never move take {static}. No plan takes less than {format_si(own.bound_s, 's')}.",
        ]

    def rows(self) -> list[Row]:
        """Return a row for each switch technology."""
        return [
            {"switch": name, "reconfiguration_s": self.delays_s[name]}
            | {key: value for key, value in plan_numbers(plan).items() if not isinstance(value, list)}
            for name, plan in self.by_switch.items()
        ]

    def figure(self) -> Figure:
        """Return who sends when and the lanes that it has, and the network time by technology."""
        heights = (1.7, 0.24 * len(self.by_switch) + 0.5)
        with styled():
            figure = new_figure(sum(heights) + 0.9)
            grid = figure.add_gridspec(2, 1, height_ratios=heights)
            _draw_lanes(figure.add_subplot(grid[0]), self)
            _draw_times(figure.add_subplot(grid[1]), self)
            told = {f"Lanes of {axis}": PALETTE[2 + index] for index, axis in enumerate(self.plan.axes)}
            told |= {"Transfers": PALETTE[0], "Exposed moves": DARK_TIME}
            figure.legend(handles=swatches(told), loc="outside upper center", ncols=6, handlelength=1.4)
            return figure


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


def study_phases(result: StepResult) -> StepPhases:
    """Return the phases of a step on circuits, and where moving them pays.

    Parameters
    ----------
    result : StepResult
        The step; its fabric has lanes at each endpoint (`Traits.endpoint_lanes`).

    Notes
    -----
    Bytes, peers and gaps are those of the port that sends most, as the engine ran the step. The planner takes
    its bursts one after the other; where two axes send at once, its time is what they need in turn.
    """
    fabric = result.system.fabric
    traits = fabric.traits
    if traits.endpoint_lanes is None or traits.lane_bytes_per_s is None:
        msg = (
            f"{fabric.name} has no lanes that a port shares out among axes; take gpu_ocs, photonic_ocs or "
            "a file of a system with ocs_rails, where every peer needs a circuit of its own (elsewhere nodes "
            "pass traffic on or packets carry the rest, and `heliograph step` tells what moving saves)"
        )
        raise ParameterError(msg)
    simulation = sampled_run(result)
    step_s = simulation.finish().makespan_s
    endpoint, bursts = _bursts(simulation, fabric.node_size)
    if not bursts:
        msg = f"nothing leaves a node of {result.system.name} in this step; take more nodes than one"
        raise ParameterError(msg)
    phases = _phases(bursts)
    lanes = Lanes(
        count=traits.endpoint_lanes,
        rate_bytes_per_s=traits.lane_bytes_per_s,
        reconfiguration_s=traits.reconfiguration_s,
    )
    delays_s = technologies(fabric.endpoints * traits.endpoint_lanes)
    return StepPhases(
        name=f"{result.model} on {result.system.name}",
        endpoint=endpoint,
        step_s=step_s,
        lanes=lanes,
        bursts=bursts,
        phases=phases,
        plan=plan_phases(phases, lanes),
        by_switch={
            name: plan_phases(phases, dataclasses.replace(lanes, reconfiguration_s=reconfiguration_s))
            for name, reconfiguration_s in delays_s.items()
        },
        delays_s=delays_s,
    )


def _bursts(simulation: Simulation, size: int) -> tuple[int, tuple[Burst, ...]]:
    """Return the endpoint that sends most between nodes, and its traffic in stretches of one axis."""
    sent: dict[int, list[tuple[float, float, str, int, float]]] = defaultdict(list)
    for (start_s, moving), (end_s, _) in pairwise(simulation.network.samples or []):
        for flow_group, rate in moving if end_s > start_s else ():
            flows = flow_group.flows
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


CUT = 20
"""Times the bound beyond which a bar is cut and its time written on it."""


def _by_delay(study: StepPhases) -> list[str]:
    return sorted(study.by_switch, key=lambda one: study.delays_s[one])


def _dark_s(plan: PhasePlan) -> float:
    """Return the dark time that shows, between phases and within them."""
    return sum(plan.exposed_s) + sum(plan.turning_s)


_COLUMNS: dict[str, Callable[[tuple[str, PhasePlan, float]], str]] = {
    "dark": lambda one: format_si(one[2], "s"),
    "moves": lambda one: str(sum(one[1].moves) + sum(one[1].turns)),
    "exposed": lambda one: format_si(_dark_s(one[1]), "s"),
    "transfers": lambda one: format_si(sum(one[1].transfer_s), "s"),
    "in all": lambda one: format_si(one[1].time_s, "s"),
    "over bound": lambda one: f"{one[1].over_bound:.3f}",
}
"""Columns of the table of switches, each with its plan and reconfiguration time."""


def _draw_lanes(axes: Axes, study: StepPhases) -> None:
    """Draw the lanes of each axis from each phase to the next, pale where it waits, and the moves."""
    symbol, factor = prefix_of(study.step_s)
    starts = [one.start_s for one in study.bursts]
    for index, one in enumerate(study.bursts):
        until_s = starts[index + 1] if index + 1 < len(starts) else study.step_s
        below = 0
        for place, lanes in enumerate(study.plan.lanes[index]):
            colour = PALETTE[2 + place]
            if lanes:
                axes.fill_between(
                    [one.start_s / factor, until_s / factor],
                    below,
                    below + lanes,
                    color=colour,
                    alpha=0.35,
                    lw=0,
                )
            if lanes and study.plan.axes[place] == one.axis:
                axes.fill_between(
                    [one.start_s / factor, one.end_s / factor], below, below + lanes, color=colour, lw=0
                )
            below += lanes
        if study.plan.moves[index] or study.plan.turns[index]:
            axes.axvline(one.start_s / factor, color=DARK_TIME, linewidth=1.4)
    axes.set_xlim(0.0, study.step_s / factor)
    axes.set_ylim(0, study.lanes.count)
    axes.set_yticks(range(study.lanes.count + 1))
    axes.set_ylabel("Lanes")
    axes.set_xlabel(f"Time ({symbol}s); full: may send, pale: waits, line: circuits move")
    axes.set_title(study.name, loc="left")


def _draw_times(axes: Axes, study: StepPhases) -> None:
    """Draw each technology's transfers and exposed moves, circuits at rest, and the bound; cut long bars."""
    names = _by_delay(study)
    plans = [study.by_switch[name] for name in names]
    known_s = [plan.time_s for plan in plans] + [study.plan.static_s] * math.isfinite(study.plan.static_s)
    longest_s = max(one for one in known_s if one <= CUT * study.plan.bound_s or one == min(known_s))
    symbol, factor = prefix_of(longest_s)
    transfers = [sum(plan.transfer_s) / factor for plan in plans]
    places = range(len(names))
    axes.barh(places, transfers, height=0.7, color=PALETTE[0])
    exposed = [_dark_s(plan) / factor for plan in plans]
    axes.barh(places, exposed, left=transfers, height=0.7, color=DARK_TIME)
    axes.axvline(study.plan.bound_s / factor, color=REFERENCE, linewidth=0.9, linestyle="--")
    if math.isfinite(study.plan.static_s):
        axes.axvline(study.plan.static_s / factor, color=PALETTE[5], linewidth=0.9)
    axes.set_xlim(0.0, 1.05 * longest_s / factor)
    for place, plan in enumerate(plans):
        if plan.time_s > longest_s:
            text = f"{format_si(plan.time_s, 's')} "
            axes.text(1.05 * longest_s / factor, place, text, ha="right", va="center", color="white")
    name_rows(axes, names)
    rest = ", line: circuits never move" if math.isfinite(study.plan.static_s) else ""
    axes.set_xlabel(f"Time of the port's traffic ({symbol}s); dashed: bound{rest}")
