"""Sweeps of steps: what a process keeps from one point to the next, and `heliograph.sweep`."""

from __future__ import annotations

import dataclasses
import hashlib
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
from heliograph.sweeps.running import Asked, Engine, Grid, Means, Values, axis, run_sweep
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
from simulator.errors import HeliographError, LinkError, ParameterError, nearest
from simulator.parameter_tree import path_of, quantity, reader_of, replace_at
from simulator.units import dimension_of
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Plan, plan_text
from workloads.search.plans import COLUMNS, PLACEMENTS

if TYPE_CHECKING:
    from heliograph.comparison.plan_estimates import Objective

MOST_KEPT = 8
"""Systems, and steps, that a process keeps; a choice, some tens of MB each for the largest."""

KeptT = TypeVar("KeptT")


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

    def check_swept(self, name: str, space: Space) -> None:
        """Raise an error if a name cannot be swept here, or no point has a parameter of that name.

        Raises
        ------
        ParameterError
            As `check_name`, and where all points have one system and its parts, which has no such parameter.
        """
        self.check_name(name)
        if self.base is None or any(map(self._exchanges, (*space.names, *self.fixed))):
            return
        try:
            path_of(self.base, name)
        except ParameterError:
            with suppress(LinkError):
                self.base.with_({name: space.values()[name][0]})

    def _exchanges(self, name: str) -> bool:
        """Return whether a name stands for a choice or a part, with whose values parameters come and go."""
        return is_context(name) or (self.base is not None and place_for(self.base, name) is not None)

    @cached_property
    def base(self) -> System | None:
        """System of all points before its numbers change, if there is one."""
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
        text = self.plan_of(inputs)
        return ranks_of(text)

    def plan_of(self, inputs: Mapping[str, Value]) -> PlanLike | None:
        """Return the plan of a point, as `heliograph.plan` takes it; None for the usual one."""
        every = {**self.fixed, **inputs}
        whole = every.get(PLAN, self.plan)
        own = {
            name.partition(".")[2]: _written(value)
            for name, value in every.items()
            if name.startswith(f"{PLAN}.")
        }
        if not own:
            return None if whole in (None, "") else whole  # type: ignore[return-value]
        before: Any = plan_text(whole) if isinstance(whole, Plan) else whole
        return plan_keys(before) | plan_keys(own)

    def keys(self, inputs: Sequence[Mapping[str, Value]]) -> list[str]:
        """Return a key for each point."""
        same = sha256_of({"study": self.study, "code": code_digest(), "schema": SCHEMA})
        fragments = _Fragments(self)
        return [hashlib.sha256(f"{same}\n{fragments.of(one)}".encode()).hexdigest()[:32] for one in inputs]

    def runner(self, expected: int) -> Callable[[Mapping[str, Value]], Mapping[str, Any]]:
        """Return what runs a point and keeps what the next can use."""
        return _StepRunner(self, expected)

    def reader(self, name: str) -> Reader | None:
        """Return whole path and reader of a number; None where there is no one system, or it has no such."""
        try:
            return None if self.base is None else reader_of(self.base, name)
        except ParameterError:  # a part, which is told by its name
            return None

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


class _Best(NamedTuple):
    """A best plan that is asked for."""

    objective: Objective
    """What is least with it."""
    shared: Mapping[str, str]
    """What all plans that are tried have in common."""


def _best_asked(plan: PlanLike | None) -> _Best | None:
    """Return which best plan is asked for; None where a plan is told.

    Raises
    ------
    ParameterError
        If nothing is best in what is named, or something is told that is searched.
    """
    pairs = plan_keys(plan)
    if BEST not in pairs:
        return None
    from heliograph.comparison.plan_estimates import Objective  # noqa: PLC0415 - a search alone needs it

    objective = Objective.named(str(pairs.pop(BEST) or Objective.TIME))
    if searched := [key for key in pairs if key in COLUMNS]:
        msg = f"plan: {searched[0]} is searched where the plan is '{BEST}'; leave it out, or name the plan"
        raise ParameterError(msg)
    return _Best(objective, pairs)


def asks_for_best(work: Work) -> bool:
    """Return whether every point of a sweep runs the best plan of its own."""
    return isinstance(work, StepWork) and _best_asked(work.plan_of({})) is not None


