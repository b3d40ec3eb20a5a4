"""Capture of operands: which products are seen, and drawn ones that come out of a core as real ones do."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch

from experiments.accuracy.capture import Capture, Captured, capture_gpt
from experiments.study import Progress
from optical.cores import load_core
from optical.execution import Scale
from optical.execution.numerics import AnalogNumerics
from simulator.errors import ParameterError
from simulator.operands.captured import read_captured
from simulator.operators import Phase


def _snr_db(a, b, scale):
    spec = dataclasses.replace(load_core("crossbar").analog(Phase.FORWARD), scale=scale)
    exact = a.double() @ b.double()
    got = AnalogNumerics(spec).matmul(a, b, 7).double()
    gain = (got * exact).sum() / (exact * exact).sum()
    return float(10.0 * torch.log10((gain * exact).square().mean() / (got - gain * exact).square().mean()))


@pytest.fixture(scope="module")
def operands():
    return capture_gpt(quick=True, learnt=True)


@pytest.mark.slow
def test_every_product_is_seen_once_forward_and_once_for_each_operand(operands):
    counts = Counter((one.layer, one.product, one.phase) for one in operands)
    assert set(counts.values()) == {1}
    assert len(counts) == 3 * (4 * 6 + 1)
    for one in operands:
        if one.product == "down" and one.phase is not Phase.GRAD_WEIGHT:
            wide = 4096 if one.layer == 3 else 1024
            assert one.a_BMK.shape[2] == (wide if one.phase is Phase.FORWARD else 256)


@pytest.mark.slow
def test_the_gpt_that_ships_has_loud_channels_in_products_behind_its_nonlinearity(operands):
    """Five to nine times the median channel there (docs/accuracy.md); none in what enters the layers."""
    forward = [one for one in operands if one.phase is Phase.FORWARD and one.product in ("up", "down")]
    forward = [one.measured("learnt-gpt") for one in forward]
    loudest = {
        one.product: [x.a.outlier_size for x in forward if x.product == one.product] for one in forward
    }
    assert max(loudest["down"]) > 5.0
    assert max(loudest["up"]) < 3.0


@pytest.mark.slow
@pytest.mark.parametrize("phase", list(Phase)[:3])
def test_drawn_operands_leave_a_core_as_the_captured_ones(operands, phase):
    rng, differences = np.random.default_rng(0), []
    for one in operands:
        if one.phase is not phase or one.product not in ("qkv", "up", "down", "scores") or one.layer:
            continue
        statistics = one.measured("learnt-gpt")
        matrices = range(0, len(one.a_BMK), max(1, len(one.a_BMK) // 4))
        for scale in (Scale.ROW, Scale.BLOCK):
            real, drawn = [], []
            for i in matrices:
                a, b = one.a_BMK[i : i + 1], one.b_BKN[i : i + 1]
                real.append(_snr_db(a, b, scale))
                a, b = statistics.draw(a.shape[1], b.shape[2], rng)
                drawn.append(
                    _snr_db(torch.from_numpy(a)[None].float(), torch.from_numpy(b)[None].float(), scale)
                )
            differences.append(float(np.mean(drawn) - np.mean(real)))
    assert abs(np.median(differences)) < 0.7
    # one product in ten has few samples so loud that the converter clips them, which no quantile tells of
    assert np.quantile(np.abs(differences), 0.75) < 1.5


def test_study_writes_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.accuracy.capture.capture_gpt", lambda seed, **_: _two(seed))
    path = tmp_path / "operands.csv"
    found = Capture(model=Captured.SMALL_GPT, table=path).run(Progress())
    assert len(found.products) == len(read_captured(path)) == 1
    assert found.report()


def _two(seed):
    from experiments.accuracy.capture import Operands

    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(1, 8, 16, generator=generator), torch.randn(1, 16, 8, generator=generator)
    one = Operands(layer=0, product="up", phase=Phase.FORWARD, a_BMK=a, b_BKN=b)
    return [one, one]


def test_options_of_a_training_are_refused_where_the_model_is_trained():
    for given in ({"quick": True}, {"seed": 1}):
        with pytest.raises(ParameterError, match=f"--{next(iter(given))}.*trained already"):
            Capture(model=Captured.LEARNT_GPT, **given).run(Progress())
