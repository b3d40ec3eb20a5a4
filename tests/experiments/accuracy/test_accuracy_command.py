import dataclasses
import json
import math

import numpy as np
import pytest
import scipy.stats

from experiments.__main__ import main
from experiments.accuracy.front import settings
from experiments.accuracy.prediction import (
    Calibration,
    Effort,
    Execution,
    Prediction,
    Training,
    aware,
    converter_ladder,
    predict_and_execute,
    with_electronic,
)
from experiments.accuracy.training import seeds_from
from experiments.accuracy.width import NoiseByWidth
from experiments.cli import BAD_INPUT
from heliograph.accuracy.small_gpt import EXACT as EXACTLY
from heliograph.accuracy.small_gpt import NOTHING, Accuracy, Arithmetic
from heliograph.records import TrainingCache
from heliograph.report import report_text
from heliograph.tables import UNRESOLVED
from optical.execution import AnalogSpec, Mode
from simulator.errors import ParameterError
from simulator.operators import Phase
from tests.builders import csv_rows
from workloads.training.probes import ErrorClass

PRODUCTS = ("qkv", "scores", "values", "projection", "up", "down", "head")


def calibration(scale=1.0):
    nsr = 0.01
    single = {
        name: dict.fromkeys(ErrorClass, (scale * (index + 1) * nsr,)) for index, name in enumerate(PRODUCTS)
    }
    total = scale * 28.0
    together = {db: (total * 10.0 ** (-db / 10.0),) for db in (40.0, 30.0, 20.0)}
    return Calibration(
        clean=2.0,
        single=single,
        together=together,
        first=dict.fromkeys(PRODUCTS, 0.5),
        second={one: {other: 2.0 * (one == other) for other in PRODUCTS} for one in PRODUCTS},
    )


def prediction(*calibrations, executions=(), width=96):
    return Prediction(model="tiny", width=width, steps=1, calibrations=calibrations, executions=executions)


def test_law_gives_its_slope_its_sum_and_its_prediction():
    execution = Execution(
        label="core",
        drawn=((0.30, 0.28),),
        mirrored=((0.28, 0.30),),
        nsr=({name: {ErrorClass.OUTPUT: 0.008, ErrorClass.SECOND: 0.002} for name in PRODUCTS},),
        gain=(dict.fromkeys(PRODUCTS, 0.98),),
    )
    found = prediction(calibration(), executions=(execution,))
    assert found.slopes[0] == pytest.approx(-0.1)
    assert found.additivity[0] == pytest.approx(1.0)
    assert found.second_order_rises(execution)[0] == pytest.approx(0.28 + 7 * 0.02**2)
    assert found.predicted(execution)[0] == pytest.approx(0.28 + 7 * 0.02**2 - 7 * 0.5 * 0.02)
    assert execution.variance_rises[0] == pytest.approx(0.29)
    assert found.residual(execution) == pytest.approx((0.28 + 7 * 0.02**2) / 0.29 - 1.0)


def test_errors_of_the_measured_strength_replace_second_order():
    execution = Execution(
        label="core",
        drawn=((0.45, 0.43),),
        mirrored=((0.44, 0.44),),
        nsr=({name: {ErrorClass.OUTPUT: 0.01} for name in PRODUCTS},),
        gain=(dict.fromkeys(PRODUCTS, 1.0),),
        modelled=((0.42, 0.44),),
        modelled_drawn=((0.46, 0.48),),
    )
    found = prediction(calibration(), executions=(execution,))
    assert found.predicted(execution) == pytest.approx((0.47,))
    assert found.predicted_variance_rises(execution) == pytest.approx((0.43,))
    assert found.residual(execution) == pytest.approx(0.43 / 0.44 - 1.0)
    assert found.second_order_residual(execution) == pytest.approx(0.28 / 0.44 - 1.0)
    assert found.residual_error(execution) == pytest.approx(
        0.43 / 0.44 * math.hypot(0.005 / 0.44, 0.01 / 0.43)
    )


def test_gains_that_err_alike_count_in_pairs():
    one = dataclasses.replace(calibration(), second={name: dict.fromkeys(PRODUCTS, 2.0) for name in PRODUCTS})
    assert one.by_gain(dict.fromkeys(PRODUCTS, 0.98), order=2) == pytest.approx((7 * 0.02) ** 2)
    opposite = dict(zip(PRODUCTS, (0.98, 1.02, 0.98, 1.02, 0.98, 1.02, 1.0), strict=True))
    assert one.by_gain(opposite, order=2) == pytest.approx(0.0)


