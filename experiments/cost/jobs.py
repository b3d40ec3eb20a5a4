"""Several jobs on one system, with failures: read from a TOML file, run together and each alone."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.report import ReportRow, ReportTable
from heliograph.systems import System, build_system
from heliograph.workload import plan_for
from simulator.engine.simulation import Job, JobRun, block, simulate_jobs
from simulator.errors import HeliographError, ParameterError, nearest
from simulator.fabric import Fabric
from simulator.failures import Failure, failed_parts, numbered
from simulator.files import beside, read_text, read_toml
from simulator.layout import AXES
from simulator.parameter_tree import quantity
from workloads.models.config import load_model
from workloads.plan.rules import check
from workloads.step.memory import check_fits
from workloads.step.step import build_step

SYSTEM_KEYS = {"system": str, "accelerators": int, "gpu": str, "basis": str, "core": str, "set": list}
"""Keys at the top of a file, with their types."""
JOB_KEYS = {"name": str, "model": str, "plan": str, "first": int, "start_s": float}
"""Keys of a `[[job]]`, with their types."""
FAILURE_KEYS = {
    "time_s": float,
    "links": list,
    "endpoints": list,
    "ports": list,
    "switches": list,
    "nodes": list,
    "repair_s": float,
    "spares": list,
    "takeover_s": float,
    "spare_ports": int,
    "share": float,
}
"""Keys of a `[[failure]]`, with their types."""
TABLES = ("job", "failure")
"""Names of the tables of a file."""
ITEMS = {str: "texts", int: "whole numbers", list: "pairs [endpoint, lane]"}
"""Words for the items of a list, by type."""
NOT_OF_SPARE_PORTS = ("repair_s", "spares", "share")
"""Keys without meaning for ports that spare ports replace, which end the failure and carry all its load."""
PARTS = ("ports", "switches", "nodes")
"""Keys of a `[[failure]]` for parts; others are links and endpoints."""


@dataclass(frozen=True, kw_only=True)
class SharedRuns(Result):
    """Runs of all jobs of a file on one system."""

    system: System
    """System that the jobs share."""
    runs: tuple[JobRun, ...]
    """Runs of the jobs, in the order of the file."""
    failures: tuple[Failure, ...]
    """Failures during the runs."""

    def record(self) -> dict[str, Any]:
        """Return the result as plain data, SI throughout."""
        return {
            "system": self.system.name,
            "fabric": self.system.fabric.name,
            "accelerators": self.system.accelerators,
            "jobs": [
                row | {"endpoints": list(run.job.endpoints), "network_bytes": dict(run.trace.network_bytes)}
                for row, run in zip(self.rows(), self.runs, strict=True)
            ],
            "failures": [dataclasses.asdict(one) for one in self.failures],
        }

    def rows(self) -> list[Row]:
        """Return a row for each job."""
        return [
            {
                "name": run.job.name,
                "start_s": run.job.start_s,
                "step_time_s": run.step_time_s,
                "alone_s": run.alone_s,
                "slowdown": run.slowdown,
                "tokens_per_s": run.job.graph.tokens / run.step_time_s,
                "reconfigurations": run.trace.reconfigurations,
            }
            for run in self.runs
        ]

    def report(self) -> list[Block]:
        """Return the table of all jobs."""
        jobs = f"{len(self.runs)} job{'s' if len(self.runs) > 1 else ''}"
        title = f"{jobs} on {self.system.name}, {self.system.accelerators} accelerators"
        return [ReportTable(title, [run.job.name for run in self.runs], job_rows(self))]


class _File:
    """A file of jobs, with the line of each table for messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = read_toml(path)
        self._text = read_text(path)

    def refuse(self, table: str, index: int, fault: str) -> NoReturn:
        """Raise an error that names file, line and table."""
        where, name = self.path.name, ""
        if table:
            heads = list(re.finditer(rf"^\s*\[\[\s*{table}\s*\]\]", self._text, re.MULTILINE))
            name = f"{table} {index + 1}: "
            if len(heads) > index:
                where += f":{self._text.count(chr(10), 0, heads[index].end()) + 1}"
        msg = f"{where}: {name}{fault}"
        raise ParameterError(msg)

    def tables(self, name: str, keys: dict[str, type]) -> list[dict[str, Any]]:
        """Return the checked tables of one kind."""
        found = self.content.pop(name, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            self.refuse("", 0, f"'{name}' must be tables; write [[{name}]] above each")
        for index, one in enumerate(found):
            self.check(one, keys, name, index)
        return found

    def check(self, values: dict[str, Any], keys: dict[str, type], table: str = "", index: int = 0) -> None:
        """Refuse unknown keys and values of the wrong type; texts of numbers with units become SI numbers."""
        for key, value in values.items():
            if key not in keys:
                known = keys if table else (*keys, *TABLES)
                self.refuse(table, index, f"unknown key '{key}'; {nearest(key, known, noun='key')}")
            if keys[key] is float and isinstance(value, str):
                try:
                    values[key] = quantity(key, value)
                except ParameterError as error:
                    self.refuse(table, index, str(error))
            if (kind := _type_wanted(key, values[key], keys[key])) is not None:
                self.refuse(table, index, f"'{key}' must be {kind}; got {values[key]!r}")


def _type_wanted(key: str, value: object, kind: type) -> str | None:
    """Return words for the type that a key needs if its value has another one; else None."""
    if kind is list:
        item_kind = {"set": str, "ports": list}.get(key, int)
        fits = isinstance(value, list) and all(_is_a(one, item_kind) for one in value)
        return None if fits else f"a list of {ITEMS[item_kind]}"
    fits = _is_a(value, kind) or (kind is float and _is_a(value, int))
    return None if fits else {str: "text", int: "a whole number", float: "a number"}[kind]


def _is_a(value: object, kind: type) -> bool:
    """Return whether a value has a type; truth values are no whole numbers."""
    return isinstance(value, kind) and not isinstance(value, bool)


def run_jobs(path: Path) -> SharedRuns:
    """Run the jobs that a file describes.

    Parameters
    ----------
    path : pathlib.Path
        TOML: ``system`` (a name or a file), ``accelerators``, optionally ``gpu``, ``basis``, ``core`` and
        ``set``. Each ``[[job]]`` has ``model`` and ``plan``, and optionally ``name``, ``first`` (its first
        endpoint; the next free one by default) and ``start_s``. Each ``[[failure]]`` has ``time_s`` and
        ``links``, ``endpoints``, ``nodes``, ``switches`` (vertices of the wiring) or ``ports`` (pairs of
        endpoint and lane, or of node and card), and optionally ``repair_s``, ``spares``, ``takeover_s``,
        ``spare_ports`` (number of the listed ports, from the first, that spare ports of their switches
        replace) and ``share`` (lost part of the capacity of the links).

    Raises
    ------
    ParameterError
        If the file breaks these rules; the message names file and line.
    HeliographError
        If jobs do not fit the system or the memory, share endpoints, or wait for ever.
    """
    file = _File(path)
    jobs, failures = file.tables("job", JOB_KEYS), file.tables("failure", FAILURE_KEYS)
    system = _system(file, has_jobs=bool(jobs))
    placed: list[Job] = []
    for index, table in enumerate(jobs):
        placed.append(_job(file, index, table, system, placed))
    fabrics = {system.fabric.name: system.fabric}
    if not any("links" in table for table in failures):  # numbers of links are those of one layout alone
        fabrics |= {fabric.name: fabric for job in placed for fabric in system.fabric.laid_for(_blocks(job))}
    found = []
    for fabric in fabrics.values():
        broken = tuple(
            part for index, table in enumerate(failures) for part in _failures(file, index, table, fabric)
        )
        runs = simulate_jobs(placed, fabric, failures=broken)
        laid = dataclasses.replace(system, fabric=fabric)
        found.append(SharedRuns(system=laid, runs=runs, failures=broken))
    return min(found, key=lambda shared: max(run.trace.makespan_s for run in shared.runs))


def _system(file: _File, *, has_jobs: bool) -> System:
    """Return the system that the keys at the top of a file describe."""
    keys = file.content
    file.check(keys, SYSTEM_KEYS)
    missing = [key for key in ("system", "accelerators") if key not in keys]
    if missing or not has_jobs:
        lacks = f"key '{missing[0]}' is missing" if missing else "there is no [[job]]"
        file.refuse("", 0, f"{lacks}; name system and accelerators, then a [[job]] for each job")
    name, changes = beside(file.path, keys.pop("system")), keys.pop("set", [])
    return build_system(name, accelerators=keys.pop("accelerators"), assignments=changes, **keys)


def _blocks(job: Job) -> tuple[int, ...]:
    """Return the numbers of ranks that the nearest axis of a job joins, the nearest two axes, and so on."""
    layout = job.graph.layout
    return tuple(accumulate((getattr(layout, axis) for axis in AXES), mul))


def _job(file: _File, index: int, given: dict[str, Any], system: System, before: list[Job]) -> Job:
    """Return the job of a table, by default on the first endpoints behind the jobs before it."""
    missing = [key for key in ("model", "plan") if key not in given]
    if missing:
        file.refuse("job", index, f"key '{missing[0]}' is missing; a job needs model and plan")
    config = load_model(beside(file.path, given["model"]))
    name = given.get("name", f"job {index + 1}")
    if name in [job.name for job in before]:
        file.refuse("job", index, f"'{name}' is another job's name too; give each job a name of its own")
    memory_bytes = system.node().memory.capacity_bytes
    plan = plan_for(config, given["plan"], accelerators=system.accelerators, memory_bytes=memory_bytes)
    plan = system.planned(plan)
    next_free = max((max(job.endpoints) + 1 for job in before), default=0)
    try:
        check(config, plan, accelerators=plan.axes.ranks)
        check_fits(config, plan, memory_bytes)
        return Job(
            name=name,
            graph=build_step(config, plan),
            node=system.with_plan(plan).node(),
            endpoints=block(given.get("first", next_free), plan.axes.ranks),
            start_s=float(given.get("start_s", 0.0)),
        )
    except HeliographError as error:
        file.refuse("job", index, str(error))


def _failures(file: _File, index: int, given: dict[str, Any], fabric: Fabric) -> list[Failure]:
    """Return the failures of a table: that of ports that spare ports replace, and that of all other parts."""
    if "time_s" not in given:
        file.refuse("failure", index, "key 'time_s' is missing; say when it fails")
    replaced = given.get("spare_ports", 0)
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else float(value)
        for key, value in given.items()
        if key != "spare_ports"
    }
    named = {key: values.pop(key, ()) for key in PARTS}
    unused = [key for key in NOT_OF_SPARE_PORTS if key in given]
    if replaced and unused:
        fault = f"'{unused[0]}' says nothing of ports that spare_ports replace"
        file.refuse(
            "failure", index, f"{fault}; write other parts and '{unused[0]}' in a [[failure]] of their own"
        )
    try:
        found = [_replaced(fabric, values, named["ports"], replaced)] if replaced else []
        named["ports"] = named["ports"][replaced:]
        parts = failed_parts(fabric, **named)
        values["links"] = (*values.get("links", ()), *parts.links)
        values["endpoints"] = (*values.get("endpoints", ()), *parts.endpoints)
        values["ports"] = parts.ports
        if not found or any(values[key] for key in ("links", "endpoints", "ports")):
            found.append(Failure(**values))
    except HeliographError as error:
        file.refuse("failure", index, str(error))
    return found


