"""Step time of circuits that are reconfigured within a step, over reconfiguration time and by traffic phase.

`sweep` runs a step at each reconfiguration time and finds the break-even with circuits that never move and
with packet switches. Without a given plan each time has its own best plan, since the best plan on slow
switches sends less between axes. `study_phases` takes the traffic of the busiest port of one step apart into
phases, and plans the lanes of that port for each phase with each switch technology (Opus, arXiv:2602.12521).
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from electronic.fabrics.torus import TorusFabric
from experiments.hardware import Hardware
from experiments.network.links import sampled_run
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.comparison.comparison import shared_plan
from heliograph.comparison.plan_estimates import (
    Aim,
    Objective,
    Prices,
    estimates,
    feasible,
    least_values,
    turning_times_s,
)
from heliograph.comparison.plan_search import USUAL, no_plan
from heliograph.figures import (
    DARK_TIME,
    PALETTE,
    REFERENCE,
    label,
    name_rows,
    new_figure,
    plain_ticks,
    signed_ticks,
    swatches,
)
from heliograph.processes import OnProgress, unheard
from heliograph.report import ReportRow, ReportTable, format_si, prefix_of, table_of
from heliograph.simulation import CircuitMode, StepResult, lit_for_all, run_at_target
from heliograph.systems import System
from heliograph.workload import model_named, plan_on, ranks_of
from optical.fabrics.switches import load_switch, switch_names
from optical.scheduling.schedule import Lanes, PhasePlan, TrafficPhase, plan_phases
from simulator.engine.simulation import Simulation
from simulator.errors import ParameterError, RouteError, WorkloadError
from simulator.fabric import CircuitPolicy, Fabric
from simulator.parameter_tree import replace_at
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Plan, plan_text, plan_words
from workloads.search.costs import PlanPricer
from workloads.search.plans import grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHORTEST_S = 1e-9
"""Shortest reconfiguration time that is run."""
LONGEST_S = 0.1
"""Longest reconfiguration time that is run."""
POINTS = 17
"""Default number of reconfiguration times: two a decade."""
MOST_POINTS = 1000
"""Most reconfiguration times of a line; each takes the simulation of a step."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Step times over reconfiguration time of one plan, or of the best plan at each point."""

    name: str
    """Model and plan."""
    plans: tuple[Plan, ...] = ()
    """Best plans: one for each reconfiguration time, then that of static circuits and that on packets; empty
    if one plan was given."""
    moving_s: np.ndarray
    """Step time with circuits that are reconfigured within the step, shape [points]."""
    static_s: float
    """Step time with static circuits; infinite if the lanes do not serve all peers at once."""
    packet_s: float
    """Step time on the packet fabric."""

    def breakeven_s(self, reconfiguration_s: np.ndarray, baseline_s: float) -> float:
        """Return the reconfiguration time at which the step takes as long as a baseline's.

        Parameters
        ----------
        reconfiguration_s : numpy.ndarray
            Reconfiguration times, rising, shape [points].
        baseline_s : float
            Step time of the baseline.

        Returns
        -------
        float
            Interpolated linearly between points; infinite if circuits still win at the longest time, not a
            number if they lose at the shortest.
        """
        losing = np.flatnonzero(self.moving_s > baseline_s)
        if not losing.size:
            return float("inf")
        after = int(losing[0])
        if after == 0:
            return float("nan")
        low, high = self.moving_s[after - 1], self.moving_s[after]
        share = (baseline_s - low) / (high - low)
        return float(
            reconfiguration_s[after - 1] + share * (reconfiguration_s[after] - reconfiguration_s[after - 1])
        )

    def record(self, reconfiguration_s: np.ndarray) -> dict[str, Any]:
        """Return the line as plain data."""
        return {
            "plan": self.name,
            "best_plans": [plan_text(one) for one in self.plans],
            "moving_s": self.moving_s.tolist(),
            "static_s": self.static_s,
            "packet_s": self.packet_s,
            "breakeven_packet_s": self.breakeven_s(reconfiguration_s, self.packet_s),
            "breakeven_static_s": self.breakeven_s(reconfiguration_s, self.static_s),
        }


