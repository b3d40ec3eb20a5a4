"""Command ``heliograph search``: the best plan, placement and fabric for a model, and the HTML page.

All plans are ranked in closed form; the engine simulates the best of each fabric.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.hardware import SYSTEM, Hardware, Workload
from experiments.study import Block, Progress, Result, Row, Study, option, refuse_unused
from heliograph.catalogue import show
from heliograph.comparison.plan_estimates import Objective
from heliograph.comparison.plan_search import NO_SAVING, SAVINGS, Candidate, check_limits
from heliograph.comparison.search import (
    DEFAULT_TOP,
    LEAST_TOLD,
    Search,
    binding,
    pinned,
    rank_and_run,
    topologies,
    value_text,
)
from heliograph.report import ReportRow, ReportTable, format_si
from heliograph.report_page.drawings import Bar, Drawing, Line, bars, colours_of, lines
from heliograph.report_page.page import (
    DERIVED,
    SIMULATED,
    Cell,
    Formula,
    Number,
    Page,
    Section,
    Sheet,
    sheet_of,
    step_formulas,
    told,
    told_sheet,
)
from heliograph.simulation import lit_for_all
from heliograph.systems import SYSTEMS, System
from heliograph.systems.fabrics import CIRCUITS, check_fabric
from heliograph.systems.names import DEFAULT_ACCELERATORS
from heliograph.workload import check_format_used, model_named, plan_keys, shared_plan
from optical.fabrics.circuits import domain_demands
from optical.fabrics.node_circuits import DirectConnect
from optical.fabrics.rails import OcsRails
from optical.scheduling.topology import JobTopology, job_time, job_topology
from simulator.collectives.flow_groups import step_demand
from simulator.errors import HeliographError, ParameterError
from simulator.fabric import CircuitPolicy
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Plan, plan_text


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Systems, model and plans that are searched."""

    systems: Mapping[str, System]
    """Systems by topology."""
    unplaced: Mapping[str, str]
    """Reason by fabric, of those that cannot be built."""
    config: TransformerConfig
    """The model."""
    base: Plan
    """Plan with the fields that all plans share."""
    choices: Mapping[str, tuple[int, ...]]
    """Values of the columns that the option ``--plan`` fixes, by column."""


def reference_difference(ratio: float | None) -> str:
    """Return in words the step of the reference engine over that of the compiled one, less one."""
    if ratio is None:
        return "too long for it"
    return "the same step" if ratio == 1.0 else f"{100.0 * (ratio - 1.0):+.2g} %"


def next_rows(found: Search) -> list[ReportRow]:
    """Return the lines on the second-best plan: its time less that of the best by part, and its memory."""
    pair = found.best_and_next()
    if pair is None:
        return []
    time_s = pair[0].value(Objective.TIME)
    rows = [ReportRow("next plan", (pair[1].words,), pair[1].topology)]
    rows += [
        ReportRow(part, (_signed(change_s, "s"),), f"{change_s / time_s:+.1%}")
        for part, change_s in found.next_by_part().items()
        if abs(change_s) >= LEAST_TOLD * time_s
    ]
    best_bytes, next_bytes = (sum(one.result.memory_bytes.values()) for one in pair if one.result is not None)
    return [*rows, ReportRow("memory", (_signed(next_bytes - best_bytes, "B"),), "fullest")]


def _signed(change: float, unit: str) -> str:
    return f"{'-' if change < 0 else '+'}{format_si(abs(change), unit)}"


def topology_text(candidate: Candidate) -> str:
    """Return in words the circuits of a candidate, or the name of its topology if it has none."""
    fabric = candidate.system.fabric
    match fabric:
        case DirectConnect() if fabric.policy is CircuitPolicy.STATIC and candidate.result is not None:
            return _job_text(fabric, candidate)
        case DirectConnect():
            return f"{fabric.degree} circuits a node for the axis that asks"
        case OcsRails():
            return f"{fabric.lanes} lanes an accelerator"
        case _:
            return candidate.topology