def _replaced(fabric: Fabric, values: dict[str, Any], ports: tuple[Any, ...], count: int) -> Failure:
    """Return the failure of the first ``count`` ports, which ends when spare ports carry their load."""
    if not 0 < count <= len(ports):
        msg = f"spare_ports ({count}) must be from 1 to the number of ports that fail ({len(ports)})"
        raise ParameterError(msg)
    wait_s = fabric.replacement_s(np.array(numbered(fabric, ports[:count])))
    parts = failed_parts(fabric, ports=ports[:count], switches=(), nodes=())
    time_s = values["time_s"]
    repair_s = time_s + values.get("takeover_s", 0.0) + wait_s
    return Failure(time_s=time_s, repair_s=repair_s, links=parts.links, ports=parts.ports)


def job_rows(study: SharedRuns) -> list[ReportRow]:
    """Return the rows of the table, with a column for each job."""
    runs = study.runs
    lines = (
        ("endpoints", [f"{run.job.endpoints[0]}-{run.job.endpoints[-1]}" for run in runs]),
        ("start, s", [f"{run.job.start_s:.4g}" for run in runs]),
        ("step time together, s", [f"{run.step_time_s:.4g}" for run in runs]),
        ("step time alone, s", [f"{run.alone_s:.4g}" for run in runs]),
        ("slow-down", [f"{run.slowdown:.3f}x" for run in runs]),
        ("circuit changes", [str(run.trace.reconfigurations) for run in runs]),
    )
    return [ReportRow(label, tuple(values)) for label, values in lines]


@dataclass(frozen=True, kw_only=True)
class Jobs(Study):
    """Several jobs on one system, with failures."""

    file: Path = option(..., "TOML: system, accelerators, [[job]] and [[failure]] tables", positional=True)

    def run(self, progress: Progress) -> SharedRuns:
        """Return the runs of all jobs."""
        return run_jobs(self.file)
