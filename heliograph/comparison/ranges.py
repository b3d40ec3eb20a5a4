"""Verdicts of a comparison at both ends of every number's published range: which numbers could turn them."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph.comparison.plan_estimates import Objective
from heliograph.comparison.plan_search import at_target, value_of
from heliograph.parameters import Parameter, parameters_of
from heliograph.processes import OnProgress, run_all, unheard
from heliograph.report import Tabular
from heliograph.simulation import StepResult
from heliograph.systems.system import System
from simulator.errors import BudgetError, HeliographError, LinkError, ParameterError, WorkloadError
from simulator.parameter_tree import shown_paths
from workloads.models.architecture import TransformerConfig
from workloads.plan.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = Mapping[Objective, float]
"""Time in s, energy in J and cost in USD of a step; infinite where it cannot run."""
Changes = Mapping[str, float]
"""Numbers to change, SI, by path."""

Key = tuple[str, Objective]
"""Contest and objective."""
Ratios = Mapping[Key, float]
"""Challenger over holder, by contest and objective."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Two kinds of systems that stand against each other; each kind is its best system."""

    name: str
    """Both kinds, the challenger first."""
    challengers: tuple[str, ...]
    """Names of the systems of one kind."""
    holders: tuple[str, ...]
    """Names of those of the other."""

    def ratio(self, values: Mapping[str, Values], objective: Objective) -> float:
        """Return the least of the challengers over the least of the holders; below 1 the challenger wins."""
        least = [
            min((values[one][objective] for one in side if one in values), default=math.inf)
            for side in (self.challengers, self.holders)
        ]
        return 1.0 if least[0] == least[1] else least[0] / least[1]


def contests(systems: Sequence[System]) -> tuple[Contest, ...]:
    """Return light against GPUs, and among GPUs circuits against packets, where both kinds are there."""
    lit = [one.name for one in systems if one.photonic is not None]
    plain = [one for one in systems if one.photonic is None]
    turning = [one.name for one in plain if one.fabric.traits.policies]
    fixed = [one.name for one in plain if not one.fabric.traits.policies]
    pairs = {"light / GPUs": (lit, [*fixed, *turning]), "circuits / packets": (turning, fixed)}
    return tuple(
        Contest(name=name, challengers=tuple(one), holders=tuple(other))
        for name, (one, other) in pairs.items()
        if one and other
    )


