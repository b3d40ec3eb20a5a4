"""HTML page of one photonic core (`experiments.cores.one`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from experiments.cores.one import (
    CHANGES,
    PHASE_TITLES,
    STAGES,
    CoreResult,
    PhaseEnergy,
    cause_numbers,
    light_tables,
    precision_report,
    strongest,
    summary_lines,
    training_j_per_mac,
)
from heliograph.report import format_quantity, format_si
from heliograph.report_page.drawings import Bar, Drawing, Line, Span, bars, colour, lines, spans
from heliograph.report_page.page import (
    DERIVED,
    Cell,
    Formula,
    Number,
    Page,
    Section,
    Sheet,
    parameter_formulas,
    part_inputs,
    sheet_of,
    told_sheet,
)
from heliograph.systems.sanity_checks import light_limits

CORE = "core"
"""First part of the keys of the formulas on a core's page."""
LINK, EXECUTED, SWING = "link budget", "executed", "swing"
"""Keys of the formulas that all numbers of a table share."""


def page(found: CoreResult) -> Page:
    """Return the page of a core."""
    bench = found.bench
    mean, gpu = training_j_per_mac(found.energies), found.gpu_j_per_mac
    worth = f"{gpu / mean:.1f} times less" if mean < gpu else f"{mean / gpu:.1f} times more"
    snr = f"{found.present.snr_db:.1f} dB of signal over noise on {found.curve.operands} operands"
    answers = [
        f"{bench.name} takes {format_si(mean, 'J')} a multiply-accumulate, {worth} than {bench.gpu.name} "
        f"({format_si(gpu, 'J')}), and delivers {snr}.",
        *summary_lines(found),
        *(f"Beyond a limit: {said}." for said in light_limits(bench.unit)),
        "Every underlined number unfolds to its formula, inputs, status and source.",
    ]
    paths = [told_sheet(one, "element", key=LINK) for one in light_tables(found, "value")]
    sections = [
        Section(title="Where the energy goes", blocks=[_energy_picture(found), _energy_sheet(found)]),
        Section(
            title="Where precision goes",
            blocks=[
                _snr_picture(found),
                told_sheet(precision_report(found), "operands", key=EXECUTED),
                *paths,
            ],
        ),
        Section(title="Effect of each uncertain number", blocks=[_tornadoes(found), _swings(found)]),
        Section(
            title="Every number that it is made of",
            blocks=[sheet_of({bench.name: found.parameters}, "Parameters of the accelerator")],
        ),
    ]
    return Page(
        title=f"Photonic core {bench.name}: energy, precision, and what each number does",
        answers=answers,
        sections=sections,
        formulas=_formulas(found),
    )


def _formulas(found: CoreResult) -> dict[str, Formula]:
    """Return the formulas of the page's numbers, by key."""
    paths = [one.path for one in found.parameters]
    formulas: dict[str, Formula] = {}
    for one in found.energies:
        phase = str(one.phase)
        formulas[f"{CORE}/{phase}"] = Formula(
            label=f"energy per multiply-accumulate, {phase}",
            text="sum of the stages",
            status=DERIVED,
            source="experiments/cores/one.py: phase_energy",
            value=format_si(one.j_per_mac, "J"),
            follows=tuple(f"{CORE}/{phase}/{stage}" for stage in one.j_per_mac_by_stage),
        )
        formulas[f"{CORE}/{phase}/time"] = Formula(
            label=f"time, {phase}",
            text="symbols that the product sends / symbol rate, loading and memory where they take longer",
            status=DERIVED,
            source="optical/accelerator.py: PhotonicUnit.cost",
            value=format_si(one.time_s, "s"),
            inputs=tuple(f"{CORE}/{path}" for path in paths if path.startswith(("core.", "memory."))),
        )
        formulas |= _stage_formulas(one, paths)
    gpu = found.bench.gpu.name
    formulas[f"{CORE}/gpu"] = Formula(
        label=f"energy per multiply-accumulate of a {gpu}",
        text="(energy of the three products + static power \u00d7 their time) / multiply-accumulates",
        status=DERIVED,
        source=f"experiments/cores/one.py: Bench.gpu_j_per_mac; heliograph show {gpu} has its numbers",
        value=format_si(found.gpu_j_per_mac, "J"),
    )
    core = tuple(f"{CORE}/{path}" for path in paths if path.startswith("core."))
    formulas[LINK] = Formula(
        label="light from source to sample",
        text="received power = power of the laser \u2212 losses in dB, divided among the outputs",
        status=DERIVED,
        source="optical/noise/link_budget.py; the law of each cause of noise is in docs/noise.md",
        inputs=core,
    )
    formulas[EXECUTED] = Formula(
        label="executed signal over noise",
        text="\u221210 log\u2081\u2080 of mean square error over mean square of executed products",
        status=DERIVED,
        source="heliograph/accuracy/precision.py: precision_table; "
        "heliograph core precision holds it to execution",
        inputs=core,
    )
    formulas[SWING] = Formula(
        label="change at an end of a number's range",
        text="the three products priced anew with this number alone at the end of its range",
        status=DERIVED,
        source="experiments/cores/one.py: tornado",
    )
    return formulas | parameter_formulas(CORE, found.parameters)


