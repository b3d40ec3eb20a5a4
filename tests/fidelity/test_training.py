"""Step times of published training runs: what is reached now is held, and bars not yet reached are named.

Rows come from the shipped table (its sources stand beside each row); of long sources every few rows are
taken, for the whole table takes two minutes. No row of these sources was used to fit a constant of this
project unless the table of that constant says so.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import experiments.validation
from experiments.validation.driver import Validation
from experiments.validation.rows import SkipError, read_records
from experiments.validation.training import NEEDS, forecast, measured_s, outcome, run_of

pytestmark = pytest.mark.slow
TABLE = Path(experiments.validation.__file__).parent / "reference" / "training.csv"


@dataclass(frozen=True)
class Bar:
    """A set of rows, what is reached on it, and what is to be reached."""

    sources: tuple[str, ...]
    every: int
    reached: float
    """Mean absolute error now and a margin of a hundredth; what exceeds it has made things worse."""
    wanted: float


BARS = {
    "Korthikanti table 5": Bar(("Korthikanti et al. 2205.05198 Table 5",), 1, 0.055, 0.035),
    "PTD-P tables 1 and 2": Bar(
        ("Narayanan et al. 2104.04473 Table 1", "Narayanan et al. 2104.04473 Table 2 (PTD-P)"),
        1,
        0.035,
        0.06,
    ),
    "BLOOM search": Bar(("BigScience BLOOM",), 6, 0.085, 0.06),
    "DGX Cloud": Bar(("NVIDIA DGX Cloud",), 8, 0.07, 0.07),
    "llm-foundry": Bar(("MosaicML llm-foundry",), 6, 0.065, 0.08),
}

MISSED = {"Korthikanti table 5": "5.1 %, and 3.5 % is wanted", "BLOOM search": "7.5 %, and 6 % is wanted"}
"""Bars that are not reached yet; one that is reached leaves this list."""


@cache
def outcomes(name):
    bar = BARS[name]
    rows = [one for one in read_records(TABLE, needs=NEEDS) if one.text("source").startswith(bar.sources)]
    return Validation(kind="training", outcomes=tuple(map(outcome, rows[:: bar.every])))


@pytest.mark.parametrize("name", BARS)
def test_what_is_reached_is_held(name):
    found = outcomes(name)
    assert not found.skipped
    assert found.overall().n >= 5
    assert found.overall().mean_abs_error <= BARS[name].reached


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=MISSED[name]))
        if name in MISSED
        else name
        for name in BARS
    ],
)
def test_the_bar_is_reached(name):
    assert outcomes(name).overall().mean_abs_error <= BARS[name].wanted


@pytest.mark.parametrize("name", BARS)
def test_one_constant_does_worse(name):
    found = outcomes(name).overall()
    assert found.mean_abs_error < found.constant_mean_abs_error


@pytest.mark.xfail(strict=True, reason="8.5 %: Megatron-1T with full recomputation")
def test_the_largest_error_of_korthikanti_is_below_eight_percent():
    assert outcomes("Korthikanti table 5").overall().max <= 0.08


def test_rows_gathered_after_the_fits_are_met_better_than_by_the_constant():
    """Every fortieth of `training_unseen.csv`; the page tells the error over all of it."""
    rows = read_records(TABLE.with_name("training_unseen.csv"), needs=NEEDS)[::40]
    found = Validation(kind="training", outcomes=tuple(map(outcome, rows))).overall()
    assert found.n == len(rows)
    assert found.mean_abs_error < min(0.13, 0.5 * found.constant_mean_abs_error)


def test_steps_of_small_models_whose_loss_is_fused_are_met():
    """llm.c's four GPT-2 are met within 3 %; with a loss in single precision they would miss by 14 %."""
    rows = read_records(TABLE.with_name("training_unseen.csv"), needs=NEEDS)
    found = [(row, run_of(row)) for row in rows if row.text("source").startswith("llm.c")]
    fused, single = (
        [
            abs(forecast(system, config, plan.with_(fused_loss=one)).step_time_s / measured_s(row) - 1.0)
            for row, (system, config, plan) in found
        ]
        for one in (True, False)
    )
    assert len(fused) == 4
    assert sum(fused) / 4 < 0.03
    assert sum(single) / 4 > 0.1


def test_tensor_traffic_beside_products_takes_no_share_of_their_rate():
    """Every seventh step that ran so, shipped or not, as it ran and as if its traffic had waited.

    All 236 are 3.0 % too fast, and would be 6.4 % too slow if traffic waited; those drawn here 3.2 and 6.5 %.
    """
    tables = (TABLE, TABLE.with_name("training_unseen.csv"))
    ran = [(row, run_of(row)) for table in tables for row in read_records(table, needs=NEEDS) if beside(row)]
    assert len(ran) == 236
    errors, waited = (
        np.array(
            [
                forecast(system, config, plan.with_(overlap_tensor=one)).step_time_s / measured_s(row) - 1.0
                for row, (system, config, plan) in ran[::7]
            ]
        )
        for one in (True, False)
    )
    assert -0.04 < errors.mean() < 0.03
    assert abs(errors).mean() < 0.07
    assert waited.mean() > 0.05
    assert abs(waited).mean() > 1.4 * abs(errors).mean()


def beside(row):
    """Return whether the step of a row ran with tensor traffic beside its products."""
    try:
        return run_of(row)[2].traffic.overlap_tensor
    except SkipError:
        return False


def test_the_trivial_constant_is_the_one_that_peers_were_held_to():
    """Mean errors of the same constant, worked out apart from this project on the same rows."""
    assert outcomes("Korthikanti table 5").overall().constant_mean_abs_error == pytest.approx(0.17, abs=0.01)
    found = outcomes("PTD-P tables 1 and 2")
    first, second = (
        found.of(source).constant_mean_abs_error for source in BARS["PTD-P tables 1 and 2"].sources
    )
    assert first == pytest.approx(0.09, abs=0.005)
    assert second == pytest.approx(0.072, abs=0.005)