def _job_text(fabric: DirectConnect, candidate: Candidate) -> str:
    """Return in words the circuits laid out for a job (TotientPerms), and its network time over the bound.

    Circuits are rings, each given by its stride in nodes, and matchings for pairs of nodes.
    """
    if candidate.result is None:
        return candidate.topology
    demand = step_demand(candidate.result.graph)
    outside = [flows for flows in demand.values() if fabric.scale_up.off_node(flows).any()]
    node_of = fabric.scale_up.node_of(np.arange(fabric.endpoints))
    domains = domain_demands(outside, node_of, fabric.nodes)
    if not domains:
        return "no traffic between nodes"
    (job,) = domains.values()
    found: JobTopology = job_topology(job.groups, job.pairs, degree=fabric.degree)
    strides = sorted({stride for group in found.strides for stride in group})
    rings = f"rings of strides {' '.join(map(str, strides))}" if strides else "no rings"
    text = f"{fabric.degree} circuits a node, {rings}, {found.matched_degree} for pairs"
    if np.isinf(found.hops).any():  # one more ring makes all meet (`optical.fabrics.circuits.job_links`)
        return text
    time = job_time(found, job.groups, job.pairs, rate_bytes_per_s=fabric.circuit_bytes_per_s)
    return f"{text}, {time.over_bound:.2f} of its bound"


def winner_rows(found: Search) -> list[ReportRow]:
    """Return the lines on the best plan."""
    winner = found.winner
    bound = winner.bound
    time_s = winner.value(Objective.TIME)
    error = winner.estimate[Objective.TIME] / time_s - 1.0
    whole = "of that" if winner.power_limit_w is None else "of that, at full power"
    return [
        ReportRow("plan", (plan_text(winner.plan),), f"least {found.objective}"),
        ReportRow("placement", (winner.placement,), "nearest first"),
        ReportRow("topology", (topology_text(winner),), "laid out for this plan"),
        ReportRow("schedule", (str(winner.plan.schedule.kind),), "of the pipeline"),
        ReportRow("circuits", (str(winner.mode or "do not move"),), "the best"),
        *limit_rows(winner),
        ReportRow("step time", (value_text(winner, Objective.TIME),), "simulated", section=True),
        ReportRow("  estimate", (f"{100 * error:+.1f} %",), whole),
        ReportRow("energy of a step", (value_text(winner, Objective.ENERGY),), "simulated"),
        ReportRow("cost of a step", (value_text(winner, Objective.COST),), "assumed"),
        ReportRow("bound", (format_si(bound.step_time_s, "s"),), bound.what, section=True),
        ReportRow("  compute, any plan", (format_si(bound.compute_s, "s"),), "at the peak"),
        ReportRow("  memory, this plan", (format_si(bound.memory_s, "s"),), "the optimizer"),
        ReportRow("  port, this plan", (format_si(bound.port_s, "s"),), "line rate"),
        ReportRow("most time", (binding(winner),), "as it ran"),
        ReportRow("run again", (reference_difference(found.checked),), "reference engine"),
        ReportRow("step over bound", (f"{time_s / bound.step_time_s:.2f}",), "ratio"),
    ]


def limit_rows(winner: Candidate) -> list[ReportRow]:
    """Return the line on the power limit that was found best, if one was sought."""
    limit_w = winner.power_limit_w
    return [] if limit_w is None else [ReportRow("power limit", (format_si(limit_w, "W"),), "the best")]


def fabric_rows(found: Search) -> dict[str, list[ReportRow]]:
    """Return the lines on the candidates by topology, the best first."""
    lines: dict[str, list[ReportRow]] = {}
    for candidate in found.ordered:
        value = value_text(candidate, found.objective) if candidate.result else "not run"
        note = candidate.placement if candidate.result else candidate.refusal
        lines.setdefault(candidate.topology, []).append(ReportRow(candidate.words, (value,), note))
    return lines


@dataclass(frozen=True, kw_only=True)
class Findings(Result):
    """Report, record and table of a search."""

    search: Search
    """The search."""

    def report(self) -> list[Block]:
        """Return the winner, the best plans of each topology, and counts of the plans that were left out."""
        found, winner = self.search, self.search.winner
        title = (
            f"Best of {found.ranked:,} plans of {found.model} on {winner.system.accelerators} accelerators"
        )
        blocks: list[Block] = [ReportTable(title, [winner.topology], winner_rows(found))]
        if rows := next_rows(found):
            blocks += ["", ReportTable("Why the next plan is worse", ["next less best"], rows)]
        for topology, rows in fabric_rows(found).items():
            blocks += ["", ReportTable(f"Best plans on {topology}", ["engine"], rows)]
        left_out = "; ".join(f"{many:,} {why}" for why, many in found.rejected.items() if many)
        blocks.append(f"\nLeft out: {left_out}.")
        return blocks + [f"Not tried: {name}: {why}" for name, why in found.unplaced.items()]

    def record(self) -> dict[str, Any]:
        """Return the search as plain data."""
        return self.search.record()

    def rows(self) -> list[Row]:
        """Return a row for each plan that was run, the best first."""
        return self.search.rows()


