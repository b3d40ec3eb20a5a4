"""Sensitivity of a comparison's verdicts to the published ranges of its input numbers.

A *contest* sets two kinds of systems against each other, such as light against GPUs; its verdict by an
objective is the ratio of the best of each kind. `ranges_of` moves every number with a published range to
either end, alone, and reports which numbers reverse a verdict by themselves, and how few do so together.
"""

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
"""New values of a system's numbers, SI, by path."""

Key = tuple[str, Objective]
"""Name of a contest, and objective."""
Ratios = Mapping[Key, float]
"""Value of the best challenger over that of the best holder, by contest and objective."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Two kinds of systems that are compared, each represented by its best system."""

    name: str
    """Name, the challenging kind first."""
    challengers: tuple[str, ...]
    """Names of the systems of the challenging kind."""
    holders: tuple[str, ...]
    """Names of the systems of the kind that is challenged."""

    def ratio(self, values: Mapping[str, Values], objective: Objective) -> float:
        """Return the best challenger's value over the best holder's; below 1 the challenger wins."""
        challenger, holder = (
            min((values[name][objective] for name in kind if name in values), default=math.inf)
            for kind in (self.challengers, self.holders)
        )
        return 1.0 if challenger == holder else challenger / holder


def contests(systems: Sequence[System]) -> tuple[Contest, ...]:
    """Return the contests for which both kinds are present: light / GPUs, and of GPUs circuits / packets."""
    photonic = [one.name for one in systems if one.photonic is not None]
    electronic = [one for one in systems if one.photonic is None]
    circuits = [one.name for one in electronic if one.fabric.traits.policies]
    packets = [one.name for one in electronic if not one.fabric.traits.policies]
    pairs = {"light / GPUs": (photonic, [*packets, *circuits]), "circuits / packets": (circuits, packets)}
    return tuple(
        Contest(name=name, challengers=tuple(challengers), holders=tuple(holders))
        for name, (challengers, holders) in pairs.items()
        if challengers and holders
    )


def check_kinds(systems: Sequence[System]) -> None:
    """Raise `ParameterError` if all systems are of one kind, so that there is no verdict."""
    if not contests(systems):
        msg = "ranges tell how firm the verdict between light and GPUs is, or circuits and packets; name both"
        raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class Swing:
    """Ratios of all contests with one number at either end of its range."""

    number: Parameter
    """The number, changed in every system that has it."""
    at_low: Ratios | None
    """Ratios at its low end; None where that value is invalid."""
    at_high: Ratios | None
    """Ratios at its high end; None where that value is invalid."""

    def ends(self, key: Key) -> list[tuple[float, float]]:
        """Return (ratio, value of the number) at each valid end."""
        pairs = zip((self.at_low, self.at_high), self.number.ends, strict=True)
        return [(ratios[key], value) for ratios, value in pairs if ratios is not None]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Ratio of one contest by one objective, and its sensitivity."""

    contest: str
    """Name of the contest."""
    objective: Objective
    """The objective."""
    present: float
    """Ratio with all numbers as they are."""
    least: float
    """Least ratio that one number alone gives, among ends at which both kinds run."""
    most: float
    """Greatest ratio that one number alone gives, among ends at which both kinds run."""
    favoured: float
    """Ratio with all numbers at the end that lowers it, except those that are invalid together with stronger
    ones; NaN if a kind cannot run so."""
    opposed: float
    """Ratio with all numbers at the end that raises it, likewise."""
    alone: tuple[Parameter, ...]
    """Numbers that reverse the verdict by themselves."""
    together: tuple[Parameter, ...]
    """Fewest of the strongest numbers that reverse it together; empty if all do not, or one alone does."""
    fails: tuple[Parameter, ...]
    """Numbers with an end at which one kind of system cannot run."""

    @property
    def even(self) -> bool:
        """Whether both kinds are equally good, so that there is no verdict to reverse."""
        return _is_even(self.present)


EVEN = 0.005
"""Share within which two systems count as equally good; a choice."""


def _is_even(ratio: float) -> bool:
    return abs(ratio - 1.0) < EVEN


@dataclass(frozen=True, kw_only=True, repr=False)
class Ranges(Tabular):
    """Sensitivity of the verdicts of a comparison to the ranges of its numbers."""

    verdicts: tuple[Verdict, ...]
    """A verdict per contest and objective."""
    swings: tuple[Swing, ...]
    """A swing per number with a range."""

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the summary that is printed: a title, then a line per verdict."""
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
        """Return the name of each number: its path, with its value where systems differ in it."""
        numbers = [one.number for one in self.swings]
        counts = Counter(one.path for one in numbers)
        paths = shown_paths(counts)
        return {
            one: paths[one.path] + (f" ({one.value_text})" if counts[one.path] > 1 else "") for one in numbers
        }

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
        """Return at most `count` swings that change a verdict's ratio, those of the largest factor first."""
        key = (verdict.contest, verdict.objective)

        def strength(one: Swing) -> float:
            factors = (_finite(ratio / verdict.present) for ratio, _ in one.ends(key))
            return max((math.inf if each is None else abs(math.log(each)) for each in factors), default=0.0)

        return [one for one in sorted(self.swings, key=strength, reverse=True)[:count] if strength(one) > 0.0]

    def plot(self) -> Figure:
        """Return a figure of the strongest numbers of the first contest, a panel for each objective."""
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
"""Fields of a verdict that are ratios."""
SHOWN = 8
"""Numbers in a panel of the figure; a choice."""


