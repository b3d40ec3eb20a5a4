"""Commands that simulate nothing: ``list`` and ``show`` for names and parameters, ``diff`` for two runs."""

from __future__ import annotations

import dataclasses
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
class NameList(Result):
    """Names of a kind, such as all cores."""

    names: dict[str, str]
    """One line on each, by name."""

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

    def run(self, progress: Progress) -> NameList:
        """Return the names."""
        return NameList(names=listing(self.what))


@dataclass(frozen=True, kw_only=True)
class ParameterList(Result):
    """Parameters of a system, core, fabric, accelerator, device or model."""

    parameters: tuple[Parameter, ...]
    """Path, value, range, unit, status and source of each."""

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
    """Every parameter of a system, core, fabric, accelerator, device or model."""

    name: str = option(..., "system, core, fabric, accelerator, device or model", positional=True)

    def run(self, progress: Progress) -> ParameterList:
        """Return its parameters."""
        return ParameterList(parameters=tuple(description(self.name)))


COMPARE = "compare"
"""The command whose runs are directories with inputs and outputs in two files, `CONFIG` and `SUMMARY`."""
INPUT_KEYS = ("options", "arguments", "versions", "git_commit", "table_sha256", "systems", "seed", "axes")
"""Keys of a record that hold inputs of the run."""
_NEITHER = frozenset({"schema", "version", "command", "created", "fingerprint", "settings", "files"})
"""Keys of a record that hold neither inputs nor outputs."""
MOST_SHOWN = 60
"""Most outputs that the terminal shows, the largest changes first; a choice. ``--csv`` has all."""
LONGEST = 40
"""Letters of a text that the terminal shows; a choice."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Inputs and outputs of one run by dotted name, such as ``systems.gpu_packet.step_time_s``."""

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
        Directory that ``--out`` was given, or the ``.json`` in it.

    Raises
    ------
    ParameterError
        If there is no such file, or it is no record of this program.
    """
    if path.is_dir() and (path / SUMMARY).is_file():
        outputs = _read_record(path / SUMMARY, texts=("version", "fingerprint"), mappings=())
        inputs = _read_record(path / CONFIG, texts=(), mappings=("arguments", "systems"))
        return _run(path, COMPARE, inputs, outputs)
    if path.is_dir():
        records = sorted(path.glob("*.json"))
        if len(records) != 1:
            names = ", ".join(record.name for record in records) or "no record"
            msg = f"{path} holds {names}; name the .json of one run"
            raise ParameterError(msg)
        path = records[0]
    if not path.is_file():
        msg = f"there is no run at {path}; name a directory that --out was given, or the .json in it"
        raise ParameterError(msg)
    record = _read_record(path, texts=("version", "command"), mappings=("options",))
    return _run(path, record["command"], record, record)


def _run(path: Path, command: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Run:
    """Return a run from the records that hold its inputs and its outputs, mostly the same one."""
    known = {*INPUT_KEYS, *_NEITHER}
    if isinstance(outputs.get("systems"), list):  # results by system, not the systems that were asked for
        known.remove("systems")
    return Run(
        path=path,
        command=command,
        schema=outputs["schema"],
        inputs=dict(_leaves({key: inputs[key] for key in INPUT_KEYS if key in inputs})),
        outputs=dict(_leaves({key: value for key, value in outputs.items() if key not in known})),
    )


def _read_record(path: Path, *, texts: Sequence[str], mappings: Sequence[str]) -> dict[str, Any]:
    """Return a JSON record; it must have the keys that every record has, these texts and these mappings."""
    record = read_json_value(path)
    kinds = {"schema": int, **dict.fromkeys(texts, str), **dict.fromkeys(mappings, dict)}
    fault = "" if isinstance(record, dict) else "it is no JSON object"
    for key, kind in kinds.items():
        if not fault and type(record.get(key)) is not kind:  # True is an int to isinstance
            fault = f"its '{key}' is missing or of another kind"
    if fault:
        msg = f"{path} is no record of a run: {fault}; name what --out or --json wrote"
        raise ParameterError(msg)
    return record


def _comparable(first: Run, second: Run) -> tuple[Run, Run]:
    """Return two runs after checking that command and layout are the same, so that their names agree."""
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


def _leaves(value: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every number and text of a record with its dotted name.

    A member of a list is named by its ``system`` or ``name`` if all members have different ones, else by its
    index.
    """
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from _leaves(member, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list):
        names = [each.get("system") or each.get("name") for each in value if isinstance(each, Mapping)]
        named = len(names) == len(value) == len(set(names)) and all(isinstance(name, str) for name in names)
        for index, member in enumerate(value):
            yield from _leaves(member, f"{prefix}.{names[index] if named else index}")
    else:
        yield prefix, value


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
        """Second over first, less one; None if either is no number, or the first is zero."""
        if not (is_number(self.first) and is_number(self.second)) or self.first == 0.0:
            return None
        return float(self.second / self.first) - 1.0


def changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Change]:
    """Return the values by name that are not the same in both, in their order."""
    names = dict.fromkeys([*first, *second])
    every = [Change(name=name, first=first.get(name), second=second.get(name)) for name in names]
    return [change for change in every if change.first != change.second]


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
        return sorted(found, key=lambda change: -_magnitude(change.relative))

    def report(self) -> list[Block]:
        """Return a table of inputs and one of outputs, as far as any differ."""
        heads = [str(run.path) for run in self.runs]
        inputs, outputs = self.inputs, self.outputs
        if not inputs and not outputs:
            return ["The runs are the same: every input, every output."]

        def row(change: Change, *more: str) -> ReportRow:
            values = (_shown(change.name, value) for value in (change.first, change.second))
            return ReportRow(change.name, (*values, *more))

        blocks: list[Block] = ["No input differs."]
        if inputs:
            blocks = [ReportTable("Inputs that differ", heads, [row(change) for change in inputs])]
        if not outputs:
            return [*blocks, "No output differs: these inputs move nothing that the runs tell."]
        lines = [row(change, _percent(change.relative)) for change in outputs[:MOST_SHOWN]]
        blocks += ["", ReportTable("Outputs that differ", [*heads, "change"], lines)]
        more = len(outputs) - MOST_SHOWN
        return blocks + ([f"{more:,} smaller ones: --csv"] if more > 0 else [])

    def record(self) -> dict[str, Any]:
        """Return both lists as plain data."""
        return {
            "runs": [str(run.path) for run in self.runs],
            "inputs": [_row("input", change) for change in self.inputs],
            "outputs": [_row("output", change) for change in self.outputs],
        }

    def rows(self) -> list[Row]:
        """Return a row for each value that differs."""
        record = self.record()
        return [*record["inputs"], *record["outputs"]]


def _row(kind: str, change: Change) -> Row:
    """Return a difference as a row."""
    values = {"first": change.first, "second": change.second, "relative_change": change.relative}
    return {"kind": kind, "name": change.name} | values


def _magnitude(relative: float | None) -> float:
    """Return the size of a relative change; -1 where there is none, so that it is sorted last."""
    return -1.0 if relative is None or math.isnan(relative) else abs(relative)


def _percent(relative: float | None) -> str:
    """Return a relative change in per cent, or as a multiple beyond tenfold."""
    return "" if relative is None else f"{relative:+.3g}" if abs(relative) > 10.0 else f"{relative:+.2%}"


def _shown(name: str, value: object) -> str:
    """Return a value as the terminal shows it: with the unit at the end of its name, or shortened text."""
    if value is None:
        return "-"
    if not is_number(value):
        text = str(value)
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}\u2026"
    unit = unit_of(name, without="")
    return f"{value:.6g}" if unit in ("", "bit") else format_quantity(float(value), unit)


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