@dataclass(frozen=True, kw_only=True)
class PlanSearch(Study):
    """The best plan, placement and fabric for a model."""

    system: str = option("gpu_packet", SYSTEM)
    workload: Workload = field(default_factory=Workload)
    accelerators: int | None = option(
        None, f"that each plan takes; default the system file's, else {DEFAULT_ACCELERATORS}", metavar="N"
    )
    objective: Objective = option(Objective.TIME, "what is least")
    fabrics: tuple[str, ...] = option(
        (), "fabrics to choose from, separated by commas", metavar="NAMES", commas=True
    )
    variants: bool = option(False, "try sides of tori, lanes, circuits of nodes and switches")
    operators: bool = option(False, "try norms and activations that are computed again alone")
    power_limits: bool = option(
        False, "try lower power limits of the accelerators, too, for --objective energy or cost"
    )
    top: int = option(
        DEFAULT_TOP, "plans that the engine runs of each fabric; more where steps are small", metavar="K"
    )
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> Findings:
        """Return the search; if it is interrupted, the plans so far are written."""
        prepared = self.prepared()
        found = Search(model=prepared.config.name, objective=self.objective, unplaced=dict(prepared.unplaced))
        findings = Findings(search=found)

        def on_progress(label: str, done: int, total: int) -> None:
            if found.found or found.waiting:
                progress.keep(findings)
            progress(label, done, total)

        rank_and_run(
            prepared.systems,
            prepared.config,
            prepared.base,
            found=found,
            choices=prepared.choices,
            savings=SAVINGS if self.operators else (NO_SAVING,),
            top=self.top,
            power_limits=self.power_limits,
            fixed=plan_keys(self.workload.plan),
            progress=on_progress,
        )
        progress.keep(findings)
        _ = found.winner  # raises if no plan runs
        return findings

    def prepared(self) -> Prepared:
        """Return systems, model and plans, after all options are checked.

        Raises
        ------
        ParameterError
            If a system, fabric or number is wrong.
        WorkloadError
            If the model or the plan cannot be read.
        """
        if self.top < 1:
            msg = f"--top must be at least 1; got {self.top}"
            raise ParameterError(msg)
        if self.power_limits:
            check_limits(self.objective)
        if self.fabrics:
            refuse_unused(self.hardware, ("fabric",), "--fabrics names those to choose from")
        config = model_named(self.workload.model)
        systems: dict[str, System] = {}
        unplaced: dict[str, str] = {}
        for fabric in self.fabrics:
            check_fabric(fabric)
        for fabric in self.fabrics or ("",):
            try:
                built = lit_for_all(self._built(fabric), config)
                self.objective.check_told(built.fabric)
                systems |= topologies(built) if self.variants else {fabric or built.fabric.name: built}
            except HeliographError as error:
                if len(self.fabrics) < 2:
                    raise
                unplaced[fabric] = str(error)
        check_format_used(self.workload.plan, tuple(systems.values()))
        accelerators = next(iter(systems.values())).accelerators if systems else DEFAULT_ACCELERATORS
        base = shared_plan(config, accelerators, self.workload.plan)
        return Prepared(
            systems=systems,
            unplaced=unplaced,
            config=config,
            base=base,
            choices=pinned(self.workload.plan, base),
        )

    def _built(self, fabric: str) -> System:
        """Return the system on one of ``--fabrics``; on its own fabric if the name is empty.

        Rails of circuits are the fabric of other named systems: ``gpu_packet`` becomes ``gpu_ocs``, and back.
        """
        name, hardware = self.system, self.hardware
        if fabric:
            base, colon, core = name.partition("@")[0].partition(":")
            if base in SYSTEMS:
                wanted = SYSTEMS[base].light, fabric == CIRCUITS
                names = {(kind.light, kind.circuits): one for one, kind in SYSTEMS.items()}
                name = names[wanted] + colon + core
            if fabric != CIRCUITS:
                hardware = dataclasses.replace(hardware, fabric=fabric)
        return hardware.system(name, accelerators=self.accelerators)


