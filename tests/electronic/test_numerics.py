import pytest
import torch

from electronic.numerics import (
    LARGEST,
    BfloatNumerics,
    Float8,
    Float8Numerics,
    Float8Scale,
    Int8Numerics,
    Mxfp8Numerics,
    Nvfp4Numerics,
)
from simulator.errors import ParameterError
from simulator.interfaces import Numerics


def operands(batch=2, m=9, k=40, n=7):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, m, k, generator=generator), torch.randn(batch, k, n, generator=generator)


def test_bfloat_is_numerics():
    assert isinstance(BfloatNumerics(), Numerics)


def test_bfloat_result_is_representable_and_within_two_roundings():
    a, b = operands()
    c = BfloatNumerics().matmul(a, b, 3)
    assert c.dtype == torch.float32
    assert torch.equal(c, c.bfloat16().float())
    bound = torch.bmm(a.abs(), b.abs()) * 2 * 2**-8 + torch.bmm(a, b).abs() * 2**-8
    assert ((c - torch.bmm(a, b)).abs() <= bound).all()
    assert not torch.equal(c, torch.bmm(a, b))


def test_bfloat_is_exact_for_small_integers():
    a = torch.arange(-8.0, 8.0).view(1, 4, 4)
    assert torch.equal(BfloatNumerics().matmul(a, a.mT, 0), torch.bmm(a, a.mT))


def test_bfloat_accumulates_in_float32():
    a = torch.ones(1, 1, 4096)
    a[0, 0, 0] = 4096.0
    b = torch.ones(1, 4096, 1)
    sum_in_bfloat = 4096.0
    assert BfloatNumerics().matmul(a, b, 0).item() == torch.tensor(8191.0).bfloat16().item() != sum_in_bfloat


def test_keys_change_nothing():
    a, b = operands()
    assert torch.equal(BfloatNumerics().matmul(a, b, 1), BfloatNumerics().matmul(a, b, 2))


@pytest.mark.parametrize(("form", "step"), [(Float8.E4M3, 2**-4), (Float8.E5M2, 2**-3)])
@pytest.mark.parametrize("scale", Float8Scale)
def test_eight_bits_are_within_half_a_step_of_their_significand(form, step, scale):
    """Micikevicius et al. (2022), table 1: three and two bits of mantissa, so errors up to 2^-4 and 2^-3."""
    generator = torch.Generator().manual_seed(1)
    a, b = (1.0 + torch.rand(1, 30, 30, generator=generator) for _ in range(2))
    eye = torch.eye(30)[None]
    numerics = Float8Numerics(a_format=form, b_format=form, scale=scale)
    error = (numerics.matmul(a, eye, 0) / a - 1.0).abs()
    assert step / 3.0 < error.max() <= step * 1.0 + 2**-8
    assert ((numerics.matmul(eye, b, 0) / b - 1.0).abs() <= step + 2**-8).all()
    finest = torch.finfo(torch.float8_e4m3fn if form is Float8.E4M3 else torch.float8_e5m2)
    assert finest.max == LARGEST[form]


def test_a_scale_per_row_saves_small_rows():
    """One large row flushes a small one to zero where all share a scale: E4M3 spans 448 to 2^-9."""
    a = torch.ones(1, 2, 8)
    a[0, 0] = 2.0**20
    b = torch.ones(1, 8, 3)
    assert Float8Numerics().matmul(a, b, 0)[0, 1].abs().max() == 0.0
    rows = Float8Numerics(scale=Float8Scale.ROW).matmul(a, b, 0)
    assert torch.equal(rows, torch.bmm(a, b))
    columns = Float8Numerics(scale=Float8Scale.ROW).matmul(b.mT, a.mT, 0)
    assert torch.equal(columns, rows.mT)


def test_e5m2_reaches_what_e4m3_flushes():
    a = torch.tensor([[[1.0, 2.0**-24]]])
    eye = torch.eye(2)[None]
    assert Float8Numerics().matmul(a, eye, 0)[0, 0, 1] == 0.0
    assert Float8Numerics(a_format=Float8.E5M2).matmul(a, eye, 0)[0, 0, 1] == 2.0**-24


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "numerics",
    [
        Float8Numerics(),
        Float8Numerics(scale=Float8Scale.ROW),
        Int8Numerics(),
        Mxfp8Numerics(),
        Nvfp4Numerics(),
    ],
)
def test_half_precision_is_rounded_once_and_zeros_stay_zeros(numerics, kind):
    """Scales were of the operands' own type: fp8 of bf16 erred by 4 %, of zeros in half came no number."""
    a, b = (x.to(kind) for x in operands(batch=1))
    a[0, 0] = 0.0
    c = numerics.matmul(a, b, 3)
    assert c.dtype == kind
    assert torch.equal(c, numerics.matmul(a.float(), b.float(), 3).to(kind))
    assert (c[0, 0] == 0.0).all()


def test_a_scale_by_its_text_is_refused():
    """It was one of the whole tensor without a word."""
    with pytest.raises(ParameterError, match=r"scale must be a Float8Scale \(tensor, row\)"):
        Float8Numerics(scale="row")