@dataclass(frozen=True, kw_only=True)
class Lines(Result):
    """Lines over the same reconfiguration times."""

    system: str
    """Name of the system with optical circuits."""
    reconfiguration_s: np.ndarray
    """Reconfiguration times, rising, shape [points]."""
    lines: tuple[Line, ...]
    """A line for each model and plan."""
    switches: dict[str, float]
    """Reconfiguration time of every switch technology of the table, in s."""

    def record(self) -> dict[str, Any]:
        """Return the sweep as plain data."""
        return {
            "reconfiguration_s": self.reconfiguration_s.tolist(),
            "lines": [one.record(self.reconfiguration_s) for one in self.lines],
            "switches_s": self.switches,
        }

    def report(self) -> list[Block]:
        """Return the table of step times and break-even times."""
        title = f"Reconfiguration time that {self.system} can take"
        return [ReportTable(title, [line.name for line in self.lines], table_rows(self))]

    def rows(self) -> list[Row]:
        """Return a row for each plan and reconfiguration time."""
        return [
            {
                "line": line.name,
                "reconfiguration_s": float(reconfiguration_s),
                "moving_s": float(moving_s),
                "static_s": line.static_s,
                "packet_s": line.packet_s,
                "plan": plan_text(line.plans[place]) if line.plans else line.name.partition(" ")[2],
            }
            for line in self.lines
            for place, (reconfiguration_s, moving_s) in enumerate(
                zip(self.reconfiguration_s, line.moving_s, strict=True)
            )
        ]

    def figure(self) -> Figure:
        """Return step times over reconfiguration time."""
        figure = new_figure(HEIGHT_IN + EACH_IN * (len(self.lines) - 1))
        panels = figure.subplots(len(self.lines), 1, sharex=True, squeeze=False)[:, 0]
        for panel, line in zip(panels, self.lines, strict=True):
            _panel(panel, line, self.reconfiguration_s)
        shown = {
            name: delay for name, delay in self.switches.items() if delay <= self.reconfiguration_s.max()
        }
        _technologies(panels[0], shown)
        for panel in panels[1:]:
            for reconfiguration_s in shown.values():
                panel.axvline(reconfiguration_s, color="#DDDDDD", linewidth=0.8, zorder=0)
        handles, names = panels[0].get_legend_handles_labels()
        every = dict(zip(names, handles, strict=True))
        for panel in panels[1:]:
            more, named = panel.get_legend_handles_labels()
            every |= dict(zip(named, more, strict=True))
        figure.legend(every.values(), every.keys(), loc="outside upper center", ncols=len(every))
        panels[-1].set_xlabel("reconfiguration time of the switches")
        return figure


def technologies(ports: int) -> dict[str, float]:
    """Return the time that every switch technology takes to reconfigure a number of ports at once."""
    return {name: load_switch(name).turn_s(ports) for name in switch_names()}


def with_reconfiguration_time(fabric: Fabric, reconfiguration_s: float) -> Fabric:
    """Return a fabric whose switches take a given time from command to light; all else stays."""
    given = {"switch_s": reconfiguration_s, "positions": 1, "relock_s": 0.0, "control_s": 0.0}
    given["switch_tail"] = 1.0
    for name, value in given.items():
        fabric = replace_at(fabric, f"switch.{name}", value)
    return fabric


BARE_SHARE = 0.5
"""Relative excess over the shortest step without traffic up to which a plan is priced; a choice."""
LAYOUTS = 4
"""Number of layouts of axes of which the engine runs the best plan by estimate, at each reconfiguration time,
with static circuits and on packets. Estimates of one layout err alike; the errors of two layouts differ by up
to a sixth on slow switches. A choice."""


