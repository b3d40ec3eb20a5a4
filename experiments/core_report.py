"""`heliograph core`: everything that is told and drawn of one core, gathered and written."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.catalogue import Parameter, parameters_of
from experiments.core import OTHER, PICOJOULE, STAGES, Bench, PhaseEnergy, training_j_per_mac
from experiments.core_bits import BitsCurve, bits_curve
from experiments.core_tornado import Answers, Swing, answers, tornado
from experiments.plain import csv_text, make_directory, write_atomically
from experiments.report import ReportRow, format_quantity, format_si


@dataclass(frozen=True, kw_only=True)
class CoreStudy:
    """What is told of one core."""

    bench: Bench
    """The accelerator."""
    energies: tuple[PhaseEnergy, ...]
    """Energy and time of the three products of a layer."""
    gpu_j_per_mac: float
    """The GPU's energy per multiply-accumulate over the same products."""
    curve: BitsCurve
    """Effective bits over laser power."""
    present: Answers
    """Energy, time and bits as the core stands."""
    swings: tuple[Swing, ...]
    """What the range of each parameter does to them."""
    parameters: tuple[Parameter, ...]
    """Every number of the accelerator, with unit, range, status and source."""

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "core": self.bench.name,
            "cores": self.bench.unit.cores,
            "gpu": self.bench.gpu.name,
            "tokens": self.bench.tokens,
            "gpu_j_per_mac": self.gpu_j_per_mac,
            "j_per_mac": self.present.j_per_mac,
            "effective_bits": self.present.effective_bits,
            "phases": [
                dataclasses.asdict(one) | {"j_per_mac": one.j_per_mac, "by_stage": one.j_per_mac_by_stage}
                for one in self.energies
            ],
            "bits": dataclasses.asdict(self.curve),
            "tornado": [dataclasses.asdict(one) for one in self.swings],
            "parameters": [dataclasses.asdict(one) for one in self.parameters],
        }


def study(bench: Bench) -> CoreStudy:
    """Return energy, bits and sensitivities of an accelerator's core."""
    return CoreStudy(
        bench=bench,
        energies=bench.energies(),
        gpu_j_per_mac=bench.gpu_j_per_mac(),
        curve=bits_curve(bench.unit.core),
        present=answers(bench.unit, bench.tokens),
        swings=tornado(bench.unit, bench.tokens),
        parameters=tuple(parameters_of(bench.unit)),
    )


