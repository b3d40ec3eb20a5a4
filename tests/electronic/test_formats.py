"""Number formats: executed as specified, and predicted."""

import math

import numpy as np
import pytest
import torch

from electronic.formats import FORMATS, element_format, format_named
from electronic.numerics import (
    BfloatNumerics,
    Float8Numerics,
    Float8Scale,
    Int8Numerics,
    Mxfp8Numerics,
    Nvfp4Numerics,
)
from simulator.errors import ParameterError
from simulator.operands.statistics import (
    Element,
    OperandKind,
    OperandLaw,
    Operands,
    largest_quantiles,
    operands_of,
    scaled_moments,
    signal_to_noise_db,
)
from simulator.operators import Phase
from workloads.plan.parts import MXFP8_BLOCK, NVFP4_BLOCK

GAUSSIAN = operands_of(OperandKind.GAUSSIAN)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bfloat16", torch.bfloat16), ("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)],
)
def test_elements_are_rounded_as_torch_rounds_them(name, kind):
    form = element_format(name)
    x = np.random.default_rng(0).standard_normal(20_000) * np.exp2(np.arange(20_000) % 16 - 10.0)
    x = np.clip(x, -form.largest, form.largest).astype(np.float32)
    found = form.rounded(x.astype(np.float64))
    assert np.array_equal(found, torch.tensor(x).to(kind).to(torch.float64).numpy())


def test_smallest_floats_are_all_numbers_of_their_bits():
    form = element_format("e2m1")  # OCP MX v1.0, FP4
    grid = np.unique(form.rounded(np.linspace(-7.0, 7.0, 10_001)))
    assert grid.tolist() == [-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def test_plans_count_the_scales_of_the_format():
    assert (FORMATS["nvfp4"].block, FORMATS["mxfp8"].block) == (NVFP4_BLOCK, MXFP8_BLOCK)


@pytest.mark.parametrize(
    ("name", "numerics"),
    [
        ("bf16", BfloatNumerics()),
        ("fp8", Float8Numerics(scale=Float8Scale.TENSOR)),
        ("int8", Int8Numerics()),
        ("mxfp8", Mxfp8Numerics()),
    ],
)
def test_products_are_those_that_models_train_in(name, numerics):
    a, b = (x.astype(np.float32) for x in GAUSSIAN.draw(np.random.default_rng(1), 64, 256, 64))
    mine = format_named(name).product(a.astype(np.float64), b.astype(np.float64))
    theirs = numerics.matmul(*(torch.tensor(np.ascontiguousarray(x))[None] for x in (a, b)), 0)[0].numpy()
    assert signal_to_noise_db(theirs, mine) > 58.0  # a few results are rounded to the neighbour


@pytest.mark.parametrize("name", ["nvfp4", "nvfp4_square"])
def test_blocks_of_four_bits_are_those_that_models_train_in(name):
    """To the rounding of the result, which `NumberFormat` has in bfloat16 and training does not: 51 dB."""
    a, b = (x.astype(np.float32) for x in GAUSSIAN.draw(np.random.default_rng(1), 64, 250, 40))
    form = format_named(name)
    mine = form.product(a.astype(np.float64), b.astype(np.float64))
    exact, noisy = (
        Nvfp4Numerics(stochastic=how, square_weights=form.square_weights)
        .matmul(*(torch.tensor(x.copy())[None] for x in (a, b)), 0)[0]
        .numpy()
        for how in ((False, False), (True, True))
    )
    assert signal_to_noise_db(exact, mine) > 45.0
    assert signal_to_noise_db(a @ b, exact) > signal_to_noise_db(a @ b, noisy) + 1.0


def test_weights_in_squares_are_the_same_numbers_forward_and_backward():
    """Read by products with the identity, which four bits hold exactly; in rows they are not."""
    weights = torch.randn(1, 48, 80, generator=torch.Generator().manual_seed(0))

    def read(square: bool, matrix: torch.Tensor) -> torch.Tensor:
        return Nvfp4Numerics(square_weights=square).matmul(torch.eye(matrix.shape[1])[None], matrix, 0)

    for square in (True, False):
        assert torch.equal(read(square, weights), read(square, weights.mT).mT) is square


@pytest.mark.parametrize(
    "kind", [OperandKind.UNIFORM, OperandKind.GAUSSIAN, OperandKind.OUTLIERS, OperandKind.GRADIENTS]
)
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "int8_tensor"])
def test_predicted_ratio_is_the_executed_one(name, kind):
    """As far as three draws tell; the maximum of a whole tensor, one number, is no mean (`int8_tensor`)."""
    noise = []
    for seed in range(3):
        a, b = operands_of(kind).draw(np.random.default_rng(seed), 256, 1024, 256)
        noise.append(10.0 ** (-signal_to_noise_db(a @ b, FORMATS[name].product(a, b)) / 10.0))
    found = FORMATS[name].predicted(operands_of(kind), 1024, rows=256, columns=256)
    assert found.snr_db == pytest.approx(-10.0 * np.log10(np.mean(noise)), abs=0.15)


