"""Steps to a loss, relative to exact arithmetic, and what hangs on them."""

import dataclasses
import math

import pytest

from heliograph.accuracy.small_gpt import Accuracy, steps_to_loss, system_arithmetic
from heliograph.systems import build_system
from heliograph.tables import UNRESOLVED, comparison_rows
from optical.cores import load_core
from optical.execution import AnalogSpec
from optical.execution.numerics import AnalogNumerics
from simulator.operators import Phase
from workloads.training.gpt import GptConfig, Products, TrainingConfig, python_source, train_model

STEPS = (15, 30, 45, 60, 75, 90)
EXACT = (5.0, 4.0, 3.5, 3.2, 3.0, 2.9)
SHORT_TRAINING = TrainingConfig(
    steps=18, eval_every=2, batch=8, learning_rate=5e-3, warmup_steps=2, validation_windows=12
)


def accuracy_of(*curves, exact=EXACT):
    return Accuracy(
        label="core",
        steps=STEPS,
        losses=tuple(curves),
        reference=(exact[-1],) * len(curves),
        reference_losses=(exact,) * len(curves),
    )


def test_equal_curves_take_equal_steps():
    found = steps_to_loss(accuracy_of(EXACT, EXACT, EXACT))
    assert found.ratios == (1.0, 1.0, 1.0)
    assert not found.resolved
    assert found.factor == 1.0


def test_a_curve_that_comes_later_by_half_takes_half_more_steps():
    late = (5.5, 4.75, 4.25, 3.9, 3.55, 3.2)
    found = steps_to_loss(accuracy_of(late, late, late))
    assert found.mean == pytest.approx(1.5)
    assert found.resolved
    assert found.factor == found.mean


def test_scattered_seeds_resolve_nothing():
    early = (4.9, 3.9, 3.2, 3.1, 2.9, 2.8)
    late = (5.5, 4.75, 4.25, 3.9, 3.55, 3.2)
    found = steps_to_loss(accuracy_of(early, late, EXACT))
    assert found.mean > 1.05
    assert not found.resolved
    assert found.factor == 1.0


def test_chaos_is_no_difference():
    """Seeds that agree on a tenth of a percent agree by chance: runs differ that much by noise of nothing."""
    late = tuple(loss + 0.001 for loss in EXACT)
    found = steps_to_loss(accuracy_of(late, late, late))
    assert found.ratios == pytest.approx((1.001,) * 3, abs=5e-4)
    assert found.error == pytest.approx(0.001 / math.sqrt(3))
    assert not found.resolved
    assert found.factor == 1.0
    apart = steps_to_loss(accuracy_of(*[tuple(loss + 0.01 for loss in EXACT)] * 3))
    assert apart.resolved
    assert apart.factor == apart.mean > 1.005


@pytest.mark.slow
def test_a_noisier_core_takes_more_steps(one_thread):
    """The small model trained through receivers of rising noise, paired with exact arithmetic."""
    model = GptConfig(layers=1, heads=2, width=16, context=16)
    corpus, crossbar = python_source(most_bytes=2**18), load_core("crossbar").analog(Phase.FORWARD)

    def trained(spec):
        return train_model(SHORT_TRAINING, model, Products.same(AnalogNumerics(spec)), corpus).curve

    exact, found = trained(AnalogSpec.ideal()), []
    for variance in (0.0, 0.5, 5.0):
        curve = trained(dataclasses.replace(crossbar, thermal_variance=variance))
        accuracy = Accuracy(
            label="core",
            steps=exact.validation_steps,
            losses=(curve.validation_loss,),
            reference=(exact.validation_loss[-1],),
            reference_losses=(exact.validation_loss,),
        )
        found.append(steps_to_loss(accuracy).least)
    assert found[0] == pytest.approx(1.0, abs=0.1)
    assert found[0] + 0.05 < found[1] < found[2] - 0.05


def test_a_curve_that_never_comes_down_is_told_as_such():
    flat = (5.5,) * 6
    found = steps_to_loss(accuracy_of(flat, flat, flat))
    assert math.isinf(found.mean)
    assert found.resolved
    assert found.most == pytest.approx(1.5)
    assert math.isinf(found.factor)
    mixed = steps_to_loss(accuracy_of(flat, flat, (5.5, 4.75, 4.25, 3.9, 3.55, 3.2001)))
    assert math.isinf(mixed.mean)
    assert mixed.least == pytest.approx(1.5, abs=1e-3)
    assert mixed.resolved


def test_comparison_tells_steps_time_and_energy_to_loss():
    from heliograph.comparison.comparison import Comparison, Request
    from heliograph.simulation import run_step
    from heliograph.workload import plan_for
    from workloads.models.config import load_model

    system = build_system("photonic_packet", accelerators=8)
    config = load_model("llama-3-8b")
    plan = plan_for(config, "", accelerators=8, memory_bytes=system.node().memory.capacity_bytes)
    result = run_step(system, config, plan)
    late = (5.5, 4.75, 4.25, 3.9, 3.55, 3.2)
    records, shown = {}, {}
    for name, curve in (("late", late), ("equal", EXACT)):
        comparison = Comparison(
            request=Request(model="llama-3-8b", systems=(system.name,), accelerators=8),
            config=config,
            plan=plan,
            results=(result,),
            accuracies={system_arithmetic(result.system).label: accuracy_of(curve, curve, curve)},
        )
        (records[name],) = comparison.records()
        shown[name] = {row.label: row.values[0] for row in comparison_rows(comparison.records())}
    assert shown["late"]["steps to loss, relative"].startswith("1.50")
    assert shown["equal"]["steps to loss, relative"] == UNRESOLVED
    assert shown["late"]["  minus exact, same seeds"].startswith("+0.300")
    assert shown["equal"]["  minus exact, same seeds"] == UNRESOLVED
    plain = result.record()
    for end, each in (("time_to_loss_s", plain["step_time_s"]), ("energy_to_loss_j", plain["energy_j"])):
        assert end not in records["equal"]
        assert records["late"][end] == pytest.approx(1.5 * result.run_steps * each)
    assert shown["late"]["time to loss"].endswith(("days", "years"))
    assert shown["late"]["energy to loss"].endswith("Wh")
    assert shown["equal"]["time to loss"] == shown["equal"]["energy to loss"] == UNRESOLVED