def candidates(
    optical: System, packet: System, config: TransformerConfig, reconfiguration_s: np.ndarray
) -> tuple[Plan, ...]:
    """Return the plans that are best by estimate at some reconfiguration time, static, or on packets.

    Parameters
    ----------
    optical, packet : System
        The same accelerators on optical circuits, and on packet switches.
    config : TransformerConfig
        The model; its batch and sequence length are those of a comparison.
    reconfiguration_s : numpy.ndarray
        Reconfiguration times, shape [points].
    """
    base = optical.planned(shared_plan(config, optical.accelerators))
    every = grid(base, optical.accelerators, config.experts, USUAL.choices)
    plans, rejected = feasible(config, every, optical.node().memory.capacity_bytes)
    if not len(plans):
        raise WorkloadError(no_plan(f"{config.name} on {optical.accelerators:,} accelerators", rejected, ()))
    lighted, switched = lit_for_all(optical, config), lit_for_all(packet, config)
    pricer, prices = PlanPricer(config, lighted.node()), Prices()
    bare_s = least_values(lighted, pricer, plans)[Objective.TIME]
    plans = plans.taken(bare_s <= bare_s.min() * (1.0 + BARE_SHARE))
    fabrics = [with_reconfiguration_time(lighted.fabric, float(delay_s)) for delay_s in reconfiguration_s]
    moving_s = turning_times_s(lighted, pricer, plans, fabrics, prices)
    _, layout = plans.distinct(("tp", "cp", "pp", "dp", "ep"))
    rows = [row for times_s in moving_s for row in best_of_each_layout(times_s, layout)]
    for system, ways in ((lighted, (CircuitMode(policy=CircuitPolicy.STATIC),)), (switched, None)):
        aim = Aim(objective=Objective.TIME, best=math.inf)
        found = estimates(system, pricer, plans, prices=prices, ways=ways, aim=aim)
        rows += best_of_each_layout(found.values[Objective.TIME], layout)
    return tuple(plans.plan(row) for row in dict.fromkeys(rows))


def best_of_each_layout(times_s: np.ndarray, layout: np.ndarray) -> list[int]:
    """Return the rows of the fastest plan of each of the fastest layouts, `LAYOUTS` at most.

    Parameters
    ----------
    times_s : numpy.ndarray
        Estimated step time of each plan, shape [plans].
    layout : numpy.ndarray
        Number of each plan's layout of axes, shape [plans].
    """
    order = np.argsort(times_s, kind="stable")
    order = order[np.isfinite(times_s[order])]
    _, first = np.unique(layout[order], return_index=True)
    rows: list[int] = order[np.sort(first)[:LAYOUTS]].tolist()
    return rows


def best_line(name: str, plans: Sequence[Plan], lines: Sequence[Line]) -> Line:
    """Return the least of several plans' lines at each point."""
    moving_s = np.array([line.moving_s for line in lines])
    static_s = np.array([line.static_s for line in lines])
    packet_s = np.array([line.packet_s for line in lines])
    places = [*moving_s.argmin(axis=0), static_s.argmin(), packet_s.argmin()]
    return Line(
        name=name,
        plans=tuple(plans[int(place)] for place in places),
        moving_s=moving_s.min(axis=0),
        static_s=float(static_s.min()),
        packet_s=float(packet_s.min()),
    )


def sweep(
    optical: System,
    packet: System,
    work: Sequence[tuple[TransformerConfig, Plan | None]],
    *,
    points: int = POINTS,
    progress: OnProgress = unheard,
) -> Lines:
    """Run every plan with circuits of each reconfiguration time, with static circuits, and on packets.

    Parameters
    ----------
    optical, packet : System
        The same accelerators on optical circuits, and on packet switches.
    work : sequence of (TransformerConfig, Plan or None)
        Models and plans; without a plan, each point has its own best one.
    points : int
        Reconfiguration times from 1 ns to 100 ms, evenly on a logarithmic scale.
    progress : callable
        Called with a label, the amount done and the total.
    """
    rails = optical.fabric
    if rails.traits.policy is None:
        msg = f"system '{optical.name}' has no optical circuits ({rails.name}); try photonic_ocs or gpu_ocs"
        raise ParameterError(msg)
    if not 2 <= points <= MOST_POINTS:
        msg = f"points ({points}) must be 2, for a line, to {MOST_POINTS}"
        raise ParameterError(msg)
    reconfiguration_s = np.geomspace(SHORTEST_S, LONGEST_S, points)
    lines = []
    for config, plan in work:
        plans = candidates(optical, packet, config, reconfiguration_s) if plan is None else (plan,)
        each = []
        for number, one in enumerate(plans):
            tell = partial(progress, f"plan {number + 1} of {len(plans)}")
            each.append(_line(optical, packet, config, one, reconfiguration_s=reconfiguration_s, tell=tell))
        lines.append(each[0] if plan else best_line(f"{config.name} {EACH_OWN}", plans, each))
    ports = rails.endpoints * (rails.traits.endpoint_lanes or 1)
    return Lines(
        system=optical.name,
        reconfiguration_s=reconfiguration_s,
        lines=tuple(lines),
        switches=technologies(ports),
    )


