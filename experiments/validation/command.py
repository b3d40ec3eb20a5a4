"""What ``heliograph validate`` does: read, predict, and say how far off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from experiments.validation.baseline_corrections import baselines_record, baselines_text
from experiments.validation.cells import Record, read_records
from experiments.validation.collective_simulator.tables import runs_record
from experiments.validation.collective_sizes import sizes_record, sizes_text
from experiments.validation.collectives import NEEDS as COLLECTIVE_COLUMNS
from experiments.validation.collectives import validate_collectives
from experiments.validation.corrections import corrections_record, corrections_text
from experiments.validation.figure import scatter
from experiments.validation.kernels import NEEDS as KERNEL_COLUMNS
from experiments.validation.kernels import validate_kernels
from experiments.validation.memory import NEEDS as MEMORY_COLUMNS
from experiments.validation.memory import validate_memory
from experiments.validation.network import NEEDS as NETWORK_COLUMNS
from experiments.validation.network import validate_network
from experiments.validation.network_differences import differences_record
from experiments.validation.network_slices import slices_record
from experiments.validation.network_tables import beside_text, claims_record, collectives_record
from experiments.validation.outcomes import FAR_OFF, Outcome, Statistics, Validation
from experiments.validation.photonic import NEEDS as PHOTONIC_COLUMNS
from experiments.validation.photonic import validate_photonic
from experiments.validation.task_graphs import read_networks
from experiments.validation.traces import traces_record
from experiments.validation.training import NEEDS as TRAINING_COLUMNS
from experiments.validation.training import validate_training
from heliograph.records import canonical_json, write_atomically
from heliograph.report import ReportRow, table_text
from simulator.errors import HeliographError, ParameterError, nearest

REFERENCE = Path(__file__).parent / "reference"
"""Tables that ship."""
MOST_NAMED = 40
"""Most rows that are named on the terminal."""
_TABLE_WIDTH = 150
_MOST_REASONS = 12
_LONGEST_SOURCE = 64
_LONGEST_ROW = 120

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One thing that can be validated."""

    needs: Sequence[Sequence[str]]
    """Columns without which a file is not of this kind."""
    run: Callable[[Sequence[Record], Progress | None], tuple[Outcome, ...]]
    """What turns rows into outcomes."""
    read: Callable[[Path, Sequence[Sequence[str]]], list[Record]] = lambda path, needs: read_records(
        path, needs=needs
    )
    """What reads a file, and where it has a use for one a directory."""
    beside: Callable[[Validation], str] | None = None
    """What the terminal shows below, if anything."""
    beside_records: Mapping[str, Callable[[Validation], list[dict[str, Any]]]] = field(default_factory=dict)
    """The same as plain data, for ``--out``, by what each file is called after."""
    names_skipped: bool = False
    """Whether the terminal names each skipped row below its reason."""


KINDS = MappingProxyType(
    {
        "training": Kind(
            needs=TRAINING_COLUMNS,
            run=lambda records, progress: validate_training(records, progress=progress),
        ),
        "kernels": Kind(needs=KERNEL_COLUMNS, run=lambda records, _: validate_kernels(records)),
        "collectives": Kind(
            needs=COLLECTIVE_COLUMNS,
            run=lambda records, _: validate_collectives(records),
            beside=lambda found: sizes_text(found.outcomes),
            beside_records=MappingProxyType({"sizes": lambda found: sizes_record(found.outcomes)}),
        ),
        "memory": Kind(needs=MEMORY_COLUMNS, run=lambda records, _: validate_memory(records)),
        "photonic": Kind(
            needs=PHOTONIC_COLUMNS,
            run=lambda records, _: validate_photonic(records),
            beside=lambda _: f"{corrections_text()}\n{baselines_text()}",
            beside_records=MappingProxyType(
                {"corrections": lambda _: corrections_record(), "baselines": lambda _: baselines_record()}
            ),
            names_skipped=True,
        ),
        "network": Kind(
            needs=NETWORK_COLUMNS,
            run=lambda records, _: validate_network(records),
            read=read_networks,
            beside=lambda found: beside_text(found.outcomes),
            beside_records=MappingProxyType(
                {
                    "rings": lambda found: runs_record(found.outcomes),
                    "traces": lambda _: traces_record(),
                    "claims": lambda _: claims_record(),
                    "differences": lambda _: differences_record(),
                    "slices": lambda _: slices_record(),
                    "collectives": lambda _: collectives_record(),
                }
            ),
        ),
    }
)
"""What can be validated."""


