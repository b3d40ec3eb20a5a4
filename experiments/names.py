"""Names to choose from with every parameter, and two runs beside each other with what differs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.catalogue import LISTINGS, Parameter, description, listing, parameter_lines
from heliograph.parameters import unit_of
from heliograph.records import CONFIG, SUMMARY
from heliograph.report import ReportRow, ReportTable, format_quantity
from simulator.errors import ParameterError, is_number
from simulator.files import read_json_value


@dataclass(frozen=True, kw_only=True)
class Named(Result):
    """Names of a kind with one line on each."""

    names: dict[str, str]
    """Text by name."""

    def report(self) -> list[Block]:
        """Return a line for each name."""
        width = max(len(name) for name in self.names)
        return [f"{name:<{width}}  {text}" for name, text in self.names.items()]

    def record(self) -> dict[str, Any]:
        """Return the names as plain data."""
        return {"names": self.names}

    def rows(self) -> list[Row]:
        """Return a row for each name."""
        return [{"name": name, "text": text} for name, text in self.names.items()]


@dataclass(frozen=True, kw_only=True)
class Names(Study):
    """Names of systems, models, cores, fabrics, devices or parts, or the keys of a plan."""

    what: str = option(..., "what is listed", metavar="|".join(LISTINGS), positional=True)

    def run(self, progress: Progress) -> Named:
        """Return the names."""
        return Named(names=listing(self.what))


@dataclass(frozen=True, kw_only=True)
class Described(Result):
    """Parameters of something."""

    parameters: tuple[Parameter, ...]
    """All of them."""

    def report(self) -> list[Block]:
        """Return a line for each parameter."""
        return list(parameter_lines(self.parameters))

    def record(self) -> dict[str, Any]:
        """Return the parameters as plain data."""
        return {"parameters": self.rows()}

    def rows(self) -> list[Row]:
        """Return a row for each parameter."""
        return [dataclasses.asdict(one) for one in self.parameters]


@dataclass(frozen=True, kw_only=True)
class Parameters(Study):
    """Every parameter of something by name."""

    name: str = option(..., "system, core, fabric, accelerator, device or model", positional=True)

    def run(self, progress: Progress) -> Described:
        """Return its parameters."""
        return Described(parameters=tuple(description(self.name)))


COMPARE = "compare"
"""Command whose directory has them."""
INPUT_KEYS = ("options", "arguments", "versions", "git_commit", "table_sha256", "systems", "seed", "axes")
"""Keys of a record that were asked for, not found."""
_NO_OUTPUT = frozenset({"schema", "version", "command", "created", "fingerprint", "settings", "files"})
MOST_SHOWN = 60
"""Most outputs that the terminal shows, the largest changes first; a choice. ``--csv`` has all."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Inputs and outputs of one run, by dotted name."""

    path: Path
    """Directory or file of the run."""
    command: str
    """Words of the command."""
    schema: int
    """Version of the layout of the record."""
    inputs: Mapping[str, Any]
    """Options of the run."""
    outputs: Mapping[str, Any]
    """Results of the run."""


def read_run(path: Path) -> Run:
    """Return a run from its directory or its record.

    Parameters
    ----------
    path : pathlib.Path
        What ``--out`` was given, or the ``.json`` in it.

    Raises
    ------
    ParameterError
        If there is none, or what stands there is no record of this program.
    """
    if path.is_dir() and (path / SUMMARY).is_file():
        found = _checked(path / SUMMARY, text=("version", "fingerprint"), mappings=())
        asked = _checked(path / CONFIG, text=(), mappings=("arguments", "systems"))
        return _run(path, COMPARE, asked, found)
    if path.is_dir():
        records = sorted(path.glob("*.json"))
        if len(records) != 1:
            what = ", ".join(one.name for one in records) or "no record"
            msg = f"{path} holds {what}; name the .json of one run"
            raise ParameterError(msg)
        path = records[0]
    if not path.is_file():
        msg = f"there is no run at {path}; name a directory that --out was given, or the .json in it"
        raise ParameterError(msg)
    record = _checked(path, text=("version", "command"), mappings=("options",))
    return _run(path, record["command"], record, record)


def _run(path: Path, command: str, asked: Mapping[str, Any], found: Mapping[str, Any]) -> Run:
    return Run(
        path=path, command=command, schema=found["schema"], inputs=_inputs(asked), outputs=_outputs(found)
    )


def _checked(path: Path, *, text: Sequence[str], mappings: Sequence[str]) -> dict[str, Any]:
    """Return a JSON record after a look at the head that every record of this program has."""
    record = read_json_value(path)
    kinds = {"schema": int, **dict.fromkeys(text, str), **dict.fromkeys(mappings, dict)}
    what = "" if isinstance(record, dict) else "it is no JSON object"
    for key, kind in kinds.items():
        if not what and type(record.get(key)) is not kind:  # True is an int to isinstance
            what = f"its '{key}' is missing or of another kind"
    if what:
        msg = f"{path} is no record of a run: {what}; name what --out or --json wrote"
        raise ParameterError(msg)
    return record


