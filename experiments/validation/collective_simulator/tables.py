"""Beside each repeated run: what its wires allow, and whether that simulator beats what ports can carry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from experiments.validation.collective_simulator.runs import Run
from experiments.validation.collective_simulator.wires import ports_bound_s, wires_s
from experiments.validation.outcomes import Outcome
from heliograph.report import ReportRow, table_text

_TABLE_WIDTH = 130


def answers(run: Run) -> dict[str, float | bool | str]:
    """Return the physical time of a run, the time that no algorithm beats, and whether ASTRA-sim's does."""
    bound_s = ports_bound_s(run)
    shapes = "-".join(one.wires.shape.value for one in run.dimensions)
    methods = "-".join(one.method.value for one in run.dimensions)
    backend = "aware" if run.queued else "unaware"
    return {
        "kind": f"{backend} {run.kind.value} {shapes} {methods}",
        "wires_s": wires_s(run),
        "ports_bound_s": bound_s,
        "simulator_beats_ports": run.simulated_s() < bound_s,
    }


def runs_record(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return, of the runs among some rows, that simulator's time and the physical ones as plain data.

    Rows of other kinds have answers of their own beside them (`size_bytes` of a measured collective).
    """
    found = {
        one.id: {"run": one.id, "simulated_s": one.predicted, **one.beside}
        for one in outcomes
        if "wires_s" in one.beside and one.predicted is not None
    }
    return list(found.values())


def runs_text(outcomes: Iterable[Outcome]) -> str:
    """Return the same as a table of kinds of runs; nothing if there is no run."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in runs_record(outcomes):
        kinds.setdefault(one["kind"], []).append(one)
    rows = []
    for name, runs in sorted(kinds.items()):
        ratios = [one["simulated_s"] / one["wires_s"] for one in runs]
        early = sum(one["simulator_beats_ports"] for one in runs)
        cells = (f"{len(runs)}", f"{min(ratios):.3f}", f"{max(ratios):.3f}", f"{early}")
        rows.append(ReportRow(label=name, values=cells))
    if not rows:
        return ""
    title = "ASTRA-sim's times over what the same wires allow, and how many are sooner than ports can carry"
    columns = ("runs", "least", "most", "too soon")
    return table_text(title, columns, rows, width=_TABLE_WIDTH)
