import dataclasses
import math

import numpy as np
import pytest

from heliograph.accuracy.law import (
    Band,
    ExactLoss,
    Form,
    Kind,
    Law,
    Passes,
    Rise,
    Run,
    Schedule,
    Where,
    chaos_nats,
    fit,
    fit_exact,
    fit_with_band,
    gradient_price,
    read_runs,
    rises,
    told_rises,
)
from simulator.errors import ParameterError

EXACT = ExactLoss(floor=0.5, size=40.0, size_exponent=0.35, data=60.0, data_exponent=0.4)
PLANTED = {
    Form.ADDITIVE: (math.log(0.02), 0.9, math.log(1.2), 0.4, 0.3),
    Form.EFFECTIVE: (math.log(30.0), 1.1, math.log(1.2)),
}


def run_at(parameters, level, ratio, schedule, loss, *, seed=0, kind=Kind.WHITE):
    return Run(
        width=parameters // 1000,
        parameters=parameters,
        kind=kind,
        level=level,
        products=Where.ALL,
        seed=seed,
        tokens=round(ratio * parameters),
        tokens_per_parameter=ratio,
        schedule=schedule,
        loss=loss,
        exact_loss=loss,
    )


def planted_runs(form, *, scatter=0.0):
    """Return runs of a known law, with scatter of the rise's logarithm."""
    law = Law(form=form, coefficients=PLANTED[form], exact=EXACT)
    generator = np.random.default_rng(3)
    found = []
    for parameters in (20_000, 50_000, 120_000):
        for seed in range(2):
            for ratio in (5.0, 10.0, 20.0):
                for schedule in Schedule:
                    exact = EXACT(parameters, ratio * parameters)
                    found.append(run_at(parameters, 0.0, ratio, schedule, exact, seed=seed, kind=Kind.EXACT))
                    for level in (12.0, 18.0, 24.0):
                        rise = law.rise(10.0 ** (-level / 10.0), parameters, ratio, schedule)
                        rise *= math.exp(scatter * generator.standard_normal())
                        found.append(run_at(parameters, level, ratio, schedule, exact + rise, seed=seed))
    return found


@pytest.mark.parametrize("form", Form)
def test_fit_recovers_planted_constants(form):
    runs = planted_runs(form)
    assert fit(rises(runs), form, EXACT).coefficients == pytest.approx(PLANTED[form], rel=1e-6)


def test_exact_loss_recovers_planted_exponents():
    found = fit_exact(planted_runs(Form.ADDITIVE))
    assert (found.size_exponent, found.data_exponent) == pytest.approx(
        (0.35, 0.4), abs=0.026
    )  # the grid's step
    assert found(1e6, 2e7) == pytest.approx(EXACT(1e6, 2e7), rel=0.02)


@pytest.mark.parametrize("form", Form)
def test_band_holds_the_planted_law_and_widens_with_size(form):
    fitted = fit_with_band(rises(planted_runs(form, scatter=0.2)), form, EXACT)
    truth = Law(form=form, coefficients=PLANTED[form], exact=EXACT)
    near, far = (fitted.needed_db(0.01, parameters) for parameters in (5e4, 4e11))
    for band, parameters in ((near, 5e4), (far, 4e11)):
        assert band.low <= truth.needed_db(0.01, parameters) <= band.high
    assert far.high - far.low >= near.high - near.low - 1e-9


@pytest.mark.parametrize("form", Form)
def test_tolerated_noise_makes_the_rise_that_it_tolerates(form):
    law = Law(form=form, coefficients=PLANTED[form], exact=EXACT)
    assert law.rise(10.0 ** (-law.needed_db(0.03, 1e5) / 10.0), 1e5) == pytest.approx(0.03)
    assert law.rise(0.0, 1e5) == 0.0
    assert law.rise(2e-3, 1e5) > law.rise(1e-3, 1e5)


def test_one_size_does_not_give_a_law():
    runs = [run for run in planted_runs(Form.ADDITIVE) if run.parameters == 20_000]
    with pytest.raises(ParameterError, match="add sizes"):
        fit(rises(runs), Form.ADDITIVE, EXACT)