@pytest.mark.parametrize(
    "law", [OperandLaw(), OperandLaw(element=Element.UNIFORM), OperandLaw(element_spread=0.5, row_spread=0.3)]
)
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_floats_err_by_the_octaves_that_elements_are_in(name, law):
    form = element_format(name)
    x = law.draw(np.random.default_rng(0), 4000, 500)
    error = np.mean((form.rounded(x) - x) ** 2) / np.mean(x**2)
    assert form.rounding(law, 500) == pytest.approx(error, rel=0.01)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_scales_in_steps_are_averaged_as_on_a_fine_grid(name, spread):
    form, law = FORMATS[name], OperandLaw(element_spread=spread)
    rule = form.full_scale(form.element, 60.0)
    shares = (np.arange(200_000) + 0.5) / 200_000
    fine = np.mean(rule(largest_quantiles(law, form.block, 0, shares)) ** 2)
    found = scaled_moments(law, form.block, form.element.codes, full_scale=rule)
    assert found.scale_square == pytest.approx(fine, rel=3e-3)


@pytest.mark.parametrize("spread", [1.0, 2.0, 2.5])
def test_floats_without_a_scale_bear_elements_spread_over_decades(spread):
    """No code of bf16 is too small for the largest elements: rounding is relative, whatever they are."""
    operands = Operands(a=OperandLaw(element_spread=spread), b=OperandLaw())
    a, b = operands.draw(np.random.default_rng(0), 128, 512, 128)
    form = FORMATS["bf16"]
    executed_db = signal_to_noise_db(a @ b, form.product(a, b))
    assert form.predicted(operands, 512).snr_db == pytest.approx(executed_db, abs=1.0)


def test_blocks_whose_scale_rounds_to_zero_hold_nothing():
    """Scales in E4M3 begin at 2^-9, so that faint blocks are lost; nothing is divided by their scale."""
    law = OperandLaw(element_spread=3.0)
    assert math.isfinite(FORMATS["nvfp4"].predicted(Operands(a=law, b=law), 256).snr_db)


def test_formats_deliver_what_was_measured_of_them():
    """Measured apart: bf16 with its result rounded 51 dB, fp8 28.5, int8 by rows 37.5, 22 with outliers."""
    at = {name: FORMATS[name].predicted(GAUSSIAN, 16384).snr_db for name in ("bf16", "fp8", "int8")}
    assert at == pytest.approx({"bf16": 50.8, "fp8": 28.5, "int8": 37.5}, abs=0.3)
    larger = FORMATS["int8"].predicted(operands_of(OperandKind.OUTLIERS), 16384)
    assert larger.snr_db == pytest.approx(21.6, abs=0.3)


def test_unknown_format_is_named():
    with pytest.raises(ParameterError, match="did you mean 'mxfp8'"):
        format_named("mxfp9")


@pytest.mark.parametrize("phase", [Phase.GRAD_INPUT, Phase.GRAD_WEIGHT])
def test_rounding_of_one_operand_alone_is_what_an_executed_product_loses(phase):
    """The other operand is exact; the predicted share is of that operand."""
    form, size = FORMATS["fp8"], 256
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((size, size)), rng.standard_normal((size, size))
    of_a, of_b = form.operand_rounding(GAUSSIAN, size, rows=size, columns=size, phase=phase)
    rounded = a / np.abs(a).max() * 448.0
    rounded = form.element.rounded(rounded) * np.abs(a).max() / 448.0
    executed = signal_to_noise_db(a @ b, rounded @ b)
    kept = of_a if phase is Phase.GRAD_WEIGHT else of_b
    assert -10.0 * np.log10(kept) == pytest.approx(executed, abs=0.2)