def check_kinds(systems: Sequence[System]) -> None:
    """Raise an error if systems are all of one kind, so that there is no verdict."""
    if not contests(systems):
        msg = "ranges tell how firm the verdict between light and GPUs is, or circuits and packets; name both"
        raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class Swing:
    """Ratios of every contest and objective with one number at both ends of its range."""

    number: Parameter
    """The number, in every system that has it."""
    at_low: Ratios | None
    """Ratios at its low end by contest and objective; None where no system can have that value."""
    at_high: Ratios | None
    """The same at its high end."""

    def ends(self, key: Key) -> list[tuple[float, float]]:
        """Return ratio and value of the number at each end that can be."""
        pairs = zip((self.at_low, self.at_high), self.number.ends, strict=True)
        return [(ratios[key], value) for ratios, value in pairs if ratios is not None]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One contest by one objective, and how firm it is."""

    contest: str
    """The contest."""
    objective: Objective
    """The objective."""
    present: float
    """Ratio as the numbers stand."""
    least: float
    """Least ratio that one number alone gives, among ends at which both kinds run."""
    most: float
    """Most."""
    favoured: float
    """Ratio with every number at the end that lowers it, as many as stand together; NaN if none runs."""
    opposed: float
    """The same with every number at the end that raises it."""
    alone: tuple[Parameter, ...]
    """Numbers that turn the verdict by themselves."""
    together: tuple[Parameter, ...]
    """Fewest of the strongest numbers that turn it together; empty if all do not, or one does."""
    fails: tuple[Parameter, ...]
    """Numbers with an end at which one kind of system cannot run."""

    @property
    def even(self) -> bool:
        """Whether both kinds do alike, so that there is nothing to turn."""
        return abs(self.present - 1.0) < EVEN


EVEN = 0.005
"""Share below which two systems do alike; a choice."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Ranges(Tabular):
    """Firmness of the verdicts of a comparison over the ranges of its numbers."""

    verdicts: tuple[Verdict, ...]
    """By contest and objective."""
    swings: tuple[Swing, ...]
    """A swing for every number with a range."""

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the verdicts."""
        lines = [("verdicts", f"over {len(self.swings)} numbers with a range")]
        for one in self.verdicts:
            text = f"{one.present:.3g}, one number {one.least:.3g} to {one.most:.3g}"
            lines.append((f"{one.contest}, {one.objective}", f"{text}, all {one.favoured:.3g}"))
        return lines

    def record(self) -> dict[str, Any]:
        """Return the verdicts as plain data; a ratio is None where a kind cannot run."""
        names = self.names()
        return {
            "numbers": len(self.swings),
            "verdicts": [
                {
                    "contest": one.contest,
                    "objective": str(one.objective),
                    **{key: _finite(getattr(one, key)) for key in RATIOS},
                    **{
                        key: [names[number] for number in getattr(one, key)]
                        for key in ("alone", "together", "fails")
                    },
                }
                for one in self.verdicts
            ],
        }

    def names(self) -> dict[Parameter, str]:
        """Return the name of each number: its path, and its value where two systems share a path."""
        numbers = [one.number for one in self.swings]
        times = Counter(one.path for one in numbers)
        paths = shown_paths(times)
        return {one: paths[one.path] + (f" ({one.told})" if times[one.path] > 1 else "") for one in numbers}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each number, contest and objective; a ratio is None where a kind cannot run."""
        return [
            {
                "path": one.number.path,
                "unit": one.number.unit,
                "low": one.number.ends[0],
                "value": one.number.value,
                "high": one.number.ends[1],
                "contest": verdict.contest,
                "objective": str(verdict.objective),
                "ratio_at_low": _at(one.at_low, verdict),
                "ratio": verdict.present,
                "ratio_at_high": _at(one.at_high, verdict),
                "source": one.number.source,
            }
            for verdict in self.verdicts
            for one in self.swings
        ]

    def strongest(self, verdict: Verdict, count: int) -> list[Swing]:
        """Return the numbers that move a verdict most, the strongest first."""
        key = (verdict.contest, verdict.objective)

        def strength(one: Swing) -> float:
            moved = (_finite(ratio / verdict.present) for ratio, _ in one.ends(key))
            return max((math.inf if each is None else abs(math.log(each)) for each in moved), default=0.0)

        return [one for one in sorted(self.swings, key=strength, reverse=True)[:count] if strength(one) > 0.0]

    def plot(self) -> Figure:
        """Return a figure of the numbers that move the first contest most, a panel for each objective."""
        from heliograph.figures import range_bars  # noqa: PLC0415 - matplotlib takes its time

        first = [one for one in self.verdicts if one.contest == self.verdicts[0].contest]
        names = self.names()
        panels = {
            f"{verdict.contest}, {verdict.objective}": (
                verdict.present,
                [
                    (names[one.number], _at(one.at_low, verdict), _at(one.at_high, verdict))
                    for one in self.strongest(verdict, SHOWN)
                ],
            )
            for verdict in first
        }
        return range_bars(panels)


RATIOS = ("present", "least", "most", "favoured", "opposed")
"""Ratios of a verdict."""
SHOWN = 8
"""Numbers that a panel of the figure shows."""


def _at(ratios: Ratios | None, verdict: Verdict) -> float | None:
    return None if ratios is None else _finite(ratios[verdict.contest, verdict.objective])


def _finite(ratio: float) -> float | None:
    return ratio if 0.0 < ratio < math.inf else None


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One step of a system with some numbers changed, for any process."""

    index: int
    """Which of the changes that were asked for."""
    name: str
    """The system's name."""
    system: System
    """It as it stands."""
    config: TransformerConfig
    """The model."""
    plan: Plan
    """Its plan."""
    placement: str
    """Placement of its ranks."""
    changes: Changes
    """Numbers to change."""