EACH_OWN = "each point at its own best plan"
"""Text in place of the plan of a line that has many."""


def _line(
    optical: System,
    packet: System,
    config: TransformerConfig,
    plan: Plan,
    *,
    reconfiguration_s: np.ndarray,
    tell: Callable[[int, int], None],
) -> Line:
    """Return the step times of one plan."""
    moving = []
    for place, delay_s in enumerate(reconfiguration_s):
        tell(place, len(reconfiguration_s))
        fabric = with_reconfiguration_time(optical.fabric, float(delay_s))
        moving.append(_step_s(optical, fabric, CircuitPolicy.PER_AXIS, config, plan))
    tell(len(reconfiguration_s), len(reconfiguration_s))
    return Line(
        name=f"{config.name} {plan_text(plan)}",
        moving_s=np.array(moving),
        static_s=_step_s(optical, optical.fabric, CircuitPolicy.STATIC, config, plan),
        packet_s=run_at_target(packet, config, plan).metrics.step_time_s,
    )


def _step_s(
    system: System, fabric: Fabric, policy: CircuitPolicy, config: TransformerConfig, plan: Plan
) -> float:
    """Return the step time; infinite if the lanes cannot serve all circuits that must be lit at once."""
    try:
        moved = dataclasses.replace(system, fabric=fabric, circuits=policy)
        return run_at_target(moved, config, plan).metrics.step_time_s
    except RouteError:
        return float("inf")


HEIGHT_IN = 4.0
"""Height of one panel's figure, inches."""
EACH_IN = 2.2
"""Height of every further panel, inches."""
FINELY = 400
"""Points at which a curve is drawn: it is linear in time between its own, hence curved on the log axis."""
MARGIN = 0.12
"""Room below the lowest line for labels, as a share of the curves' height."""
BAND = 0.45
"""Room above the curves for the technologies' names, as a share of their height."""
LINEAR = 0.5
"""Change about which the axis of step times turns from linear to logarithmic, per cent; a choice."""
TITLE = 110
"""Letters of a title's line."""


def _panel(panel: Axes, line: Line, reconfiguration_s: np.ndarray) -> None:
    """Draw the step times of a plan relative to packets: linear within a per cent, logarithmic beyond."""

    def change(step_s: np.ndarray) -> np.ndarray:
        return 100.0 * (step_s / line.packet_s - 1.0)

    finely_s = np.geomspace(reconfiguration_s[0], reconfiguration_s[-1], FINELY)
    every = np.unique(np.concatenate((reconfiguration_s, finely_s)))
    moving = change(np.interp(every, reconfiguration_s, line.moving_s))  # as `Line.breakeven_s` reads it
    panel.plot(
        every,
        moving,
        color=PALETTE[0],
        marker=".",
        markevery=np.flatnonzero(np.isin(every, reconfiguration_s)).tolist(),
        label="circuits move within the step",
    )
    static = float(change(np.array(line.static_s)))
    if np.isfinite(static):
        panel.axhline(static, color=PALETTE[2], linestyle="--", label="circuits never move")
    panel.axhline(0.0, color=REFERENCE, linewidth=1.0, label="packet switches")
    _mark_even(panel, line, reconfiguration_s, {0.0: REFERENCE, static: PALETTE[2]})
    panel.set_xscale("log")
    plain_ticks(panel.xaxis, lambda value: format_si(value, "s"), minor=False)
    _relative_axis(panel, [*moving, *([static] if np.isfinite(static) else []), 0.0])
    name, _, plan = line.name.partition(" ")
    title = f"{label(name)}: {plan.replace(',', ', ')}; {format_si(line.packet_s, 's')} on packets"
    panel.set_title(fill(title, TITLE), fontsize=7.5, loc="left")


