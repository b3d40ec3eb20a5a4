"""Transforms of operands: exact without errors, executed with them, predicted as executed."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from optical.cores import load_core
from optical.execution import AnalogSpec, OperandTransforms, ProductSpecs
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from optical.execution.operands import divided, multiply_transformed, rotated
from optical.execution.precision import predicted
from optical.execution.spec import spec_from_json
from simulator.errors import ParameterError
from simulator.files import record_to_json
from simulator.operands.captured import captured
from simulator.operands.statistics import OperandKind, operands_of, signal_to_noise_db
from simulator.operators import Phase

EACH = (
    OperandTransforms(rotation_width=64),
    OperandTransforms(electronic_share=0.1),
    OperandTransforms(slices=3, slice_bits=4),
    OperandTransforms(passes=3),
    OperandTransforms(electronic_share=0.05, rotation_width=32, slices=2, passes=2),
)


def _operands(length=150, seed=0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(2, 7, length, generator=generator, dtype=torch.float64)
    b = torch.randn(2, length, 9, generator=generator, dtype=torch.float64)
    return a, b


def _snr_db(name, a, b, key=7):
    got = AnalogNumerics(load_core(name).analog(Phase.FORWARD)).matmul(a, b, key)
    return signal_to_noise_db((a.double() @ b.double()).numpy(), got.double().numpy())


@pytest.mark.parametrize("transforms", EACH)
def test_without_errors_the_product_is_exact(transforms):
    a, b = _operands()
    got = multiply_transformed(a, b, transforms, lambda x, y, number: x @ y)
    torch.testing.assert_close(got, a @ b)
    almost = dataclasses.replace(AnalogSpec.ideal(), thermal_variance=1e-24, transforms=transforms)
    torch.testing.assert_close(AnalogNumerics(almost).matmul(a, b, 1), a @ b, rtol=1e-6, atol=1e-6)
    specs = ProductSpecs.same(almost)
    weight = b[0].requires_grad_()
    out = noisy_matmul(a, weight, specs, 3)
    out.sum().backward()
    torch.testing.assert_close(out, a @ weight, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(weight.grad, a.sum((0, 1))[:, None].expand(-1, 9), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [1, 5, 64, 100, 384])
def test_rotation_is_orthogonal_and_spreads_a_loud_channel(length):
    turned = rotated(torch.eye(length, dtype=torch.float64), 64)
    torch.testing.assert_close(turned @ turned.mT, torch.eye(length, dtype=torch.float64))
    if length >= 64:
        assert float(turned[0].abs().max()) == pytest.approx(1 / 8)


def test_loud_channels_leave_the_others_a_rotation_as_wide_as_the_sum():
    """Left out, 6 of 256 would leave pieces down to 2, in which a loud channel stays loud."""
    a, b = _operands(256)
    a[..., :6] *= 50.0
    a[..., 255] *= 20.0
    transforms = OperandTransforms(electronic_share=0.02, rotation_width=256)
    electronic, x, y = divided(a, b, transforms)
    torch.testing.assert_close(electronic + x @ y, a @ b)
    assert x.shape[2] == 256
    left = a.clone()
    left[..., :6] = 0.0
    torch.testing.assert_close(x, rotated(left, 256))
    crest = x.abs().amax(2) / x.square().mean(2).sqrt()
    assert float(crest.max()) < 4.5  # of Gaussian elements; 16 where one channel holds all


def test_all_channels_electronic_is_exact_arithmetic():
    a, b = _operands()
    spec = dataclasses.replace(
        load_core("crossbar").analog(Phase.FORWARD), transforms=OperandTransforms(electronic_share=1.0)
    )
    torch.testing.assert_close(AnalogNumerics(spec).matmul(a, b, 1), a @ b)


def test_rescues_lift_outlier_operands_and_cost_gaussian_ones_nothing():
    rng = np.random.default_rng(0)
    outliers = captured("minilm-l6", "down", Phase.FORWARD)[1].draw(128, 128, rng)
    gaussian = operands_of(OperandKind.GAUSSIAN).draw(rng, 128, 1536, 128)
    loud, plain = ([torch.from_numpy(x)[None].float() for x in pair] for pair in (outliers, gaussian))
    bare = _snr_db("crossbar", *loud)
    for name, least_db in (("block", 10.0), ("rotation", 12.0), ("hybrid", 6.0), ("averaging", 5.0)):
        assert _snr_db(f"crossbar+{name}", *loud) > bare + least_db
    assert _snr_db("crossbar+rotation+block", *loud) > _snr_db("crossbar+block", *loud) + 5.0
    assert _snr_db("crossbar+slices", *loud) == pytest.approx(bare, abs=1.0)  # noise is not rounding
    for name in ("rotation", "hybrid", "slices"):
        assert abs(_snr_db(f"crossbar+{name}", *plain) - _snr_db("crossbar", *plain)) < 1.0


@pytest.mark.parametrize("kind", [OperandKind.GAUSSIAN, OperandKind.OUTLIERS])
@pytest.mark.parametrize("rescue", ["rotation", "hybrid", "averaging", "slices", "hybrid+rotation+block"])
def test_prediction_is_what_is_executed_within_half_a_decibel(kind, rescue):
    operands, name = operands_of(kind), f"crossbar+{rescue}"
    a, b = operands.draw(np.random.default_rng(3), 128, 4096, 128)
    executed = _snr_db(name, torch.from_numpy(a)[None].float(), torch.from_numpy(b)[None].float())
    found = predicted(load_core(name).analog(Phase.FORWARD), operands, 4096)
    assert found.snr_db == pytest.approx(executed, abs=0.5)


def test_averaging_n_times_lowers_noise_n_fold():
    a, b = (x[:1].float() for x in _operands(4096))
    one = load_core("crossbar").analog(Phase.FORWARD)
    many = dataclasses.replace(one, transforms=OperandTransforms(passes=16))
    exact = (a.double() @ b.double()).numpy()
    lifted = [signal_to_noise_db(exact, AnalogNumerics(x).matmul(a, b, 3).numpy()) for x in (one, many)]
    assert lifted[1] - lifted[0] == pytest.approx(10 * math.log10(16), abs=2.0)  # of 63 outputs


def test_records_and_mistakes():
    spec = dataclasses.replace(load_core("crossbar").analog(Phase.FORWARD), transforms=EACH[-1])
    assert spec_from_json(record_to_json(spec)) == spec
    with pytest.raises(ParameterError, match="rotation_width \\(48\\) must be a power of two; try 32 or 64"):
        OperandTransforms(rotation_width=48)
    with pytest.raises(ParameterError, match="electronic_share"):
        OperandTransforms(electronic_share=1.5)