def test_rounding_that_always_errs_alike_scatters_over_models_only():
    nsr = {name: {ErrorClass.OUTPUT: 0.01} for name in PRODUCTS}
    execution = Execution(
        label="core",
        drawn=((0.30, 0.30), (0.34, 0.34)),
        mirrored=((0.30, 0.30), (0.34, 0.34)),
        nsr=(nsr, nsr),
        gain=(dict.fromkeys(PRODUCTS, 1.0),) * 2,
    )
    found = prediction(calibration(), calibration(), executions=(execution,))
    assert found.residual(execution) == pytest.approx(0.28 / 0.32 - 1.0)
    assert found.residual_error(execution) == pytest.approx(0.02 / 0.32)


def test_models_that_disagree_widen_the_error_of_a_residual():
    """Draws of one model repeat the rounding of its weights, so that they scatter less than models do."""
    nsr = {name: {ErrorClass.OUTPUT: 0.01} for name in PRODUCTS}
    execution = Execution(
        label="core",
        drawn=((0.301, 0.299), (0.341, 0.339)),
        mirrored=((0.301, 0.299), (0.341, 0.339)),
        nsr=(nsr, nsr),
        gain=(dict.fromkeys(PRODUCTS, 1.0),) * 2,
    )
    both = prediction(calibration(), calibration(), executions=(execution,))
    assert both.residual_error(execution) == pytest.approx(0.02 / 0.32)
    alone = dataclasses.replace(
        execution,
        drawn=execution.drawn[:1],
        mirrored=execution.mirrored[:1],
        nsr=(nsr,),
        gain=execution.gain[:1],
    )
    assert prediction(calibration()).residual_error(alone) == pytest.approx(
        0.28 / 0.3 * 0.001 / 0.3, rel=0.01
    )
    still = dataclasses.replace(alone, drawn=((0.3, 0.3),), mirrored=((0.3, 0.3),))
    assert math.isnan(prediction(calibration()).residual_error(still))


def test_law_ends_where_noise_no_longer_costs_its_power():
    """Beyond second order a rise leaves its line (Taylor's theorem); here it saturates as 1 - exp(-x)."""
    levels = (40.0, 35.0, 30.0, 25.0, 20.0, 15.0, 10.0)
    bent = {db: (1.0 - math.exp(-(10.0 ** (-db / 10.0)) * 4.0),) for db in levels}
    limit, ended = prediction(dataclasses.replace(calibration(), together=bent)).second_order_limit
    assert ended
    assert limit == pytest.approx(bent[15.0][0])
    straight = {db: (28.0 * 10.0 ** (-db / 10.0),) for db in levels}
    limit, ended = prediction(dataclasses.replace(calibration(), together=straight)).second_order_limit
    assert not ended
    assert limit == pytest.approx(2.8)


def test_classes_of_errors_have_coefficients_of_their_own():
    single = {
        name: {ErrorClass.OUTPUT: (0.01,), ErrorClass.FIRST: (0.02,), ErrorClass.SECOND: (0.05, 0.07)}
        for name in PRODUCTS
    }
    one = dataclasses.replace(calibration(), single=single)
    nsr = {"head": {ErrorClass.OUTPUT: 0.01, ErrorClass.FIRST: 0.02, ErrorClass.SECOND: 0.03}}
    assert one.by_variance(nsr) == pytest.approx(1.0 * 0.01 + 2.0 * 0.02 + 6.0 * 0.03)
    assert one.by_variance_error(nsr) == pytest.approx(1.0 * 0.03)


def test_digital_products_and_single_converters_are_arithmetics_of_their_own():
    core = Arithmetic(label="core", analog=dict.fromkeys(Phase, AnalogSpec.ideal()))
    (digital,) = with_electronic((core,), ("head",))
    assert digital.exact_products == aware(digital).exact_products == ("head",)
    assert digital.identity != core.identity
    ladder = converter_ladder((core,))
    assert [one.analog[Phase.FORWARD].adc_bits for one in ladder[:5]] == [8.0, 7.0, 6.0, 5.0, 4.0]
    assert [one.analog[Phase.FORWARD].dac_bits for one in ladder[5:]] == [8.0, 7.0, 6.0, 5.0, 4.0]
    with pytest.raises(ParameterError, match="no product 'tail'"):
        with_electronic((core,), ("tail",))
    with pytest.raises(ParameterError, match="photonic core"):
        converter_ladder((Arithmetic(label="bf16"),))


