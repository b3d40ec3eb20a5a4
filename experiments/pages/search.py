"""Page of a search for the best plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.pages import asked, end, sheet
from experiments.search import Search, short, winner_rows
from experiments.study import Study
from heliograph.catalogue import show
from heliograph.comparison.plan_estimates import Objective
from heliograph.comparison.plan_search import Candidate
from heliograph.report import ReportTable, format_si
from heliograph.report_page.drawings import Bar, Line, bars, colour, colours_of, lines
from heliograph.report_page.page import Cell, Drawing, Formula, Number, Page, Section, Sheet, sheet_of
from heliograph.report_page.provenance import DERIVED, SIMULATED, step_formulas, told
from workloads.plan.plan import plan_text

WINNER, BEST = "best plan", "best"
"""First part of the keys of what a number of the best plan unfolds to; key of those in its first table."""
SHOWN = {
    Objective.TIME: ("step time", "s"),
    Objective.ENERGY: ("energy", "J"),
    Objective.COST: ("cost", "USD"),
}
"""Name and unit of each objective."""


def page(name: str, study: Study, found: Search, document: Mapping[str, Any]) -> Page:
    """Return the page of a search."""
    winner = found.winner
    ran = [one for one in found.found if one.result is not None]
    best = _value(winner.value(found.objective), found.objective)
    left: list[Sequence[Cell]] = [
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
                sheet(ReportTable("Its plan, its step and its bound", ["value"], rows), "what", key=BEST),
                *_winner(winner),
            ],
        ),
        Section(title="The plans that were run", blocks=[_pictures(found), _candidates(found)]),
        Section(
            title="Plans left out",
            blocks=[
                Sheet(title="Plans by the first rule that they break", heads=("rule", "plans"), rows=left)
            ],
        ),
        Section(
            title="Every number that the best system is made of",
            blocks=[sheet_of({winner.system.name: parameters}, "Parameters")],
        ),
        end(document),
    ]
    return Page(
        title=title, asked=asked(name, study, document), answers=answers, sections=sections, formulas=formulas
    )


def _value(value: float, objective: Objective) -> str:
    unit = SHOWN[objective][1]
    return f"{value:.3g} USD" if unit == "USD" else format_si(value, unit)


def _ordered(found: Search) -> list[Candidate]:
    return sorted(found.found, key=lambda one: (one.result is None, one.value(found.objective)))


def _formulas(found: Search) -> dict[str, Formula]:
    """Return what estimates, simulated values and bounds of every plan unfold to."""
    formulas = {
        BEST: Formula(
            label="best plan",
            text="step of the simulated plan, its closed form, and the times below which no such step can be",
            status=SIMULATED,
            source="simulator/engine; simulator/estimate/step.py; plan_estimates.py: bound_of",
            follows=(f"plan 0/{found.objective}", f"plan 0/estimate {found.objective}", "plan 0/bound"),
        )
    }
    for at, one in enumerate(_ordered(found)):
        for objective in Objective:
            formulas[f"plan {at}/estimate {objective}"] = Formula(
                label=f"estimated {SHOWN[objective][0]}",
                text="closed form of the step: passes, bubble, exposed communication and changes of circuits",
                status=DERIVED,
                source="simulator/estimate/step.py; workloads/search/costs.py",
                value=_value(one.estimate[objective], objective),
            )
            if one.result is not None:
                formulas[f"plan {at}/{objective}"] = Formula(
                    label=SHOWN[objective][0],
                    text="of the simulated step: events of compute, network and circuits on one clock",
                    status=SIMULATED,
                    source="simulator/engine",
                    value=_value(one.value(objective), objective),
                    follows=(f"plan {at}/estimate {objective}", f"plan {at}/bound"),
                )
        bound = one.bound
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


def _winner(winner: Candidate) -> list[Sheet | Drawing]:
    """Return time and energy of the best plan by part."""
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
    svg = bars(title, [Bar(label=short(winner), parts=time)], colours, unit="s")
    return [
        Sheet(title="Numbers of its step", heads=("number", "value"), rows=cells),
        Drawing(title=title, svg=svg, legend=list(colours.items())),
    ]


def _pictures(found: Search) -> list[Drawing]:
    """Return energy over time of the plans that ran, and estimate against engine."""
    ran = [one for one in found.found if one.result is not None]
    by_fabric: dict[str, list[Candidate]] = {}
    for one in ran:
        by_fabric.setdefault(one.topology, []).append(one)
    legend = [(name, colour(at)) for at, name in enumerate(by_fabric)]
    fronts = [
        Line(
            label=name,
            points=[(one.value(Objective.TIME), one.value(Objective.ENERGY)) for one in members],
            joined=False,
        )
        for name, members in by_fabric.items()
    ]
    held = [
        Line(
            label=name,
            points=[(one.estimate[Objective.TIME], one.value(Objective.TIME)) for one in members],
            joined=False,
        )
        for name, members in by_fabric.items()
    ]
    first, second = "Energy of a step over its time: lower left is better", "Engine over estimate"
    return [
        Drawing(
            title=first,
            svg=lines(first, fronts, x=("step time", "s"), y=("energy of a step", "J")),
            legend=legend,
        ),
        Drawing(
            title=second,
            svg=lines(second, held, x=("estimated step time", "s"), y=("simulated step time", "s")),
            legend=legend,
        ),
    ]


def _candidates(found: Search) -> Sheet:
    """Return the table of the plans that were run, the best first."""
    rows: list[Sequence[Cell]] = []
    for at, one in enumerate(_ordered(found)):
        cells: list[Cell] = [plan_text(one.plan)]
        for objective in Objective:
            value = one.value(objective)
            ran = Number(text=_value(value, objective), value=value, key=f"plan {at}/{objective}")
            cells.append(ran if one.result is not None else Number(text="not run"))
        estimate = one.estimate[Objective.TIME]
        cells.append(
            Number(text=format_si(estimate, "s"), value=estimate, key=f"plan {at}/estimate {Objective.TIME}")
        )
        if one.result is not None:
            off = 100.0 * (estimate / one.value(Objective.TIME) - 1.0)
            cells.append(Number(text=f"{off:+.1f} %", value=off))
        else:
            cells.append(Number(text="\u2013"))
        bound = one.bound.step_time_s
        cells.append(Number(text=format_si(bound, "s"), value=bound, key=f"plan {at}/bound"))
        rows.append([*cells, one.topology, one.placement, str(one.mode or "do not move"), one.refusal])
    heads = (
        "plan",
        "step time",
        "energy",
        "cost",
        "estimate",
        "estimate off",
        "bound",
        "fabric",
        "placement",
    )
    return Sheet(title="Plans, the best first", heads=(*heads, "circuits", "why not"), rows=rows)
