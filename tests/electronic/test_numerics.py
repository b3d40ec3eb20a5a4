import torch

from electronic.numerics import BfloatNumerics, ExactNumerics
from heliograph.interfaces import Numerics


def operands(batch=2, m=9, k=40, n=7):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, m, k, generator=generator), torch.randn(batch, k, n, generator=generator)


def test_both_are_numerics():
    assert isinstance(ExactNumerics(), Numerics)
    assert isinstance(BfloatNumerics(), Numerics)


def test_exact_is_torch_bit_for_bit_in_any_precision():
    a, b = operands()
    assert torch.equal(ExactNumerics().matmul(a, b, 1), torch.bmm(a, b))
    assert ExactNumerics().matmul(a.double(), b.double(), 1).dtype == torch.float64


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