WINNER, BEST = "best plan", "best"
"""First part of the keys of formulas of the best plan's step, and key of the formula of its first table."""
OBJECTIVES = {
    Objective.TIME: ("step time", "s"),
    Objective.ENERGY: ("energy", "J"),
    Objective.COST: ("cost", "USD"),
}
"""Name and unit of each objective."""


def page(findings: Findings) -> Page:
    """Return the page of a search."""
    found = findings.search
    winner = found.winner
    ran = [one for one in found.found if one.result is not None]
    best = _value(winner.value(found.objective), found.objective)
    left_out: list[Sequence[Cell]] = [
        [why, Number(text=f"{many:,}", value=many)] for why, many in found.rejected.items() if many
    ]
    title = (
        f"{found.model} on {winner.system.accelerators:,} accelerators: the best of {found.ranked:,} plans"
    )
    rows = winner_rows(found)
    parameters = show(winner.system).parameters
    formulas = _formulas(found)
    if winner.result is not None:
        formulas |= step_formulas(winner.result.record(), parameters, owner=WINNER)
    answers = [
        f"Least {found.objective} of the {len(ran)} plans that the engine ran: {plan_text(winner.plan)} on "
        f"{winner.topology}, {best}.",
        f"{found.ranked:,} plans were ranked in closed form; the best of each fabric were run. "
        f"{sum(found.rejected.values()):,} others break a rule or do not fit the memory.",
        *(f"Not tried: {one}: {why}." for one, why in found.unplaced.items()),
        "Every underlined number unfolds to its formula, inputs, status and source.",
    ]
    sections = [
        Section(
            title="The best plan",
            blocks=[
                told_sheet(
                    ReportTable("Its plan, its step and its bound", ["value"], rows), "what", key=BEST
                ),
                *_winner_step(winner),
            ],
        ),
        Section(title="The plans that were run", blocks=[_scatter_plots(found), _candidate_sheet(found)]),
        Section(
            title="Plans left out",
            blocks=[
                Sheet(title="Plans by the first rule that they break", heads=("rule", "plans"), rows=left_out)
            ],
        ),
        Section(
            title="Every number that the best system is made of",
            blocks=[sheet_of({winner.system.name: parameters}, "Parameters")],
        ),
    ]
    return Page(title=title, answers=answers, sections=sections, formulas=formulas)


def _value(value: float, objective: Objective) -> str:
    unit = OBJECTIVES[objective][1]
    return f"{value:.3g} USD" if unit == "USD" else format_si(value, unit)


def _formulas(found: Search) -> dict[str, Formula]:
    """Return the formulas of estimates, simulated values and bounds of every plan, by key."""
    formulas = {
        BEST: Formula(
            label="best plan",
            text="step of the simulated plan, its closed form, and the times below which no such step can be",
            status=SIMULATED,
            source="simulator/engine; simulator/step_estimate.py; plan_estimates.py: bound_of",
            follows=(f"plan 0/{found.objective}", f"plan 0/estimate {found.objective}", "plan 0/bound"),
        )
    }
    for at, candidate in enumerate(found.ordered):
        for objective in Objective:
            formulas[f"plan {at}/estimate {objective}"] = Formula(
                label=f"estimated {OBJECTIVES[objective][0]}",
                text="closed form of the step: passes, bubble, exposed communication and changes of circuits",
                status=DERIVED,
                source="simulator/step_estimate.py; workloads/search/costs.py",
                value=_value(candidate.estimate[objective], objective),
            )
            if candidate.result is not None:
                formulas[f"plan {at}/{objective}"] = Formula(
                    label=OBJECTIVES[objective][0],
                    text="of the simulated step: events of compute, network and circuits on one clock",
                    status=SIMULATED,
                    source="simulator/engine",
                    value=_value(candidate.value(objective), objective),
                    follows=(f"plan {at}/estimate {objective}", f"plan {at}/bound"),
                )
        bound = candidate.bound
        formulas[f"plan {at}/bound"] = Formula(
            label="lower bound of the step",
            text="the largest of "
            f"compute at the peak ({format_si(bound.compute_s, 's')}), "
            f"memory of the optimizer ({format_si(bound.memory_s, 's')}) and "
            f"the port at line rate ({format_si(bound.port_s, 's')})",
            status=DERIVED,
            source="heliograph/comparison/plan_estimates.py: bound_of",
            value=format_si(bound.step_time_s, "s"),
        )
    return formulas