def _values(job: _Job) -> Values | None:
    """Return what a step comes to, infinite where it cannot run; None where a number cannot be so."""
    try:
        with warnings.catch_warnings(action="ignore"):  # the system is only tried
            system = job.system.with_(job.changes)
            return _values_of(at_target(system, job.config, job.plan, job.placement))
    except (LinkError, BudgetError, WorkloadError):
        return dict.fromkeys(Objective, math.inf)
    except ParameterError:
        return None


def _values_of(result: StepResult) -> Values:
    return {one: value_of(result, one) for one in Objective}


def ranges_of(
    results: Sequence[StepResult], *, share: bool = False, progress: OnProgress = unheard
) -> Ranges:
    """Return how firm the verdicts of a comparison are over the published ranges of its numbers.

    Parameters
    ----------
    results : sequence of StepResult
        Steps of the systems. Each keeps its plan and the way its circuits move; light is sized anew.
    share : bool
        Whether processes may be started: by a command, not by a script of which they would run a copy.
    progress : callable
        Told a label, how much is done, and how much there is.

    Raises
    ------
    ParameterError
        If all systems are of one kind.

    Notes
    -----
    Each number stands at either end of its range, all others as they are, in every system that has it. Of
    each kind the systems that are best by an objective are run: another one that a change would make the best
    of its kind is not seen. Ranges are those of the tables, without a probability: what all numbers at their
    best ends give is a bound, no forecast.
    """
    systems = [one.system for one in results]
    check_kinds(systems)
    found = contests(systems)
    runs = _Runs(found, results, share=share, progress=progress)
    numbers = runs.numbers
    jobs = [(number, end) for number in numbers for end in number.ends if end != number.value]
    ratios = runs.ratios([runs.changes({number: end}) for number, end in jobs])
    at = dict(zip(jobs, ratios, strict=True))
    swings = tuple(
        Swing(
            number=number,
            at_low=at.get((number, number.ends[0]), runs.present),
            at_high=at.get((number, number.ends[1]), runs.present),
        )
        for number in numbers
    )
    keys = [(one.name, by) for one in found for by in Objective]
    helping = {
        (key, sign): runs.standing(_ends(swings, key, runs.present[key], sign))
        for key in keys
        for sign in SIGNS
    }
    bounds = runs.ratios([runs.changes(one) for one in helping.values()])
    together = runs.fewest({key: helping[key, 1.0 if runs.present[key] > 1.0 else -1.0] for key in keys})
    return Ranges(
        verdicts=tuple(
            _verdict(key, runs.present[key], swings, bounds[2 * at : 2 * at + 2], together[key])
            for at, key in enumerate(keys)
        ),
        swings=swings,
    )


