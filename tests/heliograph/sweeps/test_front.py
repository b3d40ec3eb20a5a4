import itertools
import sys

import numpy as np
import pytest

from heliograph.sweeps.points import StepWork
from heliograph.sweeps.running import (
    Execution,
    Front,
    FrontRequest,
    SweepRequest,
    axis,
    hypervolume,
    pareto,
    run_sweep,
    search_front,
)
from heliograph.sweeps.space import Optimise, Range, Space
from heliograph.sweeps.store import Store
from simulator.errors import HeliographError, ParameterError

OBJECTIVES = Optimise(
    minimise=("step_time_s", "energy_per_token_j", "usd_per_million_tokens"),
    maximise=("snr_db",),
    trials=48,
    seed=3,
)
WORK = StepWork(system="photonic_packet", model="gpt2", plan="global_batch=16")
ZIP = {"plan.tp": [1, 2], "plan.dp": [8, 4]}


def test_the_front_holds_what_nothing_beats():
    costs = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0], [3.0, 3.0], [2.0, 2.0], [1.0, 4.0]])
    assert pareto(costs).tolist() == [True, True, True, False, False, False]


def test_a_hypervolume_is_the_volume_that_is_dominated():
    costs = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]])
    assert hypervolume(costs, np.array([4.0, 4.0])) == pytest.approx(6.0)
    assert hypervolume(costs + 5.0, np.array([4.0, 4.0])) == 0.0
    rng = np.random.default_rng(5)
    points = rng.random((12, 4))
    drawn = rng.random((40_000, 4))
    inside = np.zeros(len(drawn), dtype=bool)
    for one in points:
        inside |= (drawn >= one).all(axis=1)
    share = inside.mean()
    error = np.sqrt(share * (1.0 - share) / len(drawn))
    assert hypervolume(points, np.ones(4)) == pytest.approx(share, abs=4.0 * error)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    pytest.importorskip("optuna", reason="install the extra search")
    store = tmp_path_factory.mktemp("front") / "a.sqlite"
    ranges = {
        "laser_power_w": Range(low=1e-3, high=0.1, count=None, log=True),
        "core.adc": ("adc_survey_7b", "adc_survey_8b"),
        "fabric": ("rails", "torus"),
    }
    zips = (axis_of(ZIP),)
    return FrontRequest(
        name="front",
        work=WORK,
        ranges=ranges,
        zips=zips,
        optimise=OBJECTIVES,
        execution=Execution(store=store, workers=1),
    )


def axis_of(columns):
    from heliograph.sweeps.space import zipped

    return zipped(columns)


@pytest.mark.slow
def test_a_search_comes_near_a_grid_of_as_many_points(searched):
    found = search_front(searched)
    assert len(found.grid.points) == OBJECTIVES.trials
    axes = [
        axis("laser_power_w", Range(low=1e-3, high=0.1, count=6, log=True)),
        axis("core.adc", ["adc_survey_7b", "adc_survey_8b"]),
        axis("fabric", ["rails", "torus"]),
        axis_of(ZIP),
    ]
    space = Space(axes=tuple(axes))
    grid = Front(
        grid=run_sweep(SweepRequest(name="grid", work=WORK, space=space, execution=searched.execution)),
        optimise=OBJECTIVES,
    )
    both = [*found.grid.rows(), *grid.grid.rows()]
    worst = {
        name: (max if name in OBJECTIVES.minimise else min)(row[name] for row in both if not row["error"])
        for name in found.columns
    }
    assert found.hypervolume(worst) > 0.9 * grid.hypervolume(worst) > 0.0
    rows = found.rows()
    for one, other in itertools.permutations(rows, 2):
        better = [one[name] <= other[name] for name in OBJECTIVES.minimise]
        better += [one[name] >= other[name] for name in OBJECTIVES.maximise]
        assert not all(better)
    with Store(searched.execution.store, existing=True) as store:
        before = {(one.name, one.points) for one in store.sweep_states()}
        attempts = len(store.finished())
    again = search_front(searched)  # answered from the store, in the same order
    assert again.grid.rows() == found.grid.rows()
    with Store(searched.execution.store, existing=True) as store:
        assert {(one.name, one.points) for one in store.sweep_states()} == before
        assert len(store.finished()) == attempts


def test_what_is_optimised_must_be_a_column():
    with pytest.raises(ParameterError, match="did you mean 'step_time_s'"):
        FrontRequest(
            name="a", work=WORK, ranges={}, optimise=Optimise(minimise=("step_tim_s",)), execution=Execution()
        )


def test_without_optuna_one_sentence_says_what_to_install(searched, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(HeliographError, match=r"pip install 'heliograph\[search\]'"):
        search_front(searched)