def _winner_step(winner: Candidate) -> list[Sheet | Drawing]:
    """Return the table of the best plan's step, and the bar of its time by part."""
    if winner.result is None:
        return []
    record = winner.result.record()
    columns = ("step_time_s", "tokens_per_s", "energy_per_token_j", "usd_per_million_tokens", "mean_power_w")
    cells: list[Sequence[Cell]] = [
        [column, Number(text=told(column, record[column]), value=record[column], key=f"{WINNER}/{column}")]
        for column in columns
    ]
    time = {part: seconds for part, seconds in record["time_by_category_s"].items() if seconds > 0.0}
    colours = colours_of(list(time))
    title = "Step time of the best plan by what it goes to"
    return [
        Sheet(title="Numbers of its step", heads=("number", "value"), rows=cells),
        bars(title, [Bar(label=winner.words, parts=time)], colours, unit="s"),
    ]


def _scatter_plots(found: Search) -> list[Drawing]:
    """Return the drawings of energy over time of the plans that ran, and of simulated over estimated time."""
    ran = [candidate for candidate in found.found if candidate.result is not None]
    by_fabric: dict[str, list[Candidate]] = {}
    for candidate in ran:
        by_fabric.setdefault(candidate.topology, []).append(candidate)

    def scatter_plot(
        title: str, point: Callable[[Candidate], tuple[float, float]], x: str, y: tuple[str, str]
    ) -> Drawing:
        dots = [
            Line(label=name, points=list(map(point, members)), joined=False)
            for name, members in by_fabric.items()
        ]
        return lines(title, dots, x=(x, "s"), y=y)

    return [
        scatter_plot(
            "Energy of a step over its time: lower left is better",
            lambda candidate: (candidate.value(Objective.TIME), candidate.value(Objective.ENERGY)),
            "step time",
            ("energy of a step", "J"),
        ),
        scatter_plot(
            "Engine over estimate",
            lambda candidate: (candidate.estimate[Objective.TIME], candidate.value(Objective.TIME)),
            "estimated step time",
            ("simulated step time", "s"),
        ),
    ]


def _candidate_sheet(found: Search) -> Sheet:
    """Return the table of all candidates, the best first."""
    rows: list[Sequence[Cell]] = []
    for at, candidate in enumerate(found.ordered):
        limit = f" at {candidate.power_limit_w:g} W" if candidate.power_limit_w else ""
        cells: list[Cell] = [plan_text(candidate.plan) + limit]
        for objective in Objective:
            value = candidate.value(objective)
            ran = Number(text=_value(value, objective), value=value, key=f"plan {at}/{objective}")
            cells.append(ran if candidate.result is not None else Number(text="not run"))
        estimate = candidate.estimate[Objective.TIME]
        cells.append(
            Number(text=format_si(estimate, "s"), value=estimate, key=f"plan {at}/estimate {Objective.TIME}")
        )
        if candidate.result is not None:
            off = 100.0 * (estimate / candidate.value(Objective.TIME) - 1.0)
            cells.append(Number(text=f"{off:+.1f} %", value=off))
        else:
            cells.append(Number(text="\u2013"))
        bound = candidate.bound.step_time_s
        cells.append(Number(text=format_si(bound, "s"), value=bound, key=f"plan {at}/bound"))
        rows.append(
            [
                *cells,
                candidate.topology,
                candidate.placement,
                str(candidate.mode or "do not move"),
                candidate.refusal,
            ]
        )
    numbers = ("step time", "energy", "cost", "estimate", "estimate off", "bound")
    heads = ("plan", *numbers, "fabric", "placement", "circuits", "why not")
    return Sheet(title="Plans, the best first", heads=heads, rows=rows)