def _written(value: Value) -> str:
    """Return a plan's value as text; a whole number without its point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _told_plan(plan: PlanLike | None) -> str:
    return keys_text(plan) if isinstance(plan, Mapping) else str(plan or "")


class _Fragments:
    """Text of a point in its key, put together from that of its values, each resolved once."""

    def __init__(self, work: StepWork) -> None:
        self.work = work
        self._known: dict[tuple[str, Value], str] = {}
        self._readers: dict[str, Reader | None] = {}
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
        return sha256_of(
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
            held = {"cores set": own.get(CORES_PATH)}
            if BUFFER_PATH in own:
                held["buffer set"] = own[BUFFER_PATH]
            return {"built": plain(bare), **held, "code": _own_code(bare)}
        name = str(every.get(SYSTEM, work.system))
        chosen: dict[str, Any] = {key: every[key] for key in CHOICES if key in every}
        told = {key: outside_digest(value) for key, value in chosen.items()}
        usual = work._ranks(inputs) or work._usual
        try:
            chosen["accelerators"] = _whole(chosen.get("accelerators"))
            choice = choice_of(name, Options(**chosen), usual)
        except HeliographError as error:
            return {"name": outside_digest(name), "chosen": told, "wrong": str(error)}
        changes = [(one.key, one.value) for one in choice.changes]
        bare_choice = {**plain(dataclasses.replace(choice, changes=())), "changes": changes}
        files = [outside_digest(one) for one in (name, choice.core, choice.fabric)]
        return {"choice": bare_choice, "files": files}

    def _change(self, name: str, value: Value) -> str:
        """Return the text of a changed number, by its whole path and in SI, or of a part."""
        if name not in self._readers:
            self._readers[name] = self.work.reader(name)
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


def _orders(placement: str) -> tuple[int, ...]:
    """Return the numbers of the placements that a search tries: all, or the one that is told."""
    if placement == BEST:
        return tuple(range(len(PLACEMENTS)))
    if placement not in PLACEMENTS:
        msg = f"no placement '{placement}' is searched; {nearest(placement, [*PLACEMENTS, BEST])}"
        raise ParameterError(msg)
    return (PLACEMENTS.index(placement),)


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
        self._prices: dict[object, Any] = {}

    def __call__(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the row of a point."""
        every = {**self.work.fixed, **inputs}
        config = self._model(every)
        asked = self.work.plan_of(inputs)
        built = self._system(every, asked)
        check_format_used(asked, [built])
        best = _best_asked(asked)
        if best is not None:
            orders = _orders(str(every.get(PLACEMENT, PLACEMENTS[0])))
            return row_of(self._best(built, config, best, orders).record())
        spread = built.planned(plan_of(asked, model=config, system=built))
        placement = str(every.get(PLACEMENT, PLACEMENTS[0]))
        runs = _kept(
            self._runs,
            (config, spread, placement),
            lambda: StepRuns(step_graph(config, spread, placement), runs=self.expected),
        )
        return row_of(run_at_target(built, config, spread, placement=placement, runs=runs).record())

    def _best(
        self,
        system: System,
        config: TransformerConfig,
        best: _Best,
        orders: tuple[int, ...],
    ) -> StepResult:
        """Return the step of a system's best plan, as `heliograph compare` finds it.

        Tried are the placements of those numbers.
        """
        from heliograph.comparison.plan_estimates import Prices  # noqa: PLC0415 - a search alone needs them
        from heliograph.comparison.plan_search import (  # noqa: PLC0415
            USUAL,
            best_plan,
            refined_plan,
        )

        effort = dataclasses.replace(USUAL, choices={**USUAL.choices, PLACEMENT: orders})
        base = shared_plan(config, system.accelerators, keys_text(best.shared))
        prices = _kept(self._prices, system.fabric, Prices)
        found = best_plan(
            system,
            config,
            base,
            objective=best.objective,
            effort=effort,
            prices=prices,
            fixed=best.shared,
        )
        return refined_plan(found, config, pieces="grad_buckets" not in best.shared).result

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
    """Return one step at every point of a grid.

    Parameters
    ----------
    system : System or str
        Where the sweep starts from.
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
        SQLite file of the points: those that it has are not run again.
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
        Told a label, how much is done, and how much there is.

    Raises
    ------
    HeliographError
        For a model, a plan or a name that is wrong at every point. What is wrong at some points only is told
        in their rows.
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
    if engine not in list(Engine):
        msg = f"no engine {engine!r:.60}; {nearest(str(engine), list(Engine), noun='engine')}"
        raise ParameterError(msg)
    if store is not None and not isinstance(store, str | Path):
        msg = f"store is the path of an SQLite file; got {store!r:.60}"
        raise ParameterError(msg)
    means = Means(
        store=None if store is None else Path(store),
        workers=workers,
        engine=Engine(engine),
        scheduler=scheduler,
        retry_failed=retry_failed,
    )
    asked = Asked(name=name, work=settled(work, space), space=space, means=means)
    grid = run_sweep(asked, progress)
    grid.check()
    return grid


def _read(name: str, values: Values) -> Values:
    return values_in(name, values) if isinstance(values, str) and not is_context(name) else values


def settled(work: StepWork, space: Space) -> StepWork:
    """Return the work of a sweep with the one plan of its points, where nothing that moves it is swept.

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
    if base is None or _best_asked(work.plan) is not None:
        return work
    return dataclasses.replace(work, plan=plan_of(work.plan, model=config, system=base))