SIGNS = (1.0, -1.0)
"""Ends that lower a ratio, and those that raise it."""
TOGETHER = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Numbers that are tried together, to find how few turn a verdict."""


class _Runs:
    """Steps of the best systems of each kind, with numbers changed."""

    def __init__(
        self, found: Sequence[Contest], results: Sequence[StepResult], *, share: bool, progress: OnProgress
    ) -> None:
        values = {one.system.name: _values_of(one) for one in results}
        best = {
            min(side, key=lambda name, by=by: values[name][by])  # type: ignore[misc]
            for one in found
            for by in Objective
            for side in (one.challengers, one.holders)
        }
        self._contests = found
        self._steps = {one.system.name: one for one in results if one.system.name in best}
        self._systems = {
            name: dataclasses.replace(one.system, circuits=one.system.fabric.traits.policy)
            for name, one in self._steps.items()
        }
        self._known = {name: values[name] for name in self._steps}
        self._share, self._progress = share, progress
        self.present = self._ratios(self._known)
        having: dict[Parameter, list[str]] = {}
        for name, system in self._systems.items():
            for number in parameters_of(system):
                if number.ends:
                    having.setdefault(number, []).append(name)
        self.numbers = having
        """Every number with a range, and the names of the systems that have it."""

    def _ratios(self, values: Mapping[str, Values]) -> Ratios:
        return {(one.name, by): one.ratio(values, by) for one in self._contests for by in Objective}

    def changes(self, ends: Mapping[Parameter, float]) -> dict[str, Changes]:
        """Return numbers at given values as changes of each system that has them."""
        found: dict[str, dict[str, float]] = {}
        for number, end in ends.items():
            for name in self.numbers[number]:
                found.setdefault(name, {})[number.path] = end
        return dict(found)

    def standing(self, ends: Mapping[Parameter, float]) -> dict[Parameter, float]:
        """Return those of several numbers that systems can have together, each in its turn."""
        kept: dict[Parameter, float] = {}
        systems = dict(self._systems)
        for number, end in ends.items():
            try:
                with warnings.catch_warnings(action="ignore"):
                    systems |= {
                        name: systems[name].with_({number.path: end}) for name in self.numbers[number]
                    }
            except HeliographError:
                continue
            kept[number] = end
        return kept

    def fewest(self, helping: Mapping[Key, Mapping[Parameter, float]]) -> dict[Key, tuple[Parameter, ...]]:
        """Return the fewest first numbers of each verdict's that turn it, of the sizes in `TOGETHER`."""
        sizes = [
            (key, size)
            for key, ends in helping.items()
            if abs(self.present[key] - 1.0) >= EVEN
            for size in TOGETHER
            if size <= len(ends)
        ]
        firsts = [dict(list(helping[key].items())[:size]) for key, size in sizes]
        ratios = self.ratios([self.changes(one) for one in firsts])
        found: dict[Key, tuple[Parameter, ...]] = dict.fromkeys(helping, ())
        for (key, _), first, each in zip(sizes, firsts, ratios, strict=True):
            if not found[key] and each is not None and _turned(self.present[key], each[key]):
                found[key] = tuple(first)
        return found

    def ratios(self, asked: Sequence[Mapping[str, Changes]]) -> list[Ratios | None]:
        """Return the ratios with each of several changes of systems; None where they cannot be."""
        values: list[dict[str, Values]] = [dict(self._known) for _ in asked]
        cannot: set[int] = set()
        jobs = [
            _Job(
                index=index,
                name=name,
                system=self._systems[name],
                config=step.config,
                plan=step.plan,
                placement=step.placement,
                changes=each[name],
            )
            for name, step in self._steps.items()
            for index, each in enumerate(asked)
            if name in each
        ]
        done = 0

        def keep(job: _Job, value: Values | None) -> None:
            nonlocal done
            done += 1
            self._progress(f"ranges, {job.name}", done, len(jobs))
            if value is None:
                cannot.add(job.index)
            else:
                values[job.index][job.name] = value

        if self._share:
            run_all(jobs, _values, keep)
        else:
            for job in jobs:
                keep(job, _values(job))
        return [None if index in cannot else self._ratios(one) for index, one in enumerate(values)]


def _ends(swings: Sequence[Swing], key: Key, present: float, sign: float) -> dict[Parameter, float]:
    """Return the numbers that lower a ratio (sign 1) or raise it (-1) at that end, the strongest first."""
    found = []
    for one in swings:
        ratio, value = min(one.ends(key), key=lambda end: sign * end[0], default=(present, math.nan))
        if sign * ratio < sign * present:
            found.append((sign * ratio, one.number, value))
    return {number: value for _, number, value in sorted(found, key=lambda each: each[0])}


def _verdict(
    key: Key,
    present: float,
    swings: Sequence[Swing],
    bounds: Sequence[Ratios | None],
    together: tuple[Parameter, ...],
) -> Verdict:
    ends = {one.number: [ratio for ratio, _ in one.ends(key)] for one in swings}
    finite = [present, *(ratio for each in ends.values() for ratio in each if 0.0 < ratio < math.inf)]
    favoured, opposed = (
        math.nan if one is None or not 0.0 < one[key] < math.inf else one[key] for one in bounds
    )
    alone = tuple(number for number, each in ends.items() if any(_turned(present, one) for one in each))
    return Verdict(
        contest=key[0],
        objective=key[1],
        present=present,
        least=min(finite),
        most=max(finite),
        favoured=favoured,
        opposed=opposed,
        alone=alone,
        together=() if alone else together,
        fails=tuple(number for number, each in ends.items() if any(one in {0.0, math.inf} for one in each)),
    )


def _turned(present: float, ratio: float) -> bool:
    """Return whether a ratio gives the other verdict, both kinds running."""
    if abs(present - 1.0) < EVEN:
        return False
    return 0.0 < ratio < 1.0 if present > 1.0 else 1.0 < ratio < math.inf