def _comparable(first: Run, second: Run) -> tuple[Run, Run]:
    """Return two runs of one command and one layout; others have nothing of which a difference tells."""
    if first.command != second.command:
        msg = (
            f"{first.path} is a run of '{first.command}', {second.path} of '{second.command}'; "
            "name two runs of one command"
        )
        raise ParameterError(msg)
    if first.schema != second.schema:
        msg = (
            f"the record of {first.path} has layout {first.schema}, that of {second.path} {second.schema}; "
            "run the older again"
        )
        raise ParameterError(msg)
    return first, second


def _inputs(record: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_leaves({key: record[key] for key in INPUT_KEYS if key in record}))


def _outputs(record: Mapping[str, Any]) -> dict[str, Any]:
    known = {*INPUT_KEYS, *_NO_OUTPUT} - ({"systems"} if isinstance(record.get("systems"), list) else set())
    return dict(_leaves({key: value for key, value in record.items() if key not in known}))


def _leaves(value: object, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every number and text of a record; members of a list by what they are of, else by their place."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, f"{above}.{key}" if above else str(key))
    elif isinstance(value, list):
        names = [one.get("system") or one.get("name") for one in value if isinstance(one, Mapping)]
        by_name = len(names) == len(value) == len(set(names)) and all(isinstance(one, str) for one in names)
        for place, one in enumerate(value):
            yield from _leaves(one, f"{above}.{names[place] if by_name else place}")
    else:
        yield above, value


@dataclass(frozen=True, kw_only=True)
class Change:
    """A value that is not the same in both runs."""

    name: str
    """Dotted name."""
    first: Any
    """Value in the first run; None where it is missing."""
    second: Any
    """Value in the second."""

    @property
    def relative(self) -> float | None:
        """Second over first, less one; None where that is no number."""
        if not (is_number(self.first) and is_number(self.second)) or self.first == 0.0:
            return None
        return float(self.second / self.first) - 1.0


def changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Change]:
    """Return the differences between two sets of values, in their order."""
    names = dict.fromkeys([*first, *second])
    found = [Change(name=name, first=first.get(name), second=second.get(name)) for name in names]
    return [one for one in found if one.first != one.second]


@dataclass(frozen=True, kw_only=True)
class Differences(Result):
    """Differences between two runs."""

    runs: tuple[Run, Run]
    """The runs."""

    @property
    def inputs(self) -> list[Change]:
        """Inputs that differ."""
        return changes(self.runs[0].inputs, self.runs[1].inputs)

    @property
    def outputs(self) -> list[Change]:
        """Outputs that differ, the largest relative change first, those without one last."""
        found = changes(self.runs[0].outputs, self.runs[1].outputs)
        return sorted(found, key=lambda one: -_size(one.relative))

    def report(self) -> list[Block]:
        """Return both lists."""
        heads = [str(one.path) for one in self.runs]
        inputs, outputs = self.inputs, self.outputs
        if not inputs and not outputs:
            return ["The runs are the same: every input, every output."]

        def row(one: Change, *more: str) -> ReportRow:
            return ReportRow(one.name, (_told(one.name, one.first), _told(one.name, one.second), *more))

        blocks: list[Block] = ["No input differs."]
        if inputs:
            blocks = [ReportTable("Inputs that differ", heads, [row(one) for one in inputs])]
        if not outputs:
            return [*blocks, "No output differs: these inputs move nothing that the runs tell."]
        lines = [row(one, _percent(one.relative)) for one in outputs[:MOST_SHOWN]]
        blocks += ["", ReportTable("Outputs that differ", [*heads, "change"], lines)]
        more = len(outputs) - MOST_SHOWN
        return blocks + ([f"{more:,} smaller ones: --csv"] if more > 0 else [])

    def record(self) -> dict[str, Any]:
        """Return both lists as plain data."""
        return {
            "runs": [str(one.path) for one in self.runs],
            "inputs": [_row("input", one) for one in self.inputs],
            "outputs": [_row("output", one) for one in self.outputs],
        }

    def rows(self) -> list[Row]:
        """Return a row for each value that differs."""
        return [_row("input", one) for one in self.inputs] + [_row("output", one) for one in self.outputs]


def _row(kind: str, one: Change) -> Row:
    row = {"kind": kind, "name": one.name, "first": one.first, "second": one.second}
    row = {key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in row.items()}
    return row | {"relative_change": one.relative}


def _size(relative: float | None) -> float:
    return -1.0 if relative is None or math.isnan(relative) else abs(relative)


def _percent(relative: float | None) -> str:
    return "" if relative is None else f"{relative:+.3g}" if abs(relative) > 10.0 else f"{relative:+.2%}"


def _told(name: str, value: object) -> str:
    if value is None:
        return "-"
    if not is_number(value):
        text = str(value)
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}\u2026"
    unit = unit_of(name, without="")
    return f"{value:.6g}" if unit in ("", "bit") else format_quantity(float(value), unit)


LONGEST = 40
"""Letters of a text that the terminal shows; a choice."""


@dataclass(frozen=True, kw_only=True)
class Diff(Study):
    """Two runs, by the directories or records that they left."""

    first: Path = option(
        ..., "directory of a run (--out), or the .json in it", positional=True, metavar="RUN"
    )
    second: Path = option(..., "the other", positional=True, metavar="OTHER")

    def run(self, progress: Progress) -> Differences:
        """Return the differences between both runs.

        Raises
        ------
        ParameterError
            If a file is no record of a run, or the runs are of different commands.
        """
        del progress
        return Differences(runs=_comparable(read_run(self.first), read_run(self.second)))
