"""Errors of a loaded operand: fixed for the load, of the stated size, on the operand that is loaded."""

import dataclasses
import math

import pytest
import torch

from optical.execution import AnalogSpec, ProductSpecs
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import loads_second
from optical.noise.chip import ChipErrors

SPEC = dataclasses.replace(AnalogSpec.ideal(), load_variance=1e-4)


def full_scale(rows, columns, seed):
    x = 2 * torch.rand(1, rows, columns, generator=torch.Generator().manual_seed(seed)) - 1
    x[..., 0], x[:, 0] = 1.0, -1.0
    return x


def test_every_vector_of_a_load_meets_the_same_wrong_weight():
    b = full_scale(40, 24, seed=1)
    row = full_scale(1, 40, seed=2)
    c = AnalogNumerics(SPEC).matmul(row.expand(1, 60, 40).contiguous(), b, key=3)
    assert torch.equal(c, c[:, :1].expand_as(c))
    assert not torch.allclose(c[:, :1], row @ b, rtol=0, atol=1e-4)


def test_a_last_and_shorter_row_block_meets_the_weight_that_is_loaded():
    """36 rows are fewer than the 50 columns, and alone A would be loaded."""
    cells = ChipErrors(seed=1, rows=1, columns=50, length=40, holds_weights=True, second_gain=1e-2)
    specs = ProductSpecs.same(dataclasses.replace(SPEC, chip=cells), row_block=64)
    a, b = full_scale(1, 40, seed=2)[0], full_scale(40, 50, seed=1)[0]
    c = noisy_matmul(a.repeat(100, 1), b, specs, 3)
    torch.testing.assert_close(c, c[:1].expand_as(c), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(c[:1], a @ b, rtol=0, atol=1e-2)


@pytest.mark.parametrize(("m", "n"), [(300, 200), (200, 300)])
def test_load_errors_have_the_stated_variance(m, n):
    """Error of A dB is A E with E of the variance: E recovered by an orthogonal streamed operand."""
    size = 200
    streamed = torch.linalg.qr(full_scale(size, size, seed=4)[0])[0]
    exact_rows = torch.cat((streamed, streamed[: max(m, n) - size]))
    loaded = full_scale(size, size, seed=5)[0]
    a, b = (exact_rows, loaded) if loads_second(m, n) else (loaded, exact_rows.T)
    error = (AnalogNumerics(SPEC).matmul(a[None], b[None].contiguous(), key=6) - a @ b)[0]
    error = error[:size] if loads_second(m, n) else error[:, :size].T
    variance = float((streamed.T @ error).var())
    assert variance == pytest.approx(1e-4, rel=5 * math.sqrt(2) / size)


def test_the_operand_with_fewer_loads_is_loaded():
    assert loads_second(4096, 64)
    assert not loads_second(64, 4096)


def test_a_load_error_alone_is_no_exact_product():
    a, b = full_scale(8, 30, seed=7), full_scale(30, 8, seed=8)
    assert not torch.allclose(AnalogNumerics(SPEC).matmul(a, b, key=1), a @ b, rtol=0, atol=1e-4)
    assert torch.equal(AnalogNumerics(SPEC).matmul(a, b, 1), AnalogNumerics(SPEC).matmul(a, b, 1))
