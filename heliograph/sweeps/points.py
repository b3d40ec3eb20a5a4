"""Points of a sweep over steps: a key for each, and what a process keeps from one to the next."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from heliograph._version import __version__
from heliograph.parameters import tables
from heliograph.plugins import MARK
from heliograph.processes import watched
from heliograph.records import SCHEMA, plain, row_of
from heliograph.simulation import run_at_target, step_graph
from heliograph.sweeps.space import Value
from heliograph.sweeps.store import Outcome, Status
from heliograph.system_names import Options, choice_of
from heliograph.systems import System, build_system
from heliograph.systems import system as named_system
from heliograph.workload import ModelLike, PlanLike, ranks_of
from heliograph.workload import model as model_of
from heliograph.workload import plan as plan_of
from simulator.engine.compiled.step import StepRuns
from simulator.errors import HeliographError, ParameterError
from simulator.parameter_tree import quantity, reader_of, replace_at
from simulator.units import dimension_of
from workloads.models.architecture import TransformerConfig
from workloads.plan.parallelism import plan_text
from workloads.plan.plan import Plan
from workloads.search.plans import PLACEMENTS

CHOICES = ("accelerators", "gpu", "basis", "core", "fabric", "precision")
"""Choices of `heliograph.system`, which are swept where the system is told by its name."""
SYSTEM, MODEL, PLAN, PLACEMENT = "system", "model", "plan", "placement"
"""Names of whole descriptions that are swept; with a dot behind it, the first key of a model or a plan."""
STEP = "step"
"""Study of one training step."""
MOST_KEPT = 8
"""Systems, and steps, that a process keeps; a choice, some tens of MB each for the largest."""

KeptT = TypeVar("KeptT")


class Work(Protocol):
    """What all points of a sweep have in common; goes to other processes."""

    @property
    def study(self) -> str:
        """Name of the study."""
        ...

    def keys(self, inputs: Sequence[Mapping[str, Value]]) -> list[str]:
        """Return a key for each point: equal exactly where everything that can move its result is equal."""
        ...

    def runner(self, expected: int) -> Callable[[Mapping[str, Value]], Mapping[str, Any]]:
        """Return what runs a point of so many, and gives its row; ``rows`` in it is a table of several."""
        ...

    def about(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the columns of a point without a result: what it is of."""
        ...


def outcome_of(
    run: Callable[[Mapping[str, Value]], Mapping[str, Any]], work: Work, inputs: Mapping[str, Value]
) -> Outcome:
    """Return what becomes of a point, whatever it is.

    Parameters
    ----------
    run : callable
        What `Work.runner` returned.
    work : Work
        What the points have in common.
    inputs : mapping
        Values of the point.
    """
    began = time.perf_counter()
    try:
        done = watched(run, inputs)
    except HeliographError as error:
        failed = Outcome(status=Status.FAILED, error=str(error), row=work.about(inputs))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        failed = Outcome(status=Status.CRASHED, error=told, row=work.about(inputs))
    else:
        row = dict(done.result)
        return Outcome(
            status=Status.DONE,
            rows=tuple(row.pop("rows", ())),
            row=row,
            warnings=tuple(dict.fromkeys(map(str, done.warnings))),
            seconds=time.perf_counter() - began,
        )
    return dataclasses.replace(failed, seconds=time.perf_counter() - began)


