"""Sweeps of one training step: its calculation at every point, and `heliograph.sweep`.

`StepWork` says what a point is, `_Keys` makes its key in the store, and `_StepRunner` computes it. The last
keeps systems, models, step graphs and prices, as neighbouring points share most of them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from heliograph._version import __version__
from heliograph.processes import OnProgress, unheard
from heliograph.records import SCHEMA, plain, row_of, sha256_of
from heliograph.simulation import StepResult, run_at_target, step_graph
from heliograph.sweeps.running import Engine, Execution, Grid, SweepRequest, Values, axis, run_sweep
from heliograph.sweeps.space import (
    BEST,
    CHOICES,
    MODEL,
    PLACEMENT,
    PLAN,
    STEP,
    SYSTEM,
    Space,
    Value,
    is_context,
    values_in,
    zipped,
)
from heliograph.sweeps.work import Reader, Work, code_digest, outside_digest
from heliograph.systems.names import Options, choice_of
from heliograph.systems.parts import place_for
from heliograph.systems.system import BUFFER_PATH, CORES_PATH, System, build_system
from heliograph.systems.system import system as named_system
from heliograph.workload import (
    ModelLike,
    PlanLike,
    check_format_used,
    keys_text,
    plan_keys,
    ranks_of,
    shared_plan,
)
from heliograph.workload import model as model_of
from heliograph.workload import plan as plan_of
from simulator.engine.compiled.step import StepRuns
from simulator.errors import HeliographError, LinkError, ParameterError, member_named, nearest
from simulator.parameter_tree import path_of, quantity, reader_of, replace_at
from simulator.units import dimension_of
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Plan, plan_text
from workloads.search.plans import COLUMNS, PLACEMENTS

if TYPE_CHECKING:
    from heliograph.comparison.plan_estimates import Objective

MOST_KEPT = 8
"""Systems, and as many models, step graphs and price tables, kept by a process; a choice, tens of MB each."""

KeptT = TypeVar("KeptT")


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """One training step at every point."""

    system: System | str
    """System before the changes of a point, built or by its name."""
    model: ModelLike
    """Model, unless the model itself is swept."""
    plan: PlanLike | None = None
    """Plan or some of its keys, unless the plan itself is swept; None for the default plan of the system."""
    fixed: Mapping[str, Value] = field(default_factory=dict)
    """Values that hold at every point, by any name that could be swept."""
    usual_accelerators: int | None = None
    """Accelerators where neither plan nor system says how many; None for `heliograph.system`'s default."""

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

    def check_swept(self, name: str, space: Space) -> None:
        """Raise an error if a name cannot be swept here, or no point has a parameter of that name.

        Raises
        ------
        ParameterError
            As `check_name`, and where all points have one system and its parts, which has no such parameter.
        """
        self.check_name(name)
        if self.base is None or any(map(self._replaces_parts, (*space.names, *self.fixed))):
            return
        try:
            path_of(self.base, name)
        except ParameterError:
            with suppress(LinkError):
                self.base.with_({name: space.values()[name][0]})

    def _replaces_parts(self, name: str) -> bool:
        """Return whether a name stands for a choice or a part, whose value decides which parameters exist."""
        return is_context(name) or (self.base is not None and place_for(self.base, name) is not None)

    @cached_property
    def base(self) -> System | None:
        """System of all points before their changes; None where they differ in it, or it cannot be built."""
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
        from heliograph.systems.names import DEFAULT_ACCELERATORS  # noqa: PLC0415 - a name of this scope only

        return self.usual_accelerators or DEFAULT_ACCELERATORS

    def _ranks(self, inputs: Mapping[str, Value]) -> int | None:
        return ranks_of(self.plan_of(inputs))

    def plan_of(self, inputs: Mapping[str, Value]) -> PlanLike | None:
        """Return the plan of a point as `heliograph.plan` takes it; None for the system's default plan."""
        every = {**self.fixed, **inputs}
        whole = every.get(PLAN, self.plan)
        swept_keys = {
            name.partition(".")[2]: _whole(value)
            for name, value in every.items()
            if name.startswith(f"{PLAN}.")
        }
        if not swept_keys:
            return None if whole in (None, "") else whole  # type: ignore[return-value]
        before: Any = plan_text(whole) if isinstance(whole, Plan) else whole
        return plan_keys(before) | plan_keys(swept_keys)

    def keys(self, inputs: Sequence[Mapping[str, Value]]) -> list[str]:
        """Return one hash per point."""
        common = sha256_of({"study": self.study, "code": code_digest(), "schema": SCHEMA})
        keys = _Keys(self)
        return [
            hashlib.sha256(f"{common}\n{keys.text_of(point)}".encode()).hexdigest()[:32] for point in inputs
        ]

    def runner(self, expected: int) -> Callable[[Mapping[str, Value]], Mapping[str, Any]]:
        """Return the function that computes one point and keeps what later points can use."""
        return _StepRunner(self, expected)

    def reader(self, name: str) -> Reader | None:
        """Return full path and SI reader of a parameter; None without a common system that has it."""
        try:
            return None if self.base is None else reader_of(self.base, name)
        except ParameterError:  # a part, whose value is a name
            return None

    def about(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the columns that identify a point without a result: model, plan, system and settings."""
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
                "plan": plan_text(plan) if isinstance(plan, Plan) else _plan_words(plan),
                "system": name,
                "settings": "; ".join(f"{key}={value}" for key, value in changes.items()),
            }
        )


class _PlanSearch(NamedTuple):
    """Request for the best plan of a point (``plan=best=energy,global_batch=64``)."""

    objective: Objective
    """Quantity to minimise."""
    shared: Mapping[str, str]
    """Plan keys that all candidates have."""


def _plan_search(plan: PlanLike | None) -> _PlanSearch | None:
    """Return the search that a plan asks for; None where it is a plan rather than ``best``.

    Raises
    ------
    ParameterError
        If the objective is unknown, or a key is given that the search chooses itself.
    """
    pairs = plan_keys(plan)
    if BEST not in pairs:
        return None
    from heliograph.comparison.plan_estimates import Objective  # noqa: PLC0415 - a search alone needs it

    objective = member_named(Objective, str(pairs.pop(BEST) or Objective.TIME), "objective")
    if searched := [key for key in pairs if key in COLUMNS]:
        msg = f"plan: {searched[0]} is searched where the plan is '{BEST}'; leave it out, or name the plan"
        raise ParameterError(msg)
    return _PlanSearch(objective, pairs)


def asks_for_best(work: Work) -> bool:
    """Return whether a sweep searches the best plan of each point."""
    return isinstance(work, StepWork) and _plan_search(work.plan_of({})) is not None


def _plan_words(plan: PlanLike | None) -> str:
    return keys_text(plan) if isinstance(plan, Mapping) else str(plan or "")


class _Keys:
    """Texts that identify points, the input of their keys' hashes.

    A text joins the context (model, plan, placement and system before its numbers change) with one line per
    changed number, by its full path and in SI, so that two ways to write a value give the same point. Each
    context and each value is resolved once.
    """

    def __init__(self, work: StepWork) -> None:
        self.work = work
        self._lines: dict[tuple[str, Value], str] = {}
        self._readers: dict[str, Reader | None] = {}
        self._contexts: dict[tuple[tuple[str, Value], ...], str] = {}
        self._fixed = [
            self._change_line(name, value) for name, value in work.fixed.items() if not is_context(name)
        ]

    def text_of(self, inputs: Mapping[str, Value]) -> str:
        """Return the text of a point."""
        changes = list(self._fixed)
        context = []
        for item in inputs.items():
            if is_context(item[0]):
                context.append(item)
                continue
            if item not in self._lines:
                self._lines[item] = self._change_line(*item)
            changes.append(self._lines[item])
        chosen = tuple(context)
        if chosen not in self._contexts:
            self._contexts[chosen] = self._context_digest(dict(chosen))
        return "\n".join([self._contexts[chosen], *sorted(changes)])

    def _context_digest(self, inputs: Mapping[str, Value]) -> str:
        """Return a hash of model, plan, placement and system before its numbers change."""
        work = self.work
        every = {**work.fixed, **inputs}
        model = every.get(MODEL, work.model)
        try:
            model_record: object = plain(model_of(model))  # type: ignore[arg-type]
        except HeliographError:
            model_record = outside_digest(model)
        sizes = {name: value for name, value in every.items() if name.startswith(f"{MODEL}.")}
        plan = work.plan_of(inputs)
        return sha256_of(
            {
                "model": model_record,
                "sizes": sizes,
                "plan": plan.record() if isinstance(plan, Plan) else outside_digest(_plan_words(plan)),
                "placement": every.get(PLACEMENT, PLACEMENTS[0]),
                "system": self._system_record(every, inputs),
            }
        )

    def _system_record(self, every: Mapping[str, Value], inputs: Mapping[str, Value]) -> object:
        work = self.work
        if isinstance(work.system, System):
            bare = dataclasses.replace(work.system, settings=())
            settings = dict(work.system.settings)
            record = {
                "built": plain(bare),
                "cores set": settings.get(CORES_PATH),
                "code": _part_digests(bare),
            }
            if BUFFER_PATH in settings:
                record["buffer set"] = settings[BUFFER_PATH]
            return record
        name = str(every.get(SYSTEM, work.system))
        chosen: dict[str, Any] = {key: every[key] for key in CHOICES if key in every}
        digests = {key: outside_digest(value) for key, value in chosen.items()}
        usual = work._ranks(inputs) or work._usual
        try:
            chosen["accelerators"] = _whole(chosen.get("accelerators"))
            choice = choice_of(name, Options(**chosen), usual)
        except HeliographError as error:
            return {"name": outside_digest(name), "chosen": digests, "wrong": str(error)}
        changes = [(change.key, change.value) for change in choice.changes]
        bare_choice = {**plain(dataclasses.replace(choice, changes=())), "changes": changes}
        files = [outside_digest(part) for part in (name, choice.core, choice.fabric)]
        return {"choice": bare_choice, "files": files}

    def _change_line(self, name: str, value: Value) -> str:
        """Return ``path=value`` of a changed number, by its full path and in SI, or of an exchanged part."""
        if name not in self._readers:
            self._readers[name] = self.work.reader(name)
        reader = self._readers[name]
        if reader is not None:
            path, read = reader
            try:
                return f"{path}={read(value)!r}"
            except ParameterError:  # the point itself says what is wrong
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


def _searched_placements(placement: str) -> tuple[int, ...]:
    """Return the indices into `PLACEMENTS` that a search tries: all for ``best``, else the named one."""
    if placement == BEST:
        return tuple(range(len(PLACEMENTS)))
    if placement not in PLACEMENTS:
        msg = f"no placement '{placement}' is searched; {nearest(placement, [*PLACEMENTS, BEST])}"
        raise ParameterError(msg)
    return (PLACEMENTS.index(placement),)


def _part_digests(system: System) -> list[str]:
    """Return hashes of the source files of a system's parts that users wrote outside this program."""
    root = Path(__file__).resolve().parents[2]
    digests = set()
    for part in (system.fabric, system.gpu, *((system.photonic.core,) if system.photonic else ())):
        path = getattr(sys.modules.get(type(part).__module__), "__file__", None)
        if path and root not in Path(path).resolve().parents and Path(path).is_file():
            digests.add(hashlib.sha256(Path(path).read_bytes()).hexdigest())
    return sorted(digests)


def _whole(value: object) -> Any:  # noqa: ANN401 - a number of accelerators or of a plan, however written
    """Return an int where a value is a whole number or its text; else the value, to be refused later."""
    if isinstance(value, str) and value.strip().replace("_", "").isdigit():
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _StepRunner:
    """Calculation of the points of one sweep, one after another in this process.

    It keeps the last `MOST_KEPT` of what neighbouring points share: systems before their changes, models,
    step graphs (`StepRuns`) and price tables of plan searches.

    Parameters
    ----------
    work : StepWork
        What a point is.
    expected : int
        Points that will probably run here; `StepRuns` compiles a graph only if it is run often enough.
    """

    def __init__(self, work: StepWork, expected: int) -> None:
        self.work = work
        self.expected = max(1, expected)
        self._systems: dict[object, System | None] = {}
        self._models: dict[object, TransformerConfig] = {}
        self._runs: dict[object, StepRuns] = {}
        self._prices: dict[object, Any] = {}

    def __call__(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the result row of a point."""
        every = {**self.work.fixed, **inputs}
        config = self._model(every)
        wanted = self.work.plan_of(inputs)
        built = self._system(every, wanted)
        check_format_used(wanted, [built])
        placement = str(every.get(PLACEMENT, PLACEMENTS[0]))
        search = _plan_search(wanted)
        if search is not None:
            return row_of(self._best_step(built, config, search, _searched_placements(placement)).record())
        plan = built.planned(plan_of(wanted, model=config, system=built))
        runs = _kept(
            self._runs,
            (config, plan, placement),
            lambda: StepRuns(step_graph(config, plan, placement), runs=self.expected),
        )
        return row_of(run_at_target(built, config, plan, placement=placement, runs=runs).record())

    def _best_step(
        self,
        system: System,
        config: TransformerConfig,
        search: _PlanSearch,
        placements: tuple[int, ...],
    ) -> StepResult:
        """Return the step of a system's best plan, as `heliograph compare` finds it.

        `placements` are the indices into `PLACEMENTS` to try.
        """
        from heliograph.comparison.plan_estimates import Prices  # noqa: PLC0415 - a search alone needs them
        from heliograph.comparison.plan_search import (  # noqa: PLC0415
            USUAL,
            best_plan,
            refined_plan,
        )

        effort = dataclasses.replace(USUAL, choices={**USUAL.choices, PLACEMENT: placements})
        base = shared_plan(config, system.accelerators, keys_text(search.shared))
        prices = _kept(self._prices, system.fabric, Prices)
        best = best_plan(
            system,
            config,
            base,
            objective=search.objective,
            effort=effort,
            prices=prices,
            fixed=search.shared,
        )
        return refined_plan(best, config, pieces="grad_buckets" not in search.shared).result

    def _model(self, every: Mapping[str, Value]) -> TransformerConfig:
        source = every.get(MODEL, self.work.model)
        sizes = tuple((name, value) for name, value in every.items() if name.startswith(f"{MODEL}."))

        def build() -> TransformerConfig:
            config = model_of(source)  # type: ignore[arg-type]
            for name, value in sizes:
                config = replace_at(config, name.partition(".")[2], _whole(value))
            return config

        return _kept(self._models, (repr(source), sizes), build)

    def _system(self, every: Mapping[str, Value], plan: PlanLike | None) -> System:
        """Return the system of a point: built (or kept) from its choices, then with its numbers changed."""
        work = self.work
        changes = {name: value for name, value in every.items() if not is_context(name)}
        if isinstance(work.system, System):
            return work.system.with_(changes) if changes else work.system
        name = str(every.get(SYSTEM, work.system))
        chosen: dict[str, Any] = {key: every[key] for key in CHOICES if key in every}
        if "accelerators" in chosen:
            chosen["accelerators"] = _whole(chosen["accelerators"])
        usual = ranks_of(plan) or work._usual

        def build() -> System | None:
            try:
                return build_system(name, **chosen, usual_accelerators=usual)
            except HeliographError:  # it may be that only the changed system can be built
                return None

        before = _kept(self._systems, (name, tuple(sorted(chosen.items())), usual), build)
        if before is not None:
            return before.with_(changes) if changes else before
        chosen.setdefault("accelerators", usual)
        return named_system(name, changes, **chosen)


def _kept(cache: dict[object, KeptT], key: object, make: Callable[[], KeptT]) -> KeptT:
    """Return the value of a key, made if it is missing, from a cache of the `MOST_KEPT` last used ones."""
    if key in cache:
        value = cache.pop(key)
    else:
        value = make()
        while len(cache) >= MOST_KEPT:
            del cache[next(iter(cache))]
    cache[key] = value
    return value


def sweep(
    system: System | str,
    changes: Mapping[str, Values] | None = None,
    /,
    *,
    model: ModelLike,
    plan: PlanLike | None = None,
    zips: Sequence[Mapping[str, Sequence[Value]]] = (),
    where: Sequence[str] | str = (),
    store: str | Path | None = None,
    workers: int = 1,
    engine: Engine | str = Engine.PROCESSES,
    scheduler: str | None = None,
    retry_failed: bool = False,
    name: str = "sweep",
    progress: OnProgress = unheard,
    **numbers: Values,
) -> Grid:
    """Return the results of one training step at every point of a grid.

    Parameters
    ----------
    system : System or str
        System before the changes of each point.
    changes, **numbers : mapping and keywords
        Values of each parameter or part, named as `System.with_` takes them, such as
        ``laser_power_w=["2 mW", "20 mW"]`` or ``laser_power_w="2 mW:20 mW:10:log"``. ``model``, ``plan``,
        ``placement`` and, with a dot before it, any size of a model and any key of a plan
        (``{"plan.tp": [1, 2, 4]}``) may be swept as well; where the system is told by its name, so may
        ``system``, ``accelerators``, ``gpu``, ``basis``, ``core``, ``fabric`` and ``precision``.
    model : str, pathlib.Path, mapping or TransformerConfig
        As `heliograph.model` takes it.
    plan : str, mapping or Plan
        As `heliograph.plan` takes it; without it, the one chosen for the system, for each number of
        accelerators anew. ``"best"`` runs the fastest plan of each point, searched as `heliograph.compare`
        does, ``"best=energy"`` or ``"best=cost"`` the one of least energy or cost; keys behind it, such as
        ``"best,global_batch=64"``, hold for all that are tried. With ``placement="best"`` it tries every
        order of the axes, too.
    zips : sequence of mapping
        Names that vary together, each mapping an axis of its own.
    where : str or sequence of str
        Conditions that points must meet, such as ``"plan.tp * plan.dp == 16"``.
    store : str or pathlib.Path, optional
        SQLite file of the results; points that it has are not run again.
    workers : int
        Processes; with more than one, the calling program needs ``if __name__ == "__main__":``.
    engine : Engine or str
        ``dask`` for workers of a Dask scheduler.
    scheduler : str, optional
        Its address; without it one is started on this machine.
    retry_failed : bool
        Whether points of the store that have no result are run again.
    name : str
        Name of the sweep in the store.
    progress : callable
        Called with a label, the number of points done, and the number in all.

    Raises
    ------
    HeliographError
        For a model, a plan or a name that is wrong at every point. What is wrong at some points only stands
        in the column ``error`` of their rows.
    """
    if changes is not None and not isinstance(changes, Mapping):
        msg = f'what is swept is a mapping such as {{"plan.tp": [1, 2, 4]}}; got {changes!r:.60}'
        raise ParameterError(msg)
    columns = [*(changes or {}).items(), *numbers.items()]
    axes = [axis(one, _read(one, values)) for one, values in columns]
    if isinstance(zips, Mapping | str) or not isinstance(zips, Iterable):
        msg = f"zips is a list of mappings, of names that vary together each; got {zips!r:.60}"
        raise ParameterError(msg)
    axes += [zipped(one) for one in zips]
    work = StepWork(system=system, model=model, plan=plan)
    if not isinstance(where, Iterable):
        msg = f"where is a condition or a list of them, such as 'plan.tp * plan.dp == 16'; got {where!r:.60}"
        raise ParameterError(msg)
    space = Space(axes=tuple(axes), where=(where,) if isinstance(where, str) else tuple(where))
    if store is not None and not isinstance(store, str | Path):
        msg = f"store is the path of an SQLite file; got {store!r:.60}"
        raise ParameterError(msg)
    execution = Execution(
        store=None if store is None else Path(store),
        workers=workers,
        engine=member_named(Engine, engine, "engine"),
        scheduler=scheduler,
        retry_failed=retry_failed,
    )
    request = SweepRequest(name=name, work=settled(work, space), space=space, execution=execution)
    grid = run_sweep(request, progress)
    grid.check()
    return grid


def _read(name: str, values: Values) -> Values:
    return values_in(name, values) if isinstance(values, str) and not is_context(name) else values


def settled(work: StepWork, space: Space) -> StepWork:
    """Return the work of a sweep with its names checked and, where all points share a plan, that plan built.

    They share it unless a plan, model, system or choice is swept, or the best plan of each is searched.

    Raises
    ------
    HeliographError
        For a model, plan or choice that is wrong at every point.
    """
    for name in space.names:
        work.check_swept(name, space)
    if any(is_context(name) for name in (*space.names, *work.fixed)):
        return work
    config = model_of(work.model)
    base = work.base
    if base is None or _plan_search(work.plan) is not None:
        return work
    return dataclasses.replace(work, plan=plan_of(work.plan, model=config, system=base))