def _mark_even(panel: Axes, line: Line, reconfiguration_s: np.ndarray, colours: Mapping[float, str]) -> None:
    """Mark where moving circuits cost as much as packets and as circuits at rest, by their levels' colours.

    The curve rises from left to right: it leaves room above a mark to the left, below it to the right.
    """
    times_s = (line.breakeven_s(reconfiguration_s, one) for one in (line.packet_s, line.static_s))
    marks = sorted(
        (level, even_s, colour)
        for (level, colour), even_s in zip(colours.items(), times_s, strict=True)
        if np.isfinite(even_s)
    )
    for level, even_s, colour in marks:
        highest = level == marks[-1][0]
        panel.plot([even_s], [level], marker="o", color=colour, markersize=6, linestyle="none")
        panel.annotate(
            f"even at {format_si(even_s, 's')}",
            (even_s, level),
            textcoords="offset points",
            xytext=(-8, 6) if highest else (8, -12),
            ha="right" if highest else "left",
            fontsize=8,
            color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )


def _relative_axis(panel: Axes, changes: Sequence[float]) -> None:
    """Scale an axis of changes in per cent, with room for what is written below and above them."""
    from matplotlib.ticker import FixedLocator, NullLocator  # noqa: PLC0415 - only to draw

    panel.set_yscale("asinh", linear_width=LINEAR)
    low, high = (math.asinh(end / LINEAR) for end in (min(changes), max(changes)))
    height = max(high - low, math.asinh(1.0))
    ends = (low - MARGIN * height, high + BAND * height)
    panel.set_ylim(*(LINEAR * math.sinh(end) for end in ends))
    ticks = [
        tick for tick in signed_ticks(min(changes), max(changes), LINEAR) if abs(tick) >= LINEAR or not tick
    ]
    panel.yaxis.set_major_locator(FixedLocator(ticks))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_yticks(ticks, [f"{tick:+g} %" if tick else "0" for tick in ticks])
    panel.set_ylabel("step time against packets")


def _technologies(panel: Axes, switches: dict[str, float]) -> None:
    """Mark every technology, its name standing upright in a band above the panel's curves."""
    last = 0.0
    for name, reconfiguration_s in sorted(switches.items(), key=lambda one: one[1]):
        panel.axvline(reconfiguration_s, color="#DDDDDD", linewidth=0.8, zorder=0)
        place = max(reconfiguration_s, last * 1.45)
        panel.annotate(
            label(name),
            (place, 0.98),
            xycoords=("data", "axes fraction"),
            rotation=90,
            va="top",
            ha="center",
            fontsize=6,
            color="#555555",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )
        last = place


def table_rows(swept: Lines) -> list[ReportRow]:
    """Return the lines of the table: step times, and reconfiguration times at which they are even."""

    def even(seconds: float) -> str:
        if math.isnan(seconds):
            return "never pays"
        return "always pays" if math.isinf(seconds) else format_si(seconds, "s")

    lines, times_s = swept.lines, swept.reconfiguration_s

    def row(name: str, cell: Callable[[Line], str], note: str, *, section: bool = False) -> ReportRow:
        return ReportRow(name, tuple(map(cell, lines)), note, section=section)

    ends = [format_si(float(one), "s") for one in (times_s[0], times_s[-1])]
    named = (f"moving in {ends[0]}", f"moving in {ends[1]}", "never moving", "on packets")
    plans = [
        ReportRow(
            f"  best plan {words}",
            tuple(plan_words(one.plans[place]) if one.plans else "as named" for one in lines),
            "searched",
        )
        for words, place in zip(named, (0, -3, -2, -1), strict=True)
    ]
    packet, static = "as fast as packets up to", "as fast as circuits at rest up to"
    return [
        row("packet switches", lambda one: format_si(one.packet_s, "s"), "simulated"),
        row("circuits never move", lambda one: format_si(one.static_s, "s"), "simulated"),
        row(f"circuits move in {ends[0]}", lambda one: format_si(float(one.moving_s[0]), "s"), "simulated"),
        row(f"circuits move in {ends[1]}", lambda one: format_si(float(one.moving_s[-1]), "s"), "simulated"),
        *(plans if any(one.plans for one in lines) else ()),
        row(packet, lambda one: even(one.breakeven_s(times_s, one.packet_s)), "break-even", section=True),
        row(static, lambda one: even(one.breakeven_s(times_s, one.static_s)), "break-even"),
        *(
            ReportRow(f"  {name}", (format_si(seconds, "s"),) * len(lines), "technology")
            for name, seconds in sorted(swept.switches.items(), key=lambda item: item[1])
        ),
    ]


