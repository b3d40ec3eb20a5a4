"""Errors of a loaded operand: fixed for the load, of the stated size, on the operand that is loaded."""

import dataclasses
import math

import pytest
import torch

from optical.execution import AnalogSpec, loads_second
from optical.execution.numerics import AnalogNumerics

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
