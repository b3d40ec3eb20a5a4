"""Ranking of rescues: operands of a model's products, executed precision, and light for a target."""

import dataclasses
import math

import numpy as np
import pytest

from experiments.cores.rescue import (
    Ranking,
    RankRescues,
    RescueRow,
    _order,
    _statistics,
    delivered_db,
    executing,
    format_db,
    samples_of,
)
from experiments.study import Progress
from heliograph.accuracy.precision import ModelProduct
from optical.cores import load_core
from optical.cores.sizing import with_judged_laser
from simulator.errors import LinkError, ParameterError
from simulator.operators import Phase, Role
from simulator.parameter_tree import replace_at


def _product(role, phase=Phase.FORWARD, shape=(512, 384, 384), macs=1e6):
    m, k, n = shape
    return ModelProduct(
        name=str(role), role=role, phase=phase, rows=m, length=k, columns=n, element_bytes=2, macs=macs
    )


@pytest.fixture(scope="module")
def samples():
    products = (_product(Role.MLP_DOWN, macs=3e6), _product(Role.MLP_GATE_UP, Phase.GRAD_INPUT))
    return samples_of(products, "minilm-l6", layer=3, seed=0)


def test_samples_have_a_products_length_phase_and_share(samples):
    assert [one.kind for one in samples] == ["mlp.down forward", "mlp.gate_up grad_input"]
    assert [one.weight for one in samples] == pytest.approx([0.75, 0.25])
    for one in samples:
        assert one.a_MK.shape[1] == 384
        np.testing.assert_allclose(one.exact_MN, one.a_MK @ one.b_KN)


@pytest.mark.parametrize(
    ("product", "captured_as"),
    [
        (_product(Role.ATTENTION_QKV), [("query", "forward"), ("key", "forward"), ("value", "forward")]),
        (_product(Role.ATTENTION_OUTPUT, Phase.GRAD_WEIGHT), [("projection", "grad_weight")]),
        (_product(Role.OTHER), [("up", "forward")]),
        (_product(Role.ATTENTION_VALUES, Phase.GRAD_INPUT, (8192, 128, 8192)), [("values", "grad_input")]),
        (_product(Role.ATTENTION_VALUES, Phase.GRAD_INPUT, (8192, 8192, 128)), [("values", "grad_weight")]),
        (_product(Role.ATTENTION_SCORES, Phase.GRAD_INPUT, (8192, 8192, 128)), [("scores", "grad_input")]),
        (_product(Role.ATTENTION_SCORES, Phase.GRAD_INPUT, (128, 8192, 8192)), [("scores", "grad_weight")]),
    ],
)
def test_products_of_a_model_take_the_captured_ones_that_they_are(product, captured_as):
    found = _statistics(product, "minilm-l6", 2)
    assert [(one.product, str(one.phase)) for one in found] == captured_as
    assert {one.layer for one in found} == {2}


def test_rescued_cores_deliver_more_and_formats_stand_beside(samples):
    bare, turned = (
        delivered_db(load_core(name), samples) for name in ("crossbar", "crossbar+rotation+block")
    )
    assert turned["all"] > bare["all"] + 8.0
    assert set(bare) == {"all", "forward", "grad_input"}
    fp8, bf16 = (format_db(name, samples)["all"] for name in ("fp8", "bf16"))
    assert 25.0 < fp8 < 32.0
    assert bf16 > 45.0


def test_power_is_the_least_that_delivers_a_target(samples):
    core = load_core("crossbar+rotation+block")
    target_db = delivered_db(core, samples)["all"] + 2.0
    power_w = with_judged_laser(core, target_db, executing(samples), settled_log=0.01).core.core.laser_power_w
    assert power_w > core.core.core.laser_power_w
    found = delivered_db(replace_at(core, "laser_power_w", power_w), samples)["all"]
    assert 0.0 <= found - target_db < 0.5
    with pytest.raises(LinkError, match=r"cannot deliver 70\.0 dB"):
        with_judged_laser(core, 70.0, executing(samples))


def _row(name, energy, captured_db):
    levels = {"gaussian": 20.0, "outliers": 10.0}
    return RescueRow(
        rescue=name,
        core=f"crossbar+{name}",
        settings=(),
        captured_db=captured_db,
        phases_db={"all": captured_db, "forward": captured_db},
        executed_db=levels,
        predicted_db=levels,
        j_per_mac=1e-12,
        s_per_mac=1e-15,
        target_power_w=None if energy is None else 0.1,
        target_j_per_mac=energy,
        target_s_per_mac=None if energy is None else 1e-15,
        why_not="no light delivers it" if energy is None else "",
    )


def test_least_energy_at_the_target_wins_and_what_cannot_reach_it_comes_last():
    rows = [_row("none", None, 5.0), _row("a", 3e-12, 25.0), _row("b", 2e-12, 20.0), _row("c", None, 9.0)]
    ranked = sorted(rows, key=_order)
    assert [one.rescue for one in ranked] == ["b", "a", "c", "none"]
    result = Ranking(
        core="crossbar", model="m", source="s", target="fp8", target_db=28.5, rescues=tuple(ranked)
    )
    assert result.best.rescue == "b"
    table, *reasons = result.report()
    assert len(table.rows) == 4
    assert reasons == ["c: no light delivers it", "none: no light delivers it"]
    assert result.record()["best"] == "crossbar+b"
    assert {"captured_forward_db", "predicted_outliers_db"} <= set(result.rows()[0])
    assert math.isinf(_order(dataclasses.replace(rows[1], target_j_per_mac=None))[0])


def test_a_block_that_the_source_does_not_have_is_refused():
    with pytest.raises(ParameterError, match=r"from 0 to 1, the blocks of small-gpt; got 3"):
        RankRescues(source="small-gpt", layer=3).run(Progress())