def _at(ratios: Ratios | None, verdict: Verdict) -> float | None:
    return None if ratios is None else _finite(ratios[verdict.contest, verdict.objective])


def _finite(ratio: float) -> float | None:
    """Return a ratio; None where it is zero or infinite because a kind cannot run."""
    return ratio if 0.0 < ratio < math.inf else None


@dataclass(frozen=True, kw_only=True)
class _Job:
    """Step of a system with some numbers changed; picklable, for any process."""

    index: int
    """Index of the changes in the list given to `_Runs.ratios`."""
    name: str
    """Name of the system."""
    system: System
    """The system before the changes."""
    config: TransformerConfig
    """The model."""
    plan: Plan
    """Its plan."""
    placement: str
    """Placement of its ranks."""
    changes: Changes
    """Numbers to change."""


def _run_job(job: _Job) -> Values | None:
    """Return the values of a step, infinite where it cannot run; None where a changed number is invalid."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of systems that nobody proposes to build
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
    """Return the sensitivity of a comparison's verdicts to the published ranges of its numbers.

    Parameters
    ----------
    results : sequence of StepResult
        Steps of the systems. Each keeps its plan and its circuit policy; laser power is sized anew.
    share : bool
        Whether processes may be started: by a command, not by a script of which they would run a copy.
    progress : callable
        Called with a label, the number of steps done, and the number in all.

    Raises
    ------
    ParameterError
        If all systems are of one kind.

    Notes
    -----
    A number is moved to an end of its range in every system that has it, all others staying as they are. Of
    each kind only the systems are run that are best by an objective; another one that a change would make the
    best of its kind is not seen. The tables give ranges without probabilities, so that the ratio with all
    numbers at their best ends is a bound and no forecast.
    """
    systems = [one.system for one in results]
    check_kinds(systems)
    all_contests = contests(systems)
    runs = _Runs(all_contests, results, share=share, progress=progress)
    numbers = runs.numbers
    ends = [(number, end) for number in numbers for end in number.ends if end != number.value]
    ratios = runs.ratios([runs.changes({number: end}) for number, end in ends])
    ratios_at = dict(zip(ends, ratios, strict=True))
    swings = tuple(
        Swing(
            number=number,
            at_low=ratios_at.get((number, number.ends[0]), runs.present),
            at_high=ratios_at.get((number, number.ends[1]), runs.present),
        )
        for number in numbers
    )
    keys = [(contest.name, objective) for contest in all_contests for objective in Objective]
    combined = {
        (key, sign): runs.compatible(_moving_ends(swings, key, runs.present[key], sign))
        for key in keys
        for sign in SIGNS
    }
    bounds = runs.ratios([runs.changes(one) for one in combined.values()])
    bound_of = dict(zip(combined, bounds, strict=True))
    together = runs.fewest({key: combined[key, 1.0 if runs.present[key] > 1.0 else -1.0] for key in keys})
    return Ranges(
        verdicts=tuple(
            _verdict(key, runs.present[key], swings, [bound_of[key, sign] for sign in SIGNS], together[key])
            for key in keys
        ),
        swings=swings,
    )


SIGNS = (1.0, -1.0)
"""Directions in which a ratio is moved: lower, higher."""
TOGETHER = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Sizes of groups of numbers that are tried, to find how few reverse a verdict."""


