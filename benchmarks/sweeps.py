"""Sweeps: time of a point, what store and processes add, how fast 100,000 resume, and the front of a search.

Run it as ``python benchmarks/sweeps.py``. Ratios hold between machines far better than seconds do.
"""

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heliograph as hg
from heliograph.sweeps.points import StepWork
from heliograph.sweeps.running import (
    Execution,
    Front,
    FrontRequest,
    SweepRequest,
    axis,
    run_sweep,
    search_front,
)
from heliograph.sweeps.space import Axis, Optimise, Range, Space, Value
from heliograph.sweeps.store import Outcome, Status, Store
from heliograph.sweeps.work import outcome_of

POINT_S = 0.05
POINTS = 200
MANY = 100_000
GPT3 = ("gpt3-175b", 1024)


@dataclass(frozen=True, kw_only=True)
class Busy:
    """A point that takes so much time of a processor."""

    seconds: float
    study: str = "busy"

    def keys(self, inputs: Sequence[Mapping[str, Value]]) -> list[str]:
        """Return a key for each point."""
        return [f"busy {one.get('number')}" for one in inputs]

    def reader(self, name: str) -> None:
        """Return None: no number of a system is swept."""

    def about(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def runner(self, expected: int) -> Callable[[Mapping[str, Value]], Mapping[str, Any]]:
        """Return what runs a point."""
        return self._run

    def _run(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        return {"step_time_s": float(inputs["number"])}


def busy(store: Path, count: int, seconds: float, workers: int) -> SweepRequest:
    """Return a sweep of busy points."""
    space = Space(axes=(Axis(names=("number",), values=tuple((n,) for n in range(count))),))
    return SweepRequest(
        name="busy",
        work=Busy(seconds=seconds),
        space=space,
        execution=Execution(store=store, workers=workers),
    )


def time_of(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the time that something takes."""
    began = clock()
    work()
    return clock() - began


def overhead(place: Path) -> None:
    """Print what keeping a point adds to it."""
    spent = time_of(lambda: run_sweep(busy(place / "a.sqlite", POINTS, 0.0, 1)), time.process_time)
    print(f"kept in the store: {1e3 * spent / POINTS:.2f} ms a point beside its own time")


def throughput(place: Path) -> None:
    """Print how much faster two processes are than one, from the second point of each on."""
    rates = []
    for workers in (1, 2):
        store = place / f"{workers}.sqlite"
        run_sweep(busy(store, POINTS, POINT_S, workers))
        with Store(store, existing=True) as opened:
            ends = sorted(
                time.mktime(time.strptime(row[:19], "%Y-%m-%dT%H:%M:%S")) + float(row[19:26])
                for (row,) in opened._base.execute("SELECT finished FROM points")
            )
        rates.append((len(ends) - 2 * workers) / (ends[-workers] - ends[workers]))
    print(
        f"points of {1e3 * POINT_S:.0f} ms on {os.cpu_count()} processors: {rates[0]:.1f}/s in one process, "
        f"{rates[1]:.1f}/s in two, {rates[1] / rates[0] / 2:.2f} of linear"
    )


def resume(place: Path) -> None:
    """Print how long a sweep of many points takes of which all are there."""
    store = place / "many.sqlite"
    asked = busy(store, MANY, 0.0, 1)
    with Store(store) as opened:
        first = Outcome(status=Status.DONE, row={"step_time_s": 0.0})
        opened.record("busy 0", "busy", first)
        opened._base.execute("BEGIN")
        opened._base.executemany(
            "INSERT OR IGNORE INTO points (key, study, status, step_time_s) VALUES (?, 'busy', 'done', ?)",
            ((f"busy {n}", float(n)) for n in range(MANY)),
        )
        opened._base.execute("COMMIT")
    run_sweep(asked)
    again = busy(store, MANY, 0.0, 1)
    print(f"{MANY:,} points resume in {time_of(lambda: run_sweep(again), time.process_time):.2f} s")
    light = hg.system("photonic_packet", accelerators=64)
    inputs = [{"laser_power_w": 1e-3 + 1e-7 * n, "wall_plug_efficiency": 0.1} for n in range(MANY)]
    work = StepWork(system=light, model="gpt2", plan="dp=64,global_batch=64")
    spent = time_of(lambda: work.keys(inputs), time.process_time)
    print(f"their keys, where a system's numbers are swept, are found in {spent:.2f} s")


def points() -> None:
    """Print the time of a point of a large step, first and later."""
    model, accelerators = GPT3
    for name, path, values in (
        ("photonic_packet", "laser_power_w", [0.01 + 0.001 * n for n in range(30)]),
        ("gpu_packet", "tdp_w", [500.0 + 10.0 * n for n in range(30)]),
        ("gpu_packet", "fabric.nic.bandwidth_bytes_per_s", [4e10 + 1e9 * n for n in range(30)]),
    ):
        system = hg.system(name, accelerators=accelerators)
        work = StepWork(system=system, model=model, plan=hg.plan(model=model, system=system))
        run = work.runner(10**6)  # as in a long sweep
        spent, failed = [], None
        for value in values:
            began = time.process_time()
            failed = outcome_of(run, work, {path: value}).error or failed
            spent.append(time.process_time() - began)
        later = sorted(spent[2:])[len(spent[2:]) // 2]
        print(
            f"{model} on {accelerators:,} {name}, {path}: first point {1e3 * spent[0]:.0f} ms, "
            f"later {1e3 * later:.0f} ms{f' ({failed})' if failed else ''}"
        )


OBJECTIVES = Optimise(
    minimise=("step_time_s", "energy_per_token_j", "usd_per_million_tokens"),
    maximise=("snr_db",),
    trials=96,
    seed=0,
)
PARTS: dict[str, tuple[Value, ...]] = {
    "core.adc": ("adc_survey_7b", "adc_survey_8b"),
    "fabric": ("rails", "torus"),
}
FINE, COARSE = (20, 16), (6, 4)
SEEDS = 5


def ranges(counts: tuple[int, int] | None) -> dict[str, Range | tuple[Value, ...]]:
    """Return the axes of the sweep: two numbers, with a count of values or as open ranges, and two parts."""
    power, rate = counts or (None, None)
    return {
        "laser_power_w": Range(low=0.05, high=0.4, count=power, log=True),
        "symbol_rate_hz": Range(low=2.5e9, high=2e10, count=rate, log=True),
        **PARTS,
    }


def front(place: Path) -> None:
    """Print the volumes that searches and a grid of as many points dominate, as shares of a fine grid's."""
    work = StepWork(system="photonic_packet", model="gpt2", plan="dp=8,global_batch=16")
    execution = Execution(store=place / "front.sqlite", workers=1)

    def of_grid(counts: tuple[int, int]) -> Front:
        space = Space(axes=tuple(axis(name, values) for name, values in ranges(counts).items()))
        asked = SweepRequest(name="grid", work=work, space=space, execution=execution)
        return Front(grid=run_sweep(asked), optimise=OBJECTIVES)

    fine, coarse = of_grid(FINE), of_grid(COARSE)
    searches = [
        search_front(
            FrontRequest(
                name="search",
                work=work,
                ranges=ranges(None),
                optimise=dataclasses.replace(OBJECTIVES, seed=seed),
                execution=execution,
            )
        )
        for seed in range(SEEDS)
    ]
    every = [row for one in (fine, coarse, *searches) for row in one.grid.rows() if not row["error"]]
    worst = {
        name: (max if name in OBJECTIVES.minimise else min)(row[name] for row in every)
        for name in fine.columns
    }
    whole = fine.hypervolume(worst)
    shares = [one.hypervolume(worst) / whole for one in searches]
    print(
        f"hypervolume of {len(fine.grid.points):,} points of a grid: a grid of {len(coarse.grid.points)} has "
        f"{coarse.hypervolume(worst) / whole:.1%}, searches of {OBJECTIVES.trials} have {min(shares):.1%} to "
        f"{max(shares):.1%}"
    )


if __name__ == "__main__":
    points()
    with tempfile.TemporaryDirectory() as directory:
        overhead(Path(directory))
        resume(Path(directory))
        throughput(Path(directory))
        front(Path(directory))