def test_width_study_finds_the_power_that_was_put_in():
    widths = (96, 192, 384)
    found = NoiseByWidth(
        predictions=tuple(
            prediction(*(calibration(spread / width) for spread in (1.0, 1.1)), width=width)
            for width in widths
        ),
        carried_width=16384,
    )
    fit = found.fit(("head",))
    assert fit.exponent == pytest.approx(1.0)
    assert fit.carried.low < 0.01 * 16384 / 7.0 / 1.05 < fit.carried.high
    assert fit.carried.high / fit.carried.low > 1.2


def test_the_band_of_a_fit_is_least_amid_the_widths_and_widens_beyond():
    """Of a line of least squares: t s sqrt(1/n + (x - mean)^2 / sum (x - mean)^2), by `scipy` elsewhere."""
    seeds = {96: (1.0, 1.3), 192: (0.6, 0.5), 384: (0.21, 0.3)}
    found = NoiseByWidth(
        predictions=tuple(
            prediction(*(calibration(one) for one in both), width=width) for width, both in seeds.items()
        ),
        carried_width=16384,
    )
    fit = found.fit(("qkv",))
    x = np.log([width for width, both in seeds.items() for _ in both])
    y = np.log([value for row in found.tolerated(("qkv",)) for value in row])
    line = scipy.stats.linregress(x, y)
    assert (fit.exponent, fit.error) == pytest.approx((line.slope, line.stderr))
    at_zero = line.intercept + scipy.stats.t.ppf(0.975, 4) * line.intercept_stderr
    assert fit.band(1.0).high == pytest.approx(math.exp(at_zero))
    spread = [math.log(one.high / one.low) for one in map(fit.band, (96, 192, 384, 16384))]
    assert spread[1] < spread[0] < spread[3]
    assert spread[0] == pytest.approx(spread[2])
    row = found.fit_rows()[0]
    assert row["tolerated_nsr_low"] < row["tolerated_nsr"] < row["tolerated_nsr_high"]
    assert row["extrapolated_over"] == pytest.approx(16384 / 384)


@pytest.mark.slow
def test_gaussian_noise_of_a_core_is_predicted(tmp_path):
    """A core whose errors are thermal noise alone costs what the law says; Taylor's theorem, second order."""
    noisy = dataclasses.replace(AnalogSpec.ideal(), thermal_variance=1e-3)
    one = Arithmetic(label="thermal", analog=dict.fromkeys(Phase, noisy))
    effort = Effort(
        model="tiny", steps=40, windows=12, pairs=1, core_pairs=2, seeds=(0,), ladder_db=(30.0, 20.0)
    )
    cache = TrainingCache(tmp_path / "cache")
    found = predict_and_execute((one,), effort=effort, cache=cache)
    assert abs(found.residual(found.executions[0])) < 0.1
    assert found.slopes[0] == pytest.approx(-0.1, abs=0.01)
    assert found.additivity[0] == pytest.approx(1.0, abs=0.1)
    again = predict_and_execute((one,), effort=effort, cache=cache)
    assert again == found


def test_without_gains_and_measured_errors_a_core_is_executed_alike(tmp_path):
    """The front and the study of widths leave them out, which must change nothing of what they read."""
    noisy = dataclasses.replace(AnalogSpec.ideal(), thermal_variance=1e-3)
    one = Arithmetic(label="thermal", analog=dict.fromkeys(Phase, noisy))
    whole = Effort(
        model="tiny",
        steps=1,
        windows=2,
        pairs=1,
        core_pairs=2,
        seeds=(0,),
        ladder_db=(20.0,),
        error_classes=(),
    )
    cache = TrainingCache(tmp_path / "cache")
    found = predict_and_execute((one,), effort=whole, cache=cache)
    part = predict_and_execute((one,), effort=dataclasses.replace(whole, gains=False), cache=cache)
    assert part.executions == found.executions
    assert part.calibrations[0].together == found.calibrations[0].together
    assert found.calibrations[0].first.keys() == found.calibrations[0].single.keys()
    assert part.calibrations[0].first == {}
    bare = predict_and_execute(
        (one,), effort=dataclasses.replace(whole, gains=False, ladder_db=(), errors=False), cache=cache
    )
    losses, measured = bare.executions[0], found.executions[0]
    assert (losses.drawn, losses.mirrored) == (measured.drawn, measured.mirrored)
    assert measured.modelled
    assert losses.modelled == losses.nsr == losses.gain == ()