class _Runs:
    """Runs of the best systems of each kind with numbers changed."""

    def __init__(
        self,
        contests: Sequence[Contest],
        results: Sequence[StepResult],
        *,
        share: bool,
        progress: OnProgress,
    ) -> None:
        values = {one.system.name: _values_of(one) for one in results}
        best = {
            min(kind, key=lambda name, objective=objective: values[name][objective])  # type: ignore[misc]
            for contest in contests
            for objective in Objective
            for kind in (contest.challengers, contest.holders)
        }
        self._contests = contests
        self._steps = {one.system.name: one for one in results if one.system.name in best}
        self._systems = {
            name: dataclasses.replace(one.system, circuits=one.system.fabric.traits.policy)
            for name, one in self._steps.items()
        }
        self._present_values = {name: values[name] for name in self._steps}
        self._share, self._progress = share, progress
        self.present = self._ratios(self._present_values)
        """Ratios with all numbers as they are."""
        owners: dict[Parameter, list[str]] = {}
        for name, system in self._systems.items():
            for number in parameters_of(system):
                if number.ends:
                    owners.setdefault(number, []).append(name)
        self.numbers = owners
        """Every number with a range, and the names of the systems that have it."""

    def _ratios(self, values: Mapping[str, Values]) -> Ratios:
        return {
            (contest.name, objective): contest.ratio(values, objective)
            for contest in self._contests
            for objective in Objective
        }

    def changes(self, ends: Mapping[Parameter, float]) -> dict[str, Changes]:
        """Return new values of numbers as changes of each system that has them, by its name."""
        changes: dict[str, dict[str, float]] = {}
        for number, end in ends.items():
            for name in self.numbers[number]:
                changes.setdefault(name, {})[number.path] = end
        return dict(changes)

    def compatible(self, ends: Mapping[Parameter, float]) -> dict[Parameter, float]:
        """Return new values of numbers without those that are invalid together with the ones before them."""
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
        """Return how many of the strongest numbers reverse each verdict: the smallest group of `TOGETHER`.

        Parameters
        ----------
        helping : mapping
            New values of numbers that move each verdict towards its reversal, the strongest first.
        """
        sizes = [
            (key, size)
            for key, ends in helping.items()
            if not _is_even(self.present[key])
            for size in TOGETHER
            if size <= len(ends)
        ]
        groups = [dict(list(helping[key].items())[:size]) for key, size in sizes]
        ratios = self.ratios([self.changes(group) for group in groups])
        fewest: dict[Key, tuple[Parameter, ...]] = dict.fromkeys(helping, ())
        for (key, _), group, reached in zip(sizes, groups, ratios, strict=True):
            if not fewest[key] and reached is not None and _is_reversed(self.present[key], reached[key]):
                fewest[key] = tuple(group)
        return fewest

    def ratios(self, variants: Sequence[Mapping[str, Changes]]) -> list[Ratios | None]:
        """Return the ratios under each variant, changes by system; None where a number is invalid."""
        values: list[dict[str, Values]] = [dict(self._present_values) for _ in variants]
        invalid: set[int] = set()
        jobs = [
            _Job(
                index=index,
                name=name,
                system=self._systems[name],
                config=step.config,
                plan=step.plan,
                placement=step.placement,
                changes=changes[name],
            )
            for name, step in self._steps.items()
            for index, changes in enumerate(variants)
            if name in changes
        ]
        done = 0

        def keep(job: _Job, value: Values | None) -> None:
            nonlocal done
            done += 1
            self._progress(f"ranges, {job.name}", done, len(jobs))
            if value is None:
                invalid.add(job.index)
            else:
                values[job.index][job.name] = value

        if self._share:
            run_all(jobs, _run_job, keep)
        else:
            for job in jobs:
                keep(job, _run_job(job))
        return [None if index in invalid else self._ratios(one) for index, one in enumerate(values)]


def _moving_ends(swings: Sequence[Swing], key: Key, present: float, sign: float) -> dict[Parameter, float]:
    """Return the numbers, each at the end that lowers a ratio (sign 1) or raises it (-1), strongest first."""
    moving = []
    for one in swings:
        ratio, value = min(one.ends(key), key=lambda end: sign * end[0], default=(present, math.nan))
        if sign * ratio < sign * present:
            moving.append((sign * ratio, one.number, value))
    return {number: value for _, number, value in sorted(moving, key=lambda each: each[0])}


def _verdict(
    key: Key,
    present: float,
    swings: Sequence[Swing],
    bounds: Sequence[Ratios | None],
    together: tuple[Parameter, ...],
) -> Verdict:
    """Return a verdict; `bounds` are the ratios with all numbers lowering it, and with all raising it."""
    ends = {one.number: [ratio for ratio, _ in one.ends(key)] for one in swings}
    finite = [present, *(ratio for ratios in ends.values() for ratio in ratios if 0.0 < ratio < math.inf)]
    favoured, opposed = (
        math.nan if bound is None or not 0.0 < bound[key] < math.inf else bound[key] for bound in bounds
    )
    alone = tuple(
        number for number, ratios in ends.items() if any(_is_reversed(present, ratio) for ratio in ratios)
    )
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


def _is_reversed(present: float, ratio: float) -> bool:
    """Return whether a ratio is a verdict for the other kind, with both kinds running."""
    if _is_even(present):
        return False
    return 0.0 < ratio < 1.0 if present > 1.0 else 1.0 < ratio < math.inf