def study_rows(found: CoreStudy) -> list[ReportRow]:
    """Return a study as lines of a table with a column for each phase."""
    energies = found.energies
    present = {stage for one in energies for stage in one.j_per_mac_by_stage}
    rows = [
        ReportRow(
            label="energy per multiply-accumulate",
            values=tuple(format_si(one.j_per_mac, "J") for one in energies),
            note="derived, of the numbers below",
        )
    ]
    rows += [
        ReportRow(
            label=f"  {stage}",
            values=tuple(format_si(one.j_per_mac_by_stage.get(stage, 0.0), "J") for one in energies),
            note="derived",
        )
        for stage in (*STAGES, OTHER)
        if stage in present
    ]
    rows += [
        ReportRow(
            label=f"{found.bench.gpu.name}, the same products",
            values=tuple(format_si(found.gpu_j_per_mac, "J") for _ in energies),
            note="mean of the three",
        ),
        ReportRow(
            label="time",
            values=tuple(format_si(one.time_s, "s") for one in energies),
            note="derived",
            section=True,
        ),
        ReportRow(
            label="die area of all cores and buffer",
            values=tuple(format_quantity(found.bench.unit.area_m2, "m^2") for _ in energies),
            note="derived",
        ),
        ReportRow(
            label="effective bits",
            values=tuple(f"{found.present.effective_bits:.2f}" for _ in energies),
            note="derived: link budget",
        ),
    ]
    limits = {cause: curve[len(curve) // 2] for cause, curve in found.curve.limits.items()}
    rows += [
        ReportRow(
            label=f"  {cause} alone",
            values=tuple(f"{limits[cause]:.2f}" for _ in energies),
            note=f"derived: {found.curve.name}" if found.curve.name != found.bench.name else "derived",
        )
        for cause in sorted(limits, key=lambda cause: limits[cause])
    ]
    return rows


def parameter_rows(found: CoreStudy) -> list[ReportRow]:
    """Return every number that the accelerator is made of as lines: value, low and high end, status."""
    rows = []
    for one in found.parameters:
        ends = tuple(
            "\u2013" if end is None else format_quantity(end, one.unit) for end in (one.low, one.high)
        )
        value = one.value if isinstance(one.value, str) else format_quantity(one.value, one.unit)
        rows.append(ReportRow(label=one.path, values=(value, *ends), note=one.status))
    return rows


def summary_lines(found: CoreStudy) -> list[str]:
    """Return what a table does not hold, in sentences."""
    unit, bench = found.bench.unit, found.bench
    mean = training_j_per_mac(found.energies) / PICOJOULE
    lines = [
        f"{unit.cores} cores with buffer and memory, without electronics for other work; the three products "
        f"of a layer with {bench.tokens} tokens: {mean:.3g} pJ per multiply-accumulate."
    ]
    moved = [one for one in found.swings if one.at_low and one.at_high]
    if moved:
        most = max(moved, key=_energy_range)
        low, high = (end.j_per_mac / PICOJOULE for end in (most.at_low, most.at_high) if end is not None)
        lines.append(
            f"Of {len(found.swings)} numbers with a range, {most.path} moves the energy most: "
            f"{min(low, high):.3g} to {max(low, high):.3g} pJ."
        )
    return lines


def _energy_range(swing: Swing) -> float:
    ends = [end.j_per_mac for end in (swing.at_low, swing.at_high) if end is not None]
    return max(ends) - min(ends)


def write(found: CoreStudy, directory: Path) -> list[Path]:
    """Write pictures (png and svg) and the numbers in them (csv); return what was written.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    from experiments.core_figures import bits_over_power, tornado_bars, waterfall  # noqa: PLC0415 - slow

    make_directory(directory)
    name, tokens = found.bench.name, found.bench.tokens
    shown = name.replace("_", " ")
    paths = [directory / f"{name}_{what}" for what in ("energy", "bits", "tornado")]
    title = f"{shown}: a layer's three products, {tokens} tokens"
    written = [
        *waterfall(found.energies, found.bench.gpu.name, found.gpu_j_per_mac, title, paths[0]),
        *bits_over_power(found.curve, paths[1]),
        *tornado_bars(
            found.swings, found.present, f"{shown}: each number at the ends of its range", paths[2]
        ),
    ]
    tables = (_energy_table(found), _bits_table(found.curve), _tornado_table(found))
    for path, table in zip(paths, tables, strict=True):
        written.append(path.with_suffix(".csv"))
        write_atomically(written[-1], csv_text(table))
    return written


def _energy_table(found: CoreStudy) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"phase": str(one.phase), "stage": stage, "energy_j_per_mac": energy_j}
        for one in found.energies
        for stage, energy_j in one.j_per_mac_by_stage.items()
    ]
    return [*rows, {"phase": "all", "stage": found.bench.gpu.name, "energy_j_per_mac": found.gpu_j_per_mac}]


def _bits_table(curve: BitsCurve) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for place, (power_w, bits) in enumerate(zip(curve.power_w, curve.bits, strict=True)):
        row: dict[str, object] = {"laser_power_w": power_w, "effective_bits": "" if bits is None else bits}
        rows.append(row | {cause: limit[place] for cause, limit in curve.limits.items()})
    return rows


def _tornado_table(found: CoreStudy) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for swing in found.swings:
        row: dict[str, object] = {
            "parameter": swing.path,
            "unit": swing.unit,
            "low": swing.low,
            "value": swing.value,
            "high": swing.high,
        }
        for end, answer in (("low", swing.at_low), ("high", swing.at_high)):
            values = dataclasses.asdict(answer) if answer else dict.fromkeys(_ANSWERS, "")
            row |= {f"{key}_at_{end}": value for key, value in values.items()}
        rows.append(row)
    return rows


_ANSWERS = tuple(item.name for item in dataclasses.fields(Answers))
