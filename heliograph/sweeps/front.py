"""Pareto front of a sweep: an optimiser chooses the points, and the store keeps them as those of a grid.

The same file with the same seed asks for the same points in the same order, and those that are in the store
are answered from it, so that an interrupted search goes on by being run again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heliograph.processes import OnProgress, unheard
from heliograph.records import COLUMNS, sha256_of
from heliograph.sweeps.running import Grid, Means
from heliograph.sweeps.space import STEP, Axis, Optimise, Range, Value, condition
from heliograph.sweeps.store import Store
from heliograph.sweeps.work import Work, code_digest, in_si
from simulator.errors import HeliographError, ParameterError, nearest

GENERATION = 24
"""Points that are asked for together; a choice, the same whatever runs them, so that a search repeats."""
MOST_DRAWS = 50
"""Generations in a row that may bring no new point before the search ends; a choice."""


def check_columns(columns: Sequence[str]) -> None:
    """Raise an error unless a step has such columns.

    Raises
    ------
    ParameterError
        If it has not.
    """
    for column in columns:
        if column not in COLUMNS:
            msg = f"no column '{column}' to optimise; {nearest(column, COLUMNS, noun='column')}"
            raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A search for the best points."""

    name: str
    """Name that it is told by."""
    work: Work
    """What its points have in common."""
    ranges: Mapping[str, Range | tuple[Value, ...]]
    """Values that each name may take."""
    zips: tuple[Axis, ...] = ()
    """Names that vary together."""
    where: tuple[str, ...] = ()
    """Conditions that points must meet."""
    optimise: Optimise
    """What is to be small or large."""
    means: Means
    """Where points are run and kept."""

    def __post_init__(self) -> None:
        if self.work.study == STEP:
            check_columns((*self.optimise.minimise, *self.optimise.maximise))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what varies."""
        return (*self.ranges, *(name for axis in self.zips for name in axis.names))


@dataclass(frozen=True, kw_only=True)
class Front:
    """Points of a search of which none is better in everything than another."""

    grid: Grid
    """All points that were asked for."""
    optimise: Optimise
    """What was to be small or large."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the objectives."""
        return (*self.optimise.minimise, *self.optimise.maximise)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the front, the best of the first objective first."""
        rows = [row for row in self.grid.rows() if _values(row, self.optimise) is not None]
        if not rows:
            return []
        costs = np.array([_values(row, self.optimise) for row in rows])
        kept = np.flatnonzero(pareto(costs))
        return [rows[place] for place in kept[np.lexsort(costs[kept].T[::-1])]]

    def hypervolume(self, reference: Mapping[str, float]) -> float:
        """Return the volume between the front and a point that is worse in every objective.

        Parameters
        ----------
        reference : mapping of str to float
            That point, a value for each objective; the volume is in the product of their units.
        """
        signs = _signs(self.optimise)
        worst = [sign * reference[name] for name, sign in zip(self.columns, signs, strict=True)]
        costs = [_values(row, self.optimise) for row in self.rows()]
        return hypervolume(np.array([one for one in costs if one is not None]), np.array(worst))


def _signs(optimise: Optimise) -> list[float]:
    return [1.0] * len(optimise.minimise) + [-1.0] * len(optimise.maximise)


def _values(row: Mapping[str, Any], optimise: Optimise) -> list[float] | None:
    """Return the objectives of a row, all to be small; None where one is missing."""
    found = [row.get(name) for name in (*optimise.minimise, *optimise.maximise)]
    if row.get("error") or not all(isinstance(one, int | float) and math.isfinite(one) for one in found):
        return None
    return [sign * float(one) for one, sign in zip(found, _signs(optimise), strict=True)]  # type: ignore[arg-type]


def pareto(costs: np.ndarray) -> np.ndarray:
    """Return which points no other is better than: as good in everything and better in something.

    Parameters
    ----------
    costs : numpy.ndarray
        Objectives, all to be small, shape [points, objectives]; of equal points the first counts.
    """
    kept = np.ones(len(costs), dtype=bool)
    for place, one in enumerate(costs):
        as_good = (costs <= one).all(axis=1)
        better = as_good & (costs < one).any(axis=1)
        first = np.flatnonzero(as_good & (costs == one).all(axis=1))[0]
        kept[place] = not better.any() and first == place
    return kept


def hypervolume(costs: np.ndarray, reference: np.ndarray) -> float:
    """Return the volume that points dominate up to a reference.

    Parameters
    ----------
    costs : numpy.ndarray
        Objectives, all to be small, shape [points, objectives].
    reference : numpy.ndarray
        Worst value of each, shape [objectives]; points beyond it add nothing.

    Notes
    -----
    Slices along the last objective, each as thick as to the next point, times the volume of what lies before
    it: exact, and quick for the few hundred points and four objectives of a search.
    """
    if not len(costs):
        return 0.0
    inside = costs[(costs < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    if inside.shape[1] == 1:
        return float(reference[0] - inside.min())
    inside = inside[pareto(inside)]
    inside = inside[np.argsort(inside[:, -1], kind="stable")]
    ends = np.append(inside[1:, -1], reference[-1])
    return float(
        sum(
            (end - point[-1]) * hypervolume(inside[: place + 1, :-1], reference[:-1])
            for place, (point, end) in enumerate(zip(inside, ends, strict=True))
            if end > point[-1]
        )
    )


def search_front(asked: Searched, progress: OnProgress = unheard) -> Front:
    """Return the front that an evolutionary search finds (NSGA-II of Optuna; Deb et al. 2002).

    Parameters
    ----------
    asked : Searched
        What may vary, and what is wanted.
    progress : callable
        Told a label, how much is done, and how much there is.

    Raises
    ------
    HeliographError
        If Optuna is not installed, or the store cannot be written.
    """
    try:
        import optuna  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = "Optuna is not installed; pip install 'heliograph[search]', or leave [optimise] out for a grid"
        raise HeliographError(msg) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.NSGAIISampler(population_size=GENERATION, seed=asked.optimise.seed)
    objectives = (*asked.optimise.minimise, *asked.optimise.maximise)
    study = optuna.create_study(sampler=sampler, directions=["minimize"] * len(objectives))
    with Store(asked.means.store) as store:
        sweep = _entered(store, asked)
        found = _Search(asked, study, optuna.trial.TrialState.FAIL, store, sweep).run(progress)
        values = {name: tuple(dict.fromkeys(one[name] for one in found)) for name in asked.names}
        return Front(grid=Grid.of(store, sweep, asked.work.study, values), optimise=asked.optimise)


def _entered(store: Store, asked: Searched) -> str:
    told = {
        "name": asked.name,
        "study": asked.work.study,
        "ranges": asked.ranges,
        "zip": [list(axis.names) for axis in asked.zips],
        "where": asked.where,
        "optimise": asked.optimise,
    }
    common = asked.work.keys([{}])
    sweep = sha256_of({**told, "common": common, "code": code_digest(), "zips": asked.zips})[:32]
    store.enter(sweep, name=asked.name, study=asked.work.study, definition=told, keys=(), inputs=())
    return sweep


@dataclass
class _Search:
    """A search as it goes."""

    asked: Searched
    study: Any
    failed: Any
    store: Store
    sweep: str

    def run(self, progress: OnProgress) -> list[dict[str, Value]]:
        """Ask for points until there are enough; return them."""
        most, places = self.asked.optimise.trials, {}
        found: list[dict[str, Value]] = []
        idle = 0
        while len(found) < most and idle < MOST_DRAWS:
            progress("search", len(found), most)
            trials = [self.study.ask() for _ in range(GENERATION)]
            inputs = [self._inputs(trial) for trial in trials]
            keys = self.asked.work.keys(inputs)
            new = {}
            for key, one in zip(keys, inputs, strict=True):
                if key not in places and self._meets(one) and len(found) < most:
                    places[key] = len(found)
                    found.append(one)
                    new[key] = one
            idle = 0 if new else idle + 1
            self._run(new, places)
            self._tell(trials, keys, places)
        progress("search", len(found), most)
        return found

    def _inputs(self, trial: Any) -> dict[str, Value]:  # noqa: ANN401 - of Optuna
        """Return the values of a trial."""
        found: dict[str, Value] = {}
        for name, values in self.asked.ranges.items():
            if isinstance(values, Range) and values.count is None:
                ends = sorted((values.low, values.high))
                found[name] = trial.suggest_float(name, *ends, log=values.log)
            else:
                listed = values.values(name) if isinstance(values, Range) else values
                found[name] = listed[trial.suggest_int(name, 0, len(listed) - 1)]
        for axis in self.asked.zips:
            row = axis.values[trial.suggest_int(" ".join(axis.names), 0, len(axis.values) - 1)]
            found |= dict(zip(axis.names, row, strict=True))
        return found

    def _meets(self, inputs: Mapping[str, Value]) -> bool:
        names = tuple(inputs)
        return all(condition(text, names)(tuple(inputs.values())) for text in self.asked.where)

    def _run(self, new: Mapping[str, Mapping[str, Value]], places: Mapping[str, int]) -> None:
        asked, store = self.asked, self.store
        told = in_si(asked.work, list(new.values()))
        for (key, _), one in zip(new.items(), told, strict=True):
            store.add_member(self.sweep, places[key], key, one)
        finished = store.finished(retried=asked.means.retry_failed)
        left = {key: one for key, one in new.items() if key not in finished}
        asked.means.run(asked.work, left, store)

    def _tell(self, trials: Sequence[Any], keys: Sequence[str], places: Mapping[str, int]) -> None:
        optimise = self.asked.optimise
        columns = (*optimise.minimise, *optimise.maximise)
        for trial, key in zip(trials, keys, strict=True):
            row = self.store.row(key, columns) if key in places else {}
            values = _values(row, optimise)
            if values is None:
                self.study.tell(trial, state=self.failed)
            else:
                self.study.tell(trial, values)
