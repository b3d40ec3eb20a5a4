"""What a search prints and writes: the winner, its distance from the bound, and the tables."""

from __future__ import annotations

from typing import Any

from experiments.report import ReportRow, format_si, report_row
from experiments.search import Candidate, Search
from experiments.search_estimates import Objective
from experiments.search_layout import topology_text
from experiments.step import plan_text

UNITS = {Objective.TIME: "s", Objective.ENERGY: "J", Objective.COST: "$"}
"""Unit of each objective."""


def _told(one: Candidate, objective: Objective) -> str:
    value = one.value(objective)
    return f"{value:.4g} $" if objective is Objective.COST else format_si(value, UNITS[objective])


def winner_rows(found: Search) -> list[ReportRow]:
    """Return the lines on the best plan."""
    winner = found.winner
    bound = winner.bound
    time_s = winner.value(Objective.TIME)
    error = winner.estimate[Objective.TIME] / time_s - 1.0
    return [
        report_row("plan", (plan_text(winner.plan),), f"least {found.objective}"),
        report_row("placement", (winner.placement,), "nearest first"),
        report_row("topology", (topology_text(winner),), "laid out for this plan"),
        report_row("schedule", (str(winner.plan.schedule),), "of the pipeline"),
        report_row("circuits", (str(winner.mode or "do not move"),), "the best"),
        report_row("step time", (_told(winner, Objective.TIME),), "simulated", section=True),
        report_row("  estimate", (f"{100 * error:+.1f} %",), "of that"),
        report_row("energy of a step", (_told(winner, Objective.ENERGY),), "simulated"),
        report_row("cost of a step", (_told(winner, Objective.COST),), "assumed"),
        report_row("bound", (format_si(bound.step_time_s, "s"),), bound.what, section=True),
        report_row("  compute, any plan", (format_si(bound.compute_s, "s"),), "at the peak"),
        report_row("  memory, this plan", (format_si(bound.memory_s, "s"),), "the optimizer"),
        report_row("  port, this plan", (format_si(bound.port_s, "s"),), "line rate"),
        report_row("step over bound", (f"{time_s / bound.step_time_s:.2f}",), "ratio"),
    ]


def fabric_rows(found: Search) -> dict[str, list[ReportRow]]:
    """Return the lines on the best plans of each topology, the best first."""
    tables: dict[str, list[ReportRow]] = {}
    for one in sorted(found.found, key=lambda each: (each.result is None, each.value(found.objective))):
        shown = _told(one, found.objective) if one.result else "not run"
        note = one.placement if one.result else one.refusal
        label = _short(one)
        tables.setdefault(one.topology, []).append(report_row(label, (shown,), note))
    return tables


def _short(one: Candidate) -> str:
    plan = one.plan
    degrees = " ".join(
        f"{name}{getattr(plan, name)}"
        for name in ("tp", "cp", "pp", "dp", "ep", "vpp")
        if getattr(plan, name) > 1
    )
    return f"{degrees} mb{plan.micro_batch} zero{plan.zero} {plan.schedule} recompute {plan.recompute}"


def search_record(found: Search) -> dict[str, Any]:
    """Return a search as plain data; what was not run yet stands under ``waiting``."""
    ran = sorted(found.found, key=lambda each: (each.result is None, each.value(found.objective)))
    return {
        "model": found.model,
        "objective": str(found.objective),
        "ranked": found.ranked,
        "rejected": found.rejected,
        "not_tried": found.unplaced,
        "found": [one.record() for one in ran],
        "waiting": [one.record() for one in found.waiting],
    }
