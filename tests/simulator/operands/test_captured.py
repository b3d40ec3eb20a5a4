"""Captured operands: the table that ships, its errors, and operands drawn to have its statistics."""

import dataclasses
import math

import numpy as np
import pytest

from simulator.errors import ParameterError
from simulator.operands.captured import (
    LAWS,
    TABLE,
    captured,
    captured_row,
    captured_statistics,
    load_captured,
    load_laws,
    measure_product,
    read_captured,
    read_laws,
)
from simulator.operands.statistics import OperandLaw, Operands, without_loudest
from simulator.operators import Phase

ROWS = 192


def _measured(a, b):
    return measure_product(a[None], b[None], model="m", layer=0, product="up", phase=Phase.FORWARD)


def _crest(x):
    return math.sqrt(np.mean(np.square(np.abs(x).max(axis=1))) / np.mean(np.square(x)))


def _gain(a, b):
    independent = np.sum(np.mean(a**2, 0) * np.mean(b**2, 1))
    return float(np.mean((a @ b) ** 2) / independent)


def test_table_has_both_models_all_phases_and_outlier_channels():
    known = load_captured()
    assert {one.model for one in known} == {"small-gpt", "minilm-l6"}
    assert {one.phase for one in known} == {Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT}
    pretrained = captured("minilm-l6", "up", Phase.FORWARD)
    assert len(pretrained) == 6
    assert max(one.a.outlier_size for one in pretrained) > 8.0
    assert max(one.a.outlier_size for one in captured("small-gpt", "up", Phase.FORWARD)) < 3.0


@pytest.mark.parametrize("index", range(0, 180, 23))
def test_drawn_operands_have_the_statistics_that_they_were_drawn_from(index):
    one = load_captured()[index]
    a, b = one.draw(ROWS, ROWS, np.random.default_rng(1))
    assert a.shape == (ROWS, one.k)
    assert b.shape == (one.k, ROWS)
    assert np.mean(a**2) == pytest.approx(1.0)
    assert _crest(a) == pytest.approx(one.a.crest, rel=0.02)  # what a full scale of a row hangs on
    assert _crest(b.T) == pytest.approx(one.b.crest, rel=0.02)
    # of the product within 2 dB: bending magnitudes to the crest moves it a little
    assert abs(10.0 * math.log10(_gain(a, b) / one.coherence)) < 2.0


@pytest.mark.parametrize("index", range(0, 180, 17))
def test_table_of_laws_is_that_of_the_captured_operands(index):
    one, law = load_captured()[index], load_laws()[index]
    assert (one.model, one.layer, one.product, one.phase) == (law.model, law.layer, law.product, law.phase)
    found = captured_statistics(one)
    assert law.operands.coherence == pytest.approx(found.coherence, rel=1e-5)
    assert law.operands.meeting == pytest.approx(found.meeting, rel=1e-5)
    for mine, theirs in ((found.a, law.operands.a), (found.b, law.operands.b)):
        assert mine.element is theirs.element
        for name in ("element_spread", "outlier_share", "outlier_size"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=1e-5)


def test_a_wrong_table_of_laws_is_told_with_its_line(tmp_path):
    path = tmp_path / "laws.csv"
    with pytest.raises(ParameterError, match="no table of captures"):
        read_laws(path)
    path.write_text(LAWS.read_text().replace("gaussian", "gausian", 1))
    with pytest.raises(ParameterError, match=r"laws.csv:3: .*'gausian'"):
        read_laws(path)


def test_gaussian_operands_are_measured_as_such():
    rng = np.random.default_rng(2)
    one = _measured(rng.standard_normal((400, 256)), rng.standard_normal((256, 400)))
    assert one.a.value == pytest.approx((0.674, 1.645, 2.576, 3.291, 3.89), rel=0.02)
    assert one.a.outlier_size < 1.2
    assert one.coherence == pytest.approx(1.0, abs=0.05)
    assert one.meeting == pytest.approx(1.0, abs=0.02)


def test_loud_channels_are_found_and_drawn_again_at_any_length():
    rng = np.random.default_rng(3)
    a = rng.standard_normal((300, 500))
    a[:, :5] *= 20.0
    one = _measured(a, rng.standard_normal((500, 300)))
    assert one.a.outlier_size == pytest.approx(20.0, rel=0.15)
    assert one.b.outlier_size < 1.3
    for k in (500, 4000):
        drawn = one.draw(100, 50, rng, k=k)[0]
        rms = np.sqrt(np.mean(drawn**2, 0))
        assert np.mean(rms > 5.0 * np.median(rms)) == pytest.approx(0.01, abs=0.006)