def test_two_sizes_do_not_give_the_loss_over_size():
    """Every exponent fits two sizes alike: which was taken, and an error of 59 or 82 %, was a processor's."""
    runs = [run for run in planted_runs(Form.ADDITIVE) if run.parameters < 100_000]
    with pytest.raises(ParameterError, match=r"12 exact runs of 2 sizes .* at least 5 of 3 sizes"):
        fit_exact(runs)


def test_rises_are_paired_with_exact_runs():
    runs = planted_runs(Form.ADDITIVE)
    assert all(isinstance(one, Rise) and one.nats > 0.0 for one in rises(runs))
    assert not rises([run for run in runs if run.kind is not Kind.EXACT])


def test_a_number_is_told_near_the_sizes_trained_and_nowhere_else():
    runs = planted_runs(Form.ADDITIVE, scatter=0.05)
    (near,) = told_rises("mine", 3e5, {"light": 20.0, "loud": 5.0}, runs)
    assert "light 0." in near
    assert "loud not resolved (5.0 dB" in near
    (far,) = told_rises("llama-3.1-405b", 4.05e11, {"light": 30.0}, runs)
    assert "not resolved" in far
    assert far.endswith("is 3.4 million times larger.")


def test_bad_table_is_one_sentence(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("width,kind\n3,loud\n")
    with pytest.raises(ParameterError, match="no table of runs"):
        read_runs(path)


def test_band_is_of_its_draws():
    band = Band.of(1.0, np.linspace(0.0, 2.0, 401))
    assert (band.low, band.high) == pytest.approx((0.05, 1.95))


def test_more_tokens_are_those_that_make_up_for_the_noise():
    law = Law(form=Form.EFFECTIVE, coefficients=PLANTED[Form.EFFECTIVE], exact=EXACT)
    parameters, tokens, nsr = 1e5, 2e6, 2e-4
    # A/N'^a - A/N^a = B/D^b (1 - m^-b), solved for m
    share = law.rise(nsr, parameters) / (EXACT.data * tokens**-EXACT.data_exponent)
    expected = (1.0 - share) ** (-1.0 / EXACT.data_exponent)
    assert 1.0 < expected < 2.0
    assert law.more_tokens(nsr, parameters) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("form", Form)
def test_more_noise_takes_more_tokens_until_none_do(form):
    fitted = fit_with_band(rises(planted_runs(form, scatter=0.1)), form, EXACT)
    bands = [fitted.more_tokens(10.0 ** (-decibels / 10.0), 1e5) for decibels in (60.0, 40.0, 3.0)]
    assert 1.0 <= bands[0].middle < bands[1].middle < bands[2].middle == math.inf
    assert all(band.low <= band.middle <= band.high for band in bands)


def test_noise_of_nothing_is_chance_and_no_rise():
    runs = planted_runs(Form.ADDITIVE)
    exact = next(run for run in runs if run.kind is Kind.EXACT)
    nothing = dataclasses.replace(exact, kind=Kind.WHITE, level=60.0, loss=exact.loss + 0.01)
    assert len(rises([*runs, nothing])) == len(rises(runs))
    assert chaos_nats([*runs, nothing]) == pytest.approx(0.01)
    with pytest.raises(ParameterError, match="60 dB"):
        chaos_nats(runs)


def test_price_of_noise_in_gradients_is_that_of_its_trainings():
    runs = planted_runs(Form.ADDITIVE)
    exact = [run for run in runs if run.kind is Kind.EXACT]
    nothing = [dataclasses.replace(run, kind=Kind.WHITE, level=60.0, loss=run.loss + 0.002) for run in exact]
    err = {"kind": Kind.WHITE, "level": 10.0, "passes": Passes.GRAD_INPUT}
    noisy = [dataclasses.replace(run, **err, loss=run.loss + 0.03) for run in exact]
    band = gradient_price(Passes.GRAD_INPUT, [*exact, *nothing, *noisy])
    assert band.middle == pytest.approx(0.3)
    # six trainings without scatter: Student's t of five times chance over nsr over the root of six
    assert band.high - band.middle == pytest.approx(2.5706 * 0.02 / math.sqrt(6.0), rel=1e-3)
    with pytest.raises(ParameterError, match="grad_weight alone"):
        gradient_price(Passes.GRAD_WEIGHT, [*exact, *nothing, *noisy])