@cache
def code_digest() -> str:
    """Return a hash of the program's own text and of its tables, which a key holds beside the version."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(__version__.encode())
    for floor in ("simulator", "optical", "electronic", "workloads", "heliograph", "experiments"):
        for path in sorted((root / floor).rglob("*.py")):
            digest.update(path.read_bytes())
        for path in sorted((root / floor).rglob("*.json")):
            digest.update(path.read_bytes())
    for table in tables():
        digest.update(table.sha256.encode())
    return digest.hexdigest()[:12]


def outside_digest(text: object) -> str:
    """Return text with a hash of the file that it names (``FILE.py:NAME``, ``graph:FILE``), if any."""
    told = str(text)
    for name in (told, f"{told.partition(MARK)[0]}.py" if MARK in told else "", told.partition("graph:")[2]):
        path = Path(name.partition("@")[0]) if name else None
        if path is not None and path.suffix and path.is_file():
            return f"{told} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    return told


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """One training step at every point."""

    system: System | str
    """Where the sweep starts from."""
    model: ModelLike
    """Model of all points whose own inputs name none."""
    plan: PlanLike | None = None
    """Plan, whole or in part, of all points whose own inputs name none; None for the usual one."""
    fixed: Mapping[str, Value] = field(default_factory=dict)
    """What holds at every point, by the names that may be swept."""
    usual_accelerators: int | None = None
    """Accelerators where neither plan nor system says how many; None for those of `heliograph.system`."""

    def __post_init__(self) -> None:
        for name in self.fixed:
            self.check_name(name)

    @property
    def study(self) -> str:
        """Name of the study."""
        return STEP

    def check_name(self, name: str) -> None:
        """Raise an error if a name cannot be swept here.

        Raises
        ------
        ParameterError
            If it is a choice of a system that is built already.
        """
        if isinstance(self.system, System) and name in (*CHOICES, SYSTEM):
            msg = f"{name} is chosen when a system is built; sweep over it by the name of one"
            raise ParameterError(msg)

    @cached_property
    def base(self) -> System | None:
        """System of all points before its numbers change, if there is one: see `key_base`."""
        if isinstance(self.system, System):
            return self.system
        if any(name == SYSTEM or name in CHOICES or name.partition(".")[0] == PLAN for name in self.fixed):
            return None
        try:
            return build_system(self.system, usual_accelerators=self._ranks({}) or self._usual)
        except HeliographError:  # told by the points
            return None

    @property
    def _usual(self) -> int:
        from heliograph.system_names import DEFAULT_ACCELERATORS  # noqa: PLC0415 - a name of this scope only

        return self.usual_accelerators or DEFAULT_ACCELERATORS

    def _ranks(self, inputs: Mapping[str, Value]) -> int | None:
        text = self.plan_of(inputs)
        return ranks_of(text)

    def plan_of(self, inputs: Mapping[str, Value]) -> PlanLike | None:
        """Return the plan of a point, as `heliograph.plan` takes it; None for the usual one."""
        every = {**self.fixed, **inputs}
        whole = every.get(PLAN, self.plan)
        own = {name.partition(".")[2]: value for name, value in every.items() if name.startswith(f"{PLAN}.")}
        if not own:
            return None if whole in (None, "") else whole  # type: ignore[return-value]
        text = plan_text(whole) if isinstance(whole, Plan) else whole
        before = dict(whole) if isinstance(whole, Mapping) else _pairs(str(text or ""))
        return {**before, **{key: _written(value) for key, value in own.items()}}

    def keys(self, inputs: Sequence[Mapping[str, Value]]) -> list[str]:
        """Return a key for each point."""
        same = _digest({"study": self.study, "code": code_digest(), "schema": SCHEMA})
        fragments = _Fragments(self)
        return [hashlib.sha256(f"{same}\n{fragments.of(one)}".encode()).hexdigest()[:32] for one in inputs]

    def runner(self, expected: int) -> Callable[[Mapping[str, Value]], Mapping[str, Any]]:
        """Return what runs a point and keeps what the next can use."""
        return _StepRunner(self, expected)

    def about(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the columns of a point without a result."""
        every = {**self.fixed, **inputs}
        model = every.get(MODEL, self.model)
        name = self.system.name if isinstance(self.system, System) else str(every.get(SYSTEM, self.system))
        plan = self.plan_of(inputs)
        changes = {key: value for key, value in every.items() if not is_context(key)}
        return row_of(
            {
                "schema": SCHEMA,
                "version": __version__,
                "model": model.name if isinstance(model, TransformerConfig) else str(model),
                "plan": plan_text(plan) if isinstance(plan, Plan) else _told_plan(plan),
                "system": name,
                "settings": "; ".join(f"{key}={value}" for key, value in changes.items()),
            }
        )