ACCELERATORS = 256
"""Default number of accelerators, if neither an option nor a plan gives one."""


@dataclass(frozen=True, kw_only=True)
class Breakeven(Study):
    """Up to which reconfiguration time circuits that move within a step pay."""

    directory = "breakeven"

    system: str = option("photonic_ocs", "system with optical circuits")
    packets: str | None = option(
        None,
        "the same accelerators on packet switches; default: the system's name with packet in place of ocs",
        metavar="SYSTEM",
    )
    model: tuple[str, ...] = option(("llama-3-70b",), "model by name; may be repeated", metavar="NAME")
    plan: tuple[str, ...] = option(
        (),
        "plan of every model; may be repeated, a line each; default: at each time the best one",
        metavar="PLAN",
    )
    accelerators: int | None = option(
        None, f"how many; default the system file's, the first plan's, else {ACCELERATORS}", metavar="N"
    )
    points: int = option(POINTS, "times from 1 ns to 100 ms", metavar="P")
    hardware: Hardware = field(default_factory=Hardware)

    def systems(self) -> tuple[System, System]:
        """Return the system with circuits, and the same accelerators on packet switches."""
        usual = (ranks_of(self.plan[0]) if self.plan else None) or ACCELERATORS
        optical = self.hardware.system(self.system, accelerators=self.accelerators, usual_accelerators=usual)
        packet = self.hardware.counterpart(
            optical, self.system, self.packets, on="packets", accelerators=self.accelerators
        )
        if isinstance(packet.fabric, TorusFabric):
            msg = f"'{packet.name}' stands on a torus, which has no packet switches; try --fabric rails"
            raise ParameterError(msg)
        return optical, packet

    def run(self, progress: Progress) -> Lines:
        """Return a line for each model and plan."""
        optical, packet = self.systems()
        models = [model_named(name) for name in self.model]
        texts = self.plan or ("",)
        work = [(one, plan_on(optical, one, text) if text else None) for one in models for text in texts]
        return sweep(optical, packet, work, points=self.points, progress=progress)


@dataclass(frozen=True, kw_only=True)
class Burst:
    """Interval in which one endpoint sends for one axis; no other axis ends a transfer within it."""

    axis: str
    """Axis of parallelism."""
    start_s: float
    """Start."""
    end_s: float
    """End."""
    sent_bytes: dict[int, float]
    """Bytes sent to each peer."""
    exchanges: int = 1
    """Number of separate transfers to the peer with most of them."""