@pytest.mark.parametrize("wanted", [0.4, 1.0, 8.0])
def test_coherence_of_related_operands_is_kept(wanted):
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((256, 256)), rng.standard_normal((256, 256))
    if wanted > 1.0:
        shared = rng.standard_normal(256)
        a, b = a + 0.45 * rng.standard_normal((256, 1)) * shared, b + 0.45 * shared[:, None]
    elif wanted < 1.0:
        a[:, 128:], b[128:] = a[:, :128], -b[:128] + 1.2 * rng.standard_normal((128, 256))
    one = _measured(a, b)
    drawn = one.draw(256, 256, rng)
    assert abs(10.0 * math.log10(_gain(*drawn) / one.coherence)) < 1.0


def test_rows_of_the_table_are_read_as_they_are_written(tmp_path):
    one = load_captured()[0]
    lines = TABLE.read_text().splitlines()
    assert captured_row(one)["a_channel"] in lines[5]
    path = tmp_path / "operands.csv"
    path.write_text("\n".join(lines[:6]).replace("forward", "sideways"))
    with pytest.raises(ParameterError, match=r"operands\.csv:6: .*sideways"):
        read_captured(path)
    path.write_text("model,layer\n")
    with pytest.raises(ParameterError, match="columns product"):
        read_captured(path)


def test_unknown_names_are_one_sentence():
    with pytest.raises(ParameterError, match="no operands of a model 'gpt-5'"):
        captured("gpt-5")
    with pytest.raises(ParameterError, match="no operands of a product 'upp'"):
        captured("", "upp")
    with pytest.raises(ParameterError, match="zero throughout"):
        _measured(np.zeros((4, 8)), np.ones((8, 4)))


@pytest.mark.parametrize(
    ("a", "b", "meeting"),
    [
        (OperandLaw(), OperandLaw(), 1.0),
        (OperandLaw(element_spread=1.0), OperandLaw(), 1.0),
        (OperandLaw(channel_spread=0.5), OperandLaw(channel_spread=0.25), 1.0),
        (OperandLaw(outlier_share=0.005, outlier_size=6.0, element_spread=0.4), OperandLaw(), 1.0),
    ],
)
def test_what_the_loudest_channels_hold_is_that_of_operands_drawn(a, b, meeting):
    """Power that is left without the loudest 2 %, against operands of the law: to 0.15 dB."""
    operands, left = Operands(a=a, b=b, meeting=meeting), []
    for seed in range(4):
        x, y = operands.draw(np.random.default_rng(seed), 96, 1024, 96)
        loudness = np.abs(x).max(0) * np.abs(y).max(1)
        power = np.mean(x**2, 0) * np.mean(y**2, 1)
        left.append(power[np.argsort(loudness)[:-21]].sum() / power.sum())
    assert without_loudest(operands, 1024, 21).kept == pytest.approx(np.mean(left), rel=0.035)


def test_channels_that_meet_hold_more_and_those_that_avoid_each_other_less():
    law, meetings = OperandLaw(channel_spread=0.6), (0.6, 1.0, 2.0)
    found = [
        without_loudest(Operands(a=law, b=law, coherence=meeting, meeting=meeting), 1024, 21)
        for meeting in meetings
    ]
    assert found[0].kept > found[1].kept > found[2].kept
    left = [one.meeting * meeting for one, meeting in zip(found, meetings, strict=True)]
    assert left[0] < left[1] < left[2] < 2.0  # loud ones that meet are gone
    assert without_loudest(Operands(a=law, b=law), 64, 0).kept == 1.0


def test_channels_without_scales_keep_what_they_meet():
    """Attention's values: channels of B are even, so that their scales say nothing of a meeting of 0.1."""
    operands = Operands(a=OperandLaw(channel_spread=0.8), b=OperandLaw(), coherence=0.25, meeting=0.1)
    even = without_loudest(dataclasses.replace(operands, meeting=1.0), 48, 1)
    found = without_loudest(operands, 48, 1)
    assert found.meeting == pytest.approx(even.meeting, rel=0.05)
    assert found.kept == pytest.approx(even.kept, rel=0.05)