def validate(kind: str, *, data: Path | None = None, progress: Progress | None = None) -> Validation:
    """Return how predictions compare with published measurements.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    data : pathlib.Path, optional
        CSV file of measurements, for networks also a directory of task graphs; the shipped table by default.
    progress : callable, optional
        Told a label, how many rows are done, and how many there are.

    Raises
    ------
    HeliographError
        If there is no such kind, no table of it ships, or the file cannot be used.
    """
    if kind not in KINDS:
        msg = f"nothing called '{kind}' to validate; {nearest(kind, KINDS, noun='kind')}"
        raise ParameterError(msg)
    path = REFERENCE / f"{kind}.csv" if data is None else data
    if data is None and not path.is_file():
        msg = f"no table of {kind} ships with the project; name one with --data FILE.csv"
        raise HeliographError(msg)
    records = KINDS[kind].read(path, KINDS[kind].needs)
    return Validation(kind=kind, outcomes=KINDS[kind].run(records, progress))


def write(validation: Validation, directory: Path) -> tuple[Path, ...]:
    """Write ``validation.json`` and the scatter plot to a directory; return the files.

    Raises
    ------
    HeliographError
        If it cannot be made or written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make {directory} ({error.strerror}); name another directory with --out"
        raise HeliographError(msg) from error
    record = directory / f"validate-{validation.kind}.json"
    write_atomically(record, canonical_json(validation.record(), indent=1) + "\n")
    written = [record]
    kind = KINDS.get(validation.kind)
    for name, records in kind.beside_records.items() if kind is not None else ():
        beside = directory / f"validate-{validation.kind}-{name}.json"
        write_atomically(beside, canonical_json(records(validation), indent=1) + "\n")
        written.append(beside)
    if not validation.predicted:
        return tuple(written)
    return (*written, *scatter(validation, directory / f"validate-{validation.kind}"))


def report(validation: Validation) -> str:
    """Return what the terminal shows: statistics by source, rows that miss, reasons of skipped rows."""
    columns = ("rows", "mean", "median", "p90", "max", "bias", "constant", "skipped")
    skipped = Counter(one.source for one in validation.skipped)
    rows = [
        ReportRow(label=_shortened(source), values=(*_cells(found), str(skipped[source] or "")))
        for source, found in validation.by_source().items()
    ]
    overall = (*_cells(validation.overall()), str(len(validation.skipped) or ""))
    rows.append(ReportRow(label="all", values=overall, section=True))
    title = f"Predicted against published: {validation.kind} (relative error of each row)"
    parts = [table_text(title, columns, rows, width=_TABLE_WIDTH), *_misses(validation)]
    kind = KINDS.get(validation.kind)
    parts += _skipped(validation, named=kind is not None and kind.names_skipped)
    if kind is not None and kind.beside is not None:
        parts += ["\n", kind.beside(validation)]
    return "".join(parts)


def _skipped(validation: Validation, *, named: bool) -> list[str]:
    reasons = Counter(one.skipped for one in validation.skipped)
    if not reasons:
        return []
    lines = [f"\nSkipped {len(validation.skipped)} rows:\n"]
    for reason, count in reasons.most_common(None if named else _MOST_REASONS):
        lines.append(f"  {count:4d}  {reason}\n")
        if named:
            lines += [
                f"        {_shortened(one.id, _LONGEST_ROW)}\n"
                for one in validation.skipped
                if one.skipped == reason
            ]
    if not named and len(reasons) > _MOST_REASONS:
        lines.append(f"        and {len(reasons) - _MOST_REASONS} more reasons; --json gives each row's\n")
    return lines


def _misses(validation: Validation) -> list[str]:
    rows = validation.far_off
    if not rows:
        return [f"\nNo row misses by more than {FAR_OFF:.0%}.\n"]
    lines = [f"\nRows that miss by more than {FAR_OFF:.0%} ({len(rows)}), and where their time goes:\n"]
    lines += [
        f"  {one.id}  {one.relative_error or 0.0:+.0%}  {one.hint}\n".rstrip() + "\n"
        for one in rows[:MOST_NAMED]
    ]
    if len(rows) > MOST_NAMED:
        lines.append(f"  and {len(rows) - MOST_NAMED} more; --json gives every row\n")
    return lines


def _shortened(text: str, most: int = _LONGEST_SOURCE) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _cells(found: Statistics) -> tuple[str, ...]:
    errors = (found.mean_abs_error, found.median, found.p90, found.max)
    shown = [_percent(value) for value in errors]
    bias = "-" if found.bias is None else f"{found.bias:+.1%}"
    return (str(found.n), *shown, bias, _percent(found.constant_mean_abs_error))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