@dataclass(frozen=True, kw_only=True)
class StepPhases(Result):
    """Traffic phases of the busiest port in a step, and the plan of its lanes with each switch technology."""

    name: str
    """Model and system."""
    endpoint: int
    """Accelerator that sends most bytes between nodes."""
    step_s: float
    """Simulated step time."""
    lanes: Lanes
    """Lanes of a port, with the system's own switches."""
    bursts: tuple[Burst, ...]
    """Traffic of the endpoint, by start."""
    phases: tuple[TrafficPhase, ...]
    """The bursts as the planner takes them."""
    plan: PhasePlan
    """Plan of the lanes with the system's own switches."""
    by_switch: dict[str, PhasePlan]
    """Plan of the lanes with each switch technology."""
    delays_s: dict[str, float]
    """Reconfiguration time of each switch technology."""

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
        """Return a table with a line for each switch technology, and the time of static circuits."""
        own_switches = _PlannedSwitch("its own switches", self.plan, self.lanes.reconfiguration_s)
        others = [_PlannedSwitch(name, self.by_switch[name], self.delays_s[name]) for name in _by_delay(self)]
        own, count = self.plan, len(self.phases)
        title = (
            f"{self.name}: {count} {'phase' if count == 1 else 'phases'} of {', '.join(own.axes)} on "
            f"{self.lanes.count} lanes of accelerator {self.endpoint}, {format_si(self.step_s, 's')} a step"
        )
        static = (
            f"{format_si(own.static_s, 's')}" if math.isfinite(own.static_s) else "more lanes than there are"
        )
        return [
            table_of(title, [own_switches, *others], lambda one: one.name, _COLUMNS),
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
        """Return the lanes of each axis over time, and the network time with each switch technology."""
        heights = (1.7, 0.24 * len(self.by_switch) + 0.5)
        figure = new_figure(sum(heights) + 0.9)
        grid = figure.add_gridspec(2, 1, height_ratios=heights)
        _draw_lanes(figure.add_subplot(grid[0]), self)
        _draw_times(figure.add_subplot(grid[1]), self)
        colours = {f"Lanes of {axis}": PALETTE[2 + index] for index, axis in enumerate(self.plan.axes)}
        colours |= {"Transfers": PALETTE[0], "Exposed moves": DARK_TIME}
        figure.legend(handles=swatches(colours), loc="outside upper center", ncols=6, handlelength=1.4)
        return figure


def plan_numbers(plan: PhasePlan) -> dict[str, Any]:
    """Return a plan of phases as plain data."""
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
    """Return the traffic phases of a step on circuits, with plans for each switch technology.

    Parameters
    ----------
    result : StepResult
        The step; its fabric has lanes at each endpoint (`Traits.endpoint_lanes`).

    Notes
    -----
    Bytes, peers and gaps are those of the port that sends most, as the engine simulated the step. The planner
    takes bursts one after the other; where two axes send at once, its time is the sum of both.
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
    transfers = _transfers(simulation, fabric.node_size)
    if not transfers:
        msg = f"nothing leaves a node of {result.system.name} in this step; take more nodes than one"
        raise ParameterError(msg)
    sent_bytes = {one: sum(each.sent_bytes for each in some) for one, some in transfers.items()}
    endpoint = max(sorted(sent_bytes), key=lambda one: sent_bytes[one])
    bursts = _bursts(transfers[endpoint])
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


class _Transfer(NamedTuple):
    """Bytes from one endpoint to one peer between two changes of the network's rates."""

    start_s: float
    end_s: float
    axis: str
    peer: int
    sent_bytes: float


def _transfers(simulation: Simulation, node_size: int) -> dict[int, list[_Transfer]]:
    """Return the transfers between nodes, by sending endpoint."""
    transfers: dict[int, list[_Transfer]] = defaultdict(list)
    for (start_s, moving), (end_s, _) in pairwise(simulation.network.samples or []):
        for flow_group, rate in moving if end_s > start_s else ():
            flows = flow_group.flows
            weights = np.ones(len(flows.sources)) if flows.weights is None else flows.weights
            between_nodes = flows.sources // node_size != flows.destinations // node_size
            for place in np.flatnonzero(between_nodes):
                sent_bytes = float(rate * weights[place] * (end_s - start_s))
                peer = int(flows.destinations[place])
                transfer = _Transfer(start_s, end_s, flows.axis, peer, sent_bytes)
                transfers[int(flows.sources[place])].append(transfer)
    return transfers


def _bursts(transfers: Sequence[_Transfer]) -> tuple[Burst, ...]:
    """Return the bursts of one endpoint.

    Notes
    -----
    Transfers are taken by start. One joins the last burst of its axis, unless a burst that began after that
    one also ends after it: then another axis has sent in between, and a new burst begins.
    """
    bursts: list[Burst] = []
    ends_by_peer: list[dict[int, list[float]]] = []  # of each burst: ends of its separate transfers to a peer
    for start_s, end_s, axis, peer, sent_bytes in sorted(transfers):
        same_axis = [index for index, burst in enumerate(bursts) if burst.axis == axis]
        last = same_axis[-1] if same_axis else -1
        if same_axis and all(burst.end_s <= bursts[last].end_s for burst in bursts[last + 1 :]):
            burst = bursts[last]
            total = burst.sent_bytes | {peer: burst.sent_bytes.get(peer, 0.0) + sent_bytes}
            bursts[last] = dataclasses.replace(burst, end_s=max(burst.end_s, end_s), sent_bytes=total)
        else:
            bursts.append(Burst(axis=axis, start_s=start_s, end_s=end_s, sent_bytes={peer: sent_bytes}))
            ends_by_peer.append({})
            last = -1
        ends = ends_by_peer[last].setdefault(peer, [])
        if ends and start_s <= ends[-1]:
            ends[-1] = end_s
        else:
            ends.append(end_s)
    exchanges = [max(map(len, one.values())) for one in ends_by_peer]
    return tuple(
        dataclasses.replace(burst, exchanges=count) for burst, count in zip(bursts, exchanges, strict=True)
    )


def _phases(bursts: Sequence[Burst]) -> tuple[TrafficPhase, ...]:
    """Return bursts as phases of the planner, with the idle time of the port before each."""
    phases, free_s = [], 0.0
    for burst in bursts:
        phases.append(
            TrafficPhase(
                axis=burst.axis,
                bytes_per_pair=max(burst.sent_bytes.values()),
                peers=len(burst.sent_bytes),
                exchanges=burst.exchanges,
                idle_s=max(0.0, burst.start_s - free_s),
            )
        )
        free_s = max(free_s, burst.end_s)
    return tuple(phases)


CUT = 20
"""Multiple of the bound beyond which a bar is cut and its time written on it."""


def _by_delay(study: StepPhases) -> list[str]:
    return sorted(study.by_switch, key=lambda one: study.delays_s[one])


def _dark_s(plan: PhasePlan) -> float:
    """Return the dark time that lengthens the step, between phases and within them."""
    return sum(plan.exposed_s) + sum(plan.turning_s)


class _PlannedSwitch(NamedTuple):
    """A switch technology with its plan, a line of the table."""

    name: str
    plan: PhasePlan
    reconfiguration_s: float


_COLUMNS: dict[str, Callable[[_PlannedSwitch], str]] = {
    "dark": lambda one: format_si(one.reconfiguration_s, "s"),
    "moves": lambda one: str(sum(one.plan.moves) + sum(one.plan.turns)),
    "exposed": lambda one: format_si(_dark_s(one.plan), "s"),
    "transfers": lambda one: format_si(sum(one.plan.transfer_s), "s"),
    "in all": lambda one: format_si(one.plan.time_s, "s"),
    "over bound": lambda one: f"{one.plan.over_bound:.3f}",
}
"""Columns of the table of switch technologies."""


def _draw_lanes(axes: Axes, study: StepPhases) -> None:
    """Draw the lanes of each axis from each phase to the next, pale where it waits, and the moves."""
    symbol, factor = prefix_of(study.step_s)
    starts = [burst.start_s for burst in study.bursts]
    for index, burst in enumerate(study.bursts):
        until_s = starts[index + 1] if index + 1 < len(starts) else study.step_s
        below = 0
        for place, lanes in enumerate(study.plan.lanes[index]):
            colour = PALETTE[2 + place]
            if lanes:
                axes.fill_between(
                    [burst.start_s / factor, until_s / factor],
                    below,
                    below + lanes,
                    color=colour,
                    alpha=0.35,
                    lw=0,
                )
            if lanes and study.plan.axes[place] == burst.axis:
                axes.fill_between(
                    [burst.start_s / factor, burst.end_s / factor], below, below + lanes, color=colour, lw=0
                )
            below += lanes
        if study.plan.moves[index] or study.plan.turns[index]:
            axes.axvline(burst.start_s / factor, color=DARK_TIME, linewidth=1.4)
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