def test_training_in_a_mode_tells_no_difference_that_noise_of_nothing_makes():
    def run(*finals):
        curves = tuple((5.0, one) for one in finals)
        return Accuracy(
            label="x",
            steps=(1, 2),
            losses=curves,
            reference=(3.0,) * 3,
            reference_losses=((5.0, 3.0),) * 3,
            exact_evaluation=(3.001, 3.0, 2.999),
        )

    def told(floor):
        accuracies = {
            EXACTLY: run(3.0, 3.0, 3.0),
            NOTHING.label: run(3.0, 3.0 + floor, 3.0),
            "core": run(3.030, 3.031, 3.029),
        }
        return Training(mode=Mode.HARDWARE, accuracies=accuracies)

    assert "+0.0300 \u00b1 0.0006" in report_text(told(0.002).report())
    assert "+0.0300" not in report_text(told(0.04).report())
    assert report_text(told(0.002).report()).count(UNRESOLVED) == 1  # read out exactly it is within chance
    assert told(0.002).record()["runs"]["core"]["loss_difference_resolved"]
    assert not told(0.04).record()["runs"]["core"]["loss_difference_resolved"]
    assert list(told(0.002).steps) == ["core"]


def test_aware_training_has_exact_gradients():
    spec = dataclasses.replace(AnalogSpec.ideal(), thermal_variance=1.0)
    made = aware(Arithmetic(label="core", analog=dict.fromkeys(Phase, spec)))
    assert made.analog[Phase.FORWARD] == spec
    assert made.analog[Phase.GRAD_INPUT] == made.analog[Phase.GRAD_WEIGHT] == AnalogSpec.ideal()


def test_every_knob_of_the_front_moves_the_record():
    found = settings("photonic_packet", accelerators=8, core="crossbar")
    present, rest = found[0], found[1:]
    assert {one.knob for one in rest} == {"laser power", "output bits", "array size", "wavelengths"}
    built = [one for one in rest if one.system is not None]
    assert len(built) > 10
    assert all(one.system.analog() != present.system.analog() for one in built)
    with pytest.raises(ParameterError, match="no photonic core"):
        settings("gpu_packet", accelerators=8)


@pytest.mark.slow
def test_command_predicts_and_writes(capsys, tmp_path):
    out = tmp_path / "run"
    options = ("--quick", "--model", "tiny", "--steps", "4", "--seeds", "1", "--json", "--out", str(out))
    assert main(["accuracy", "predict", "--system", "photonic_packet", *options]) == 0
    record = json.loads(capsys.readouterr().out)
    assert set(record["nats_per_nsr"]) == set(PRODUCTS)
    assert record["training"]["mode"] == "inference"
    rows = csv_rows(out / "accuracy.csv")
    assert len(rows) == 13 * len(ErrorClass)
    assert {row["product"] for row in rows} == set(PRODUCTS)
    assert (out / "accuracy.png").exists()


def test_wrong_wishes_are_refused(capsys, tmp_path):
    assert main(["accuracy", "predict", "--model", "huge", "--out", str(tmp_path)]) == BAD_INPUT
    assert "no model 'huge'" in capsys.readouterr().err
    with pytest.raises(ParameterError, match="at least 2"):
        seeds_from(0, 1)
    with pytest.raises(ParameterError, match="seed"):
        Effort(seeds=())


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("accuracy predict", "--fabric torus"),
        ("accuracy predict", "--penalties none"),
        ("accuracy training", "--basis count"),
        ("accuracy training", "--gpu b200"),
        ("accuracy encoder", "--gpu b200"),
        ("accuracy energy", "--precision-target int8"),
        ("split", "--fabric torus"),
    ],
)
def test_options_that_change_nothing_are_refused(words, option, capsys):
    assert main([*words.split(), *option.split()]) == BAD_INPUT
    name, value = option.split()
    assert f"{name} ({value}) is not used: " in " ".join(capsys.readouterr().err.split())


def test_numbers_in_which_no_product_is_executed_are_refused(capsys):
    for path in ("fabric.nic.latency_s", "economics.electricity_usd_per_j"):
        assert main(["accuracy", "predict", "--set", f"{path}=1e-6"]) == BAD_INPUT
        assert f"--set {path} is not used: " in " ".join(capsys.readouterr().err.split())