def _stage_formulas(one: PhaseEnergy, paths: Sequence[str]) -> dict[str, Formula]:
    """Return the formulas of the stages of a phase and of their parts, by key."""
    phase = str(one.phase)
    found: dict[str, Formula] = {}
    for stage, energy_j in one.j_per_mac_by_stage.items():
        members = [part for part in STAGES.get(stage, ()) if part in one.j_per_mac_by_part] or [
            part for part in one.j_per_mac_by_part if not any(part in parts for parts in STAGES.values())
        ]
        found[f"{CORE}/{phase}/{stage}"] = Formula(
            label=f"{stage}, {phase}",
            text="sum of its parts",
            status=DERIVED,
            source="experiments/cores/one.py: STAGES",
            value=format_si(energy_j, "J"),
            follows=tuple(f"{CORE}/{phase}/{stage}/{part}" for part in members),
        )
        for part in members:
            patterns = [each.removeprefix("photonic.").removeprefix("gpu.") for each in part_inputs(part)]
            inputs = [path for path in paths if any(fnmatchcase(path, pattern) for pattern in patterns)]
            found[f"{CORE}/{phase}/{stage}/{part}"] = Formula(
                label=f"{part}, {phase}",
                text="(energy of its events + its static power \u00d7 time) / multiply-accumulates",
                status=DERIVED,
                source="optical/devices/parts.py; optical/accelerator.py",
                value=format_si(one.j_per_mac_by_part[part], "J"),
                follows=(f"{CORE}/{phase}/time",),
                inputs=tuple(f"{CORE}/{path}" for path in inputs),
            )
    return found


def _stages(found: CoreResult) -> list[str]:
    present = dict.fromkeys(stage for one in found.energies for stage in one.j_per_mac_by_stage)
    return list(present)


def _energy_picture(found: CoreResult) -> Drawing:
    stages = _stages(found)
    gpu = found.bench.gpu.name
    colours = {stage: colour(at) for at, stage in enumerate(stages)} | {gpu: "var(--c10)"}
    stacked = [
        Bar(label=PHASE_TITLES[str(one.phase)], parts=one.j_per_mac_by_stage) for one in found.energies
    ]
    stacked.append(Bar(label=f"{gpu}, mean of the three", parts={gpu: found.gpu_j_per_mac}))
    title = f"Energy per multiply-accumulate of a layer's products, {found.bench.tokens:,} tokens"
    return bars(title, stacked, colours, unit="J")


def _energy_sheet(found: CoreResult) -> Sheet:
    rows: list[Sequence[Cell]] = []
    for stage in _stages(found):
        cells = []
        for one in found.energies:
            energy_j = one.j_per_mac_by_stage.get(stage, 0.0)
            key = f"{CORE}/{one.phase}/{stage}"
            cells.append(Number(text=format_si(energy_j, "J"), value=energy_j, key=key))
        rows.append([stage, *cells])
    whole = [
        Number(text=format_si(one.j_per_mac, "J"), value=one.j_per_mac, key=f"{CORE}/{one.phase}")
        for one in found.energies
    ]
    gpu = Number(text=format_si(found.gpu_j_per_mac, "J"), value=found.gpu_j_per_mac, key=f"{CORE}/gpu")
    rows += [["all stages", *whole], [f"{found.bench.gpu.name}, mean of the three", gpu, "", ""]]
    heads = ("stage", *(PHASE_TITLES[str(one.phase)] for one in found.energies))
    return Sheet(title="Energy per multiply-accumulate by stage", heads=heads, rows=rows)


def _snr_picture(found: CoreResult) -> Drawing:
    curve = found.curve
    together = [(x, y) for x, y in zip(curve.power_w, curve.snr_db, strict=True) if y is not None]
    drawn = [Line(label="all together", points=together, colour="var(--c10)")]
    for cause, number in cause_numbers(curve).items():
        limits = zip(curve.power_w, curve.limits[cause], strict=True)
        points = [(x, y) for x, y in limits if -10.0 <= y <= 70.0]
        drawn.append(Line(label=cause, points=points, colour=colour(number)))
    drawn = [one for one in drawn if one.points]
    title = "Signal over noise over laser power: each line is one cause alone"
    note = f"The laser has {format_si(curve.present_w, 'W')} now. Causes above 70 dB are left out."
    return replace(lines(title, drawn, x=("laser power", "W"), y=("signal over noise", "dB")), note=note)


def _tornadoes(found: CoreResult) -> list[Drawing]:
    """Return a tornado chart for each quantity that any parameter changes."""
    swings = {one.path.removeprefix("core."): one for one in found.swings}
    pictures = []
    for name, unit, change in CHANGES:
        shown = [
            Span(
                label=path,
                low=low,
                high=high,
                low_told=format_quantity(swings[path].low, swings[path].unit),
                high_told=format_quantity(swings[path].high, swings[path].unit),
            )
            for path, low, high in strongest(found.swings, found.present, change)
        ]
        if shown:
            title = f"{name}: each number at the ends of its range"
            note = "Logarithmic far from zero. \u00d7: the core does not work there."
            pictures.append(replace(spans(title, shown, unit=unit), note=note))
    return pictures


def _swings(found: CoreResult) -> Sheet:
    """Return the table of every parameter with a range, and of the changes at its ends."""
    rows: list[Sequence[Cell]] = []
    for one in found.swings:
        cells: list[Cell] = [
            Number(text=format_quantity(value, one.unit), value=value, key=key)
            for value, key in ((one.low, ""), (one.value, f"{CORE}/{one.path}"), (one.high, ""))
        ]
        for _, unit, change in CHANGES:
            for at in (one.at_low, one.at_high):
                moved = None if at is None else change(at, found.present)
                told = "does not work" if moved is None else f"{moved:+.3g} {unit}"
                cells.append(Number(text=told, value=moved, key=SWING))
        rows.append([one.path, *cells])
    heads = ["number", "low", "present", "high"]
    heads += [
        f"{name.lower().split(' per')[0]} at {which}" for name, _, _ in CHANGES for which in ("low", "high")
    ]
    return Sheet(title="Each number at both ends of its range, all else as it is", heads=heads, rows=rows)