def _pairs(text: str) -> dict[str, str]:
    pairs = (one.partition("=") for one in text.split(",") if one.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _written(value: Value) -> str:
    """Return a plan's value as text; a whole number without its point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _told_plan(plan: PlanLike | None) -> str:
    if isinstance(plan, Mapping):
        return ",".join(f"{key}={value}" for key, value in plan.items())
    return str(plan or "")


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


_Reader = tuple[str, Callable[[Value], Any]]
"""Whole path of a parameter, and what reads its values."""


def _reader(base: System | None, name: str) -> _Reader | None:
    """Return path and reader of a parameter; None where there is no one system, or it has no such number."""
    try:
        return None if base is None else reader_of(base, name)
    except ParameterError:  # a part, which is told by its name
        return None


class _Fragments:
    """Text of a point in its key, put together from that of its values, each resolved once."""

    def __init__(self, work: StepWork) -> None:
        self.work = work
        self._known: dict[tuple[str, Value], str] = {}
        self._readers: dict[str, _Reader | None] = {}
        self._contexts: dict[tuple[tuple[str, Value], ...], str] = {}
        self._fixed = tuple(
            text
            for name, value in work.fixed.items()
            if not is_context(name) and (text := self._change(name, value))
        )

    def of(self, inputs: Mapping[str, Value]) -> str:
        """Return the text of a point."""
        known, changes, context = self._known, [*self._fixed], []
        for item in inputs.items():
            if is_context(item[0]):
                context.append(item)
                continue
            text = known.get(item)
            if text is None:
                text = known[item] = self._change(*item)
            if text:
                changes.append(text)
        chosen = tuple(context)
        if chosen not in self._contexts:
            self._contexts[chosen] = self._context(dict(chosen))
        return "\n".join([self._contexts[chosen], *sorted(changes)])

    def _context(self, inputs: Mapping[str, Value]) -> str:
        """Return the text of model, plan and system before its numbers change."""
        work = self.work
        every = {**work.fixed, **inputs}
        model = every.get(MODEL, work.model)
        try:
            told: object = plain(model_of(model))  # type: ignore[arg-type]
        except HeliographError:
            told = outside_digest(model)
        sizes = {name: value for name, value in every.items() if name.startswith(f"{MODEL}.")}
        plan = work.plan_of(inputs)
        return _digest(
            {
                "model": told,
                "sizes": sizes,
                "plan": plan.record() if isinstance(plan, Plan) else outside_digest(_told_plan(plan)),
                "placement": every.get(PLACEMENT, PLACEMENTS[0]),
                "system": self._system(every, inputs),
            }
        )

    def _system(self, every: Mapping[str, Value], inputs: Mapping[str, Value]) -> object:
        work = self.work
        if isinstance(work.system, System):
            bare = dataclasses.replace(work.system, settings=())
            own = dict(work.system.settings)
            return {"built": plain(bare), "cores set": own.get("photonic.cores"), "code": _own_code(bare)}
        name = str(every.get(SYSTEM, work.system))
        chosen: dict[str, Any] = {key: every[key] for key in CHOICES if key in every}
        told = {key: outside_digest(value) for key, value in chosen.items()}
        usual = work._ranks(inputs) or work._usual
        try:
            chosen["accelerators"] = _whole(chosen.get("accelerators"))
            choice = dataclasses.replace(choice_of(name, Options(**chosen), usual), contradictions={})
        except HeliographError as error:
            return {"name": outside_digest(name), "chosen": told, "wrong": str(error)}
        changes = [(one.key, one.value) for one in choice.changes]
        bare_choice = {**plain(dataclasses.replace(choice, changes=())), "changes": changes}
        files = [outside_digest(one) for one in (name, choice.core, choice.fabric)]
        return {"choice": bare_choice, "files": files}

    def _change(self, name: str, value: Value) -> str:
        """Return the text of a changed number, by its whole path and in SI, or of a part."""
        if name not in self._readers:
            self._readers[name] = _reader(self.work.base, name)
        known = self._readers[name]
        if known is not None:
            try:
                return f"{known[0]}={known[1](value)!r}"
            except ParameterError:  # told by the point
                pass
        unit = name.rpartition(".")[2]
        if isinstance(value, str) and dimension_of(unit) is not None:
            try:
                return f"{name}={quantity(unit, value)!r}"
            except HeliographError:
                pass
        return (
            f"{name}={float(value)!r}"
            if isinstance(value, int | float)
            else f"{name}={outside_digest(value)}"
        )


_CONTEXT = re.compile(rf"(?:{'|'.join((*CHOICES, SYSTEM, PLACEMENT))})$|(?:{MODEL}|{PLAN})(?:\.|$)")
"""Names that choose model, plan or system."""


def is_context(name: str) -> bool:
    """Return whether a name chooses a model, a plan or a system, rather than a number of one."""
    return _CONTEXT.match(name) is not None


def _own_code(system: System) -> list[str]:
    """Return hashes of the files of a system's parts that are none of the program's."""
    root = Path(__file__).resolve().parents[2]
    import sys  # noqa: PLC0415 - modules of parts are looked up by name

    found = set()
    for part in (system.fabric, system.gpu, *((system.photonic.core,) if system.photonic else ())):
        path = getattr(sys.modules.get(type(part).__module__), "__file__", None)
        if path and root not in Path(path).resolve().parents and Path(path).is_file():
            found.add(hashlib.sha256(Path(path).read_bytes()).hexdigest())
    return sorted(found)


def _whole(value: object) -> Any:  # noqa: ANN401 - a number of accelerators, however it was written
    """Return a whole number where a value is one; else the value, which is refused where it is used."""
    if isinstance(value, str) and value.strip().replace("_", "").isdigit():
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _StepRunner:
    """Points of one sweep, run one after another in this process.

    Parameters
    ----------
    work : StepWork
        What they have in common.
    expected : int
        Points that will run here, as far as is known.
    """

    def __init__(self, work: StepWork, expected: int) -> None:
        self.work = work
        self.expected = max(1, expected)
        self._systems: dict[object, System | None] = {}
        self._models: dict[object, TransformerConfig] = {}
        self._runs: dict[object, StepRuns] = {}

    def __call__(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the row of a point."""
        every = {**self.work.fixed, **inputs}
        config = self._model(every)
        asked = self.work.plan_of(inputs)
        built = self._system(every, asked)
        spread = built.planned(plan_of(asked, model=config, system=built))
        placement = str(every.get(PLACEMENT, PLACEMENTS[0]))
        runs = _kept(
            self._runs,
            (config, spread, placement),
            lambda: StepRuns(step_graph(config, spread, placement), runs=self.expected),
        )
        return row_of(run_at_target(built, config, spread, placement=placement, runs=runs).record())

    def _model(self, every: Mapping[str, Value]) -> TransformerConfig:
        source = every.get(MODEL, self.work.model)
        sizes = tuple((name, value) for name, value in every.items() if name.startswith(f"{MODEL}."))

        def made() -> TransformerConfig:
            config = model_of(source)  # type: ignore[arg-type]
            for name, value in sizes:
                config = replace_at(config, name.partition(".")[2], _whole(value))
            return config

        return _kept(self._models, (repr(source), sizes), made)

    def _system(self, every: Mapping[str, Value], plan: PlanLike | None) -> System:
        """Return the system of a point: that of its choices, which is kept, with its numbers changed."""
        work = self.work
        changes = {name: value for name, value in every.items() if not is_context(name)}
        if isinstance(work.system, System):
            return work.system.with_(changes) if changes else work.system
        name = str(every.get(SYSTEM, work.system))
        chosen: dict[str, Any] = {key: every[key] for key in CHOICES if key in every}
        if "accelerators" in chosen:
            chosen["accelerators"] = _whole(chosen["accelerators"])
        usual = ranks_of(plan) or work._usual

        def base() -> System | None:
            try:
                return build_system(name, **chosen, usual_accelerators=usual)
            except HeliographError:  # it may be that only the changed system can be built
                return None

        before = _kept(self._systems, (name, tuple(sorted(chosen.items())), usual), base)
        if before is not None:
            return before.with_(changes) if changes else before
        chosen.setdefault("accelerators", usual)
        return named_system(name, changes, **chosen)


def _kept(known: dict[object, KeptT], key: object, make: Callable[[], KeptT]) -> KeptT:
    """Return what is known under a key, made if it is not; the one that was used longest ago goes."""
    if key in known:
        found = known.pop(key)
    else:
        found = make()
        while len(known) >= MOST_KEPT:
            del known[next(iter(known))]
    known[key] = found
    return found


def in_si(work: Work, inputs: Sequence[Mapping[str, Value]]) -> list[dict[str, Value | None]]:
    """Return the values of points in SI where they are numbers of the system, else as they are."""
    base = work.base if isinstance(work, StepWork) else None
    readers = {name: _reader(base, name) for one in inputs[:1] for name in one if not is_context(name)}
    known: dict[tuple[str, Value], Value | None] = {}
    found = []
    for one in inputs:
        for item in one.items():
            if item not in known:
                known[item] = _si(readers.get(item[0]), *item)
        found.append({name: known[name, value] for name, value in one.items()})
    return found


def _si(reader: _Reader | None, name: str, value: Value) -> Value | None:
    if is_context(name):
        return value
    if reader is not None:
        try:
            return reader[1](value)  # type: ignore[no-any-return]
        except ParameterError:  # a part, told by its name, or a value that fits nothing
            return value
    unit = name.rpartition(".")[2]
    if isinstance(value, str) and dimension_of(unit) is not None:
        try:
            return quantity(unit, value)
        except ParameterError:
            return value
    return value
