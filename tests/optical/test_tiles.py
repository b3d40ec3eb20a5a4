"""Codes in tiles of a matrix unit make the very products that codes in rows make, on any road.

On a CPU without such a unit the roads are the same, and all of this holds of itself.
"""

import dataclasses
import functools
import random

import pytest
import torch

import optical.execution.encoding
import optical.execution.fused
import optical.execution.fused_products
import optical.execution.fused_threads
import optical.execution.row_blocks
import optical.execution.scratch
from optical.execution import AnalogSpec, ProductSpecs, Rounding, Scale, tiles
from optical.execution.draws import Draws
from optical.execution.encoding import encode
from optical.execution.fused_batches import deliver_rows
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from optical.execution.operands import multiply

pytest.importorskip("numba")
has_tiles = pytest.mark.skipif(not tiles.are_there(), reason="the CPU has no matrix unit")

SPEC = dataclasses.replace(
    AnalogSpec.ideal(),
    dac_bits=8,
    adc_bits=9,
    adc_enob_bits=8,
    adc_range_sigma=6.0,
    analog_length=72,
    thermal_variance=1e-3,
    shot_variance=1e-4,
    rin_variance=1e-5,
)
CPU = torch.device("cpu")


@pytest.fixture
def without_tiles(monkeypatch):
    """Return a function that runs another one as where there is no matrix unit."""
    caches = (
        optical.execution.fused.tile_jobs,
        optical.execution.fused._encoding,
        optical.execution.fused_products._delivering,
        optical.execution.encoding._coding,
    )

    def clear():
        for cache in caches:
            cache.cache_clear()
        optical.execution.scratch._KEPT.made.clear()

    def run(function):
        with monkeypatch.context() as patch:
            clear()
            patch.setattr(optical.execution.fused, "tile_jobs", functools.cache(lambda: None))
            result = function()
        clear()
        return result

    return run


def operands(m, k, n, layouts):
    generator = torch.Generator().manual_seed(m + k + n)
    a_rows, b_rows = layouts
    a = torch.randn(1, m, k, generator=generator) if a_rows else torch.randn(1, k, m, generator=generator).mT
    b = torch.randn(1, k, n, generator=generator) if b_rows else torch.randn(1, n, k, generator=generator).mT
    return a, b


def exact(a, b):
    return a.codes.to(torch.float64) @ b.codes.to(torch.float64)


@has_tiles
@pytest.mark.parametrize("bits", [4, 8, 12, 14])
@pytest.mark.parametrize("layouts", [(True, True), (True, False), (False, True), (False, False)], ids=str)
@pytest.mark.parametrize("shape", [(32, 64, 32), (48, 192, 96), (77, 64, 160), (600, 1088, 64)], ids=str)
def test_products_in_tiles_are_exact(shape, layouts, bits):
    """Sums of integers: each equals that of float64, to the last bits of a float32 where codes are halved."""
    m, k, n = shape
    spec = dataclasses.replace(SPEC, dac_bits=bits)
    x, y = operands(m, k, n, layouts)
    a = encode(x, -1, spec, Draws(1, CPU), loaded=False, use="first")
    b = encode(y, -2, spec, Draws(2, CPU), loaded=True, use="second")
    assert b.tiles is not None
    assert (a.tiles is None) == (layouts[0] or m % 16 > 0)
    product = multiply(a, b)
    value = product.value((slice(0, 1), slice(0, m)), torch.float32).double()
    assert len(product.sums) == 1 or not (layouts[0] or m % 16 == 0)
    if bits <= 8:
        assert torch.equal(value, exact(a, b))
    else:
        torch.testing.assert_close(value, exact(a, b), rtol=3e-7, atol=0.0)


@has_tiles
@pytest.mark.parametrize("bits", [8, 12])
@pytest.mark.parametrize("rows", [slice(0, 40), slice(32, 77), slice(13, 60)], ids=str)
def test_rows_of_a_product_in_tiles(rows, bits):
    spec = dataclasses.replace(SPEC, dac_bits=bits)
    x, y = operands(77, 128, 64, (True, False))
    a = encode(x, -1, spec, Draws(1, CPU), loaded=False)
    b = encode(y, -2, spec, Draws(2, CPU), loaded=True)
    found = multiply(a, b, (slice(0, 1), rows)).sums[0]
    assert torch.allclose(found.double(), exact(a, b)[:, rows], rtol=3e-7, atol=0.0)


@pytest.mark.parametrize("shape", [(31, 64, 32), (64, 70, 32), (64, 64, 30), (1, 64, 64)], ids=str)
@pytest.mark.parametrize("bits", [8, 12])
def test_shapes_that_fit_no_tiles_are_multiplied_all_the_same(shape, bits):
    spec = dataclasses.replace(SPEC, dac_bits=bits)
    x, y = operands(*shape, (True, False))
    a = encode(x, -1, spec, Draws(1, CPU), loaded=False)
    b = encode(y, -2, spec, Draws(2, CPU), loaded=True)
    product = multiply(a, b)
    value = product.value((slice(0, 1), slice(0, shape[0])), torch.float32)
    assert torch.allclose(value.double(), exact(a, b), rtol=3e-7, atol=0.0)


@has_tiles
@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("bits", [8, 12])
@pytest.mark.parametrize("length", [72, 4096])
@pytest.mark.parametrize("shape", [(200, 192, 96), (64, 576, 256)], ids=str)
def test_gradients_are_the_same_with_tiles_and_without(shape, length, bits, rounding, without_tiles):
    """All three products, of one sample and of several, in blocks of 64 rows."""
    m, k, n = shape
    spec = dataclasses.replace(SPEC, dac_bits=bits, analog_length=length, rounding=rounding)
    specs = ProductSpecs.same(spec, row_block=64)

    def gradients():
        generator = torch.Generator().manual_seed(4)
        x = torch.randn(m, k, generator=generator).requires_grad_()
        weight = torch.randn(n, k, generator=generator).requires_grad_()
        out = noisy_matmul(x, weight.mT, specs, 9)
        return (out, *torch.autograd.grad(out, (x, weight), torch.randn(m, n, generator=generator)))

    for found, expected in zip(gradients(), without_tiles(gradients), strict=True):
        if bits == 8:
            assert torch.equal(found, expected)
        else:  # the probe of several samples adds float32, not integers
            worst = (found - expected).abs() / expected.square().mean().sqrt()
            assert float((worst > 1e-5).float().mean()) < 1e-3


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("length", [40, 72, 4096])
@pytest.mark.parametrize("matrices", [8, 11])
def test_blocks_of_matrices_are_what_they_are_one_by_one(matrices, length, rounding, monkeypatch):
    """Forward and both gradients of a batched product, in blocks of four matrices, the last one shorter."""
    spec = dataclasses.replace(SPEC, analog_length=length, rounding=rounding)
    specs = ProductSpecs.same(spec, row_block=4 * 24)

    def gradients():
        generator = torch.Generator().manual_seed(4)
        a = torch.randn(matrices, 24, 96, generator=generator).requires_grad_()
        b = torch.randn(matrices, 40, 96, generator=generator).requires_grad_()
        out = noisy_matmul(a, b.mT, specs, 2**63 + 9)
        return (out, *torch.autograd.grad(out, (a, b), torch.randn(matrices, 24, 40, generator=generator)))

    together, calls = gradients(), []

    def refuse(*arguments):
        calls.append(arguments)
        return 0

    monkeypatch.setattr(optical.execution.row_blocks, "deliver_blocks", refuse)
    for found, expected in zip(together, gradients(), strict=True):
        assert torch.equal(found, expected)
    assert calls


def test_exact_tiles_are_executed_one_by_one_in_blocks_too():
    """Several samples that clip: the sum of what each delivers, which one draw does not follow."""
    spec = dataclasses.replace(SPEC, adc_range_sigma=0.5, thermal_variance=0.0, shot_variance=0.0)
    a, b = torch.randn(8, 24, 144), torch.randn(8, 144, 40)
    collapsed, tiled = (
        noisy_matmul(a, b, ProductSpecs.same(spec, row_block=4 * 24, exact_tiles=exact_tiles), 3)
        for exact_tiles in (False, True)
    )
    numerics = AnalogNumerics(spec, exact_tiles=True)
    assert not torch.equal(collapsed, tiled)
    assert (tiled - numerics.matmul(a, b, 3)).square().mean() < 0.2 * (tiled - a @ b).square().mean()


@pytest.mark.parametrize("team", ["OpenMP's", "Python's"])
def test_parts_in_tiles_give_the_same_bits_on_several_threads(team, monkeypatch):
    x, y = operands(300, 576, 256, (True, False))
    numerics = AnalogNumerics(SPEC)
    alone = numerics.matmul(x, y, 5)
    monkeypatch.setattr(optical.execution.fused_threads, "_FEWEST", 100)
    monkeypatch.setattr(optical.execution.fused_threads, "_FEWEST_ALONE", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    if team == "Python's":
        monkeypatch.setattr(optical.execution.fused_threads, "_openmp", lambda: None)
    for _ in range(5):
        assert torch.equal(numerics.matmul(x, y, 5), alone)


@has_tiles
@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("length", [72, 4096])
@pytest.mark.parametrize(("size", "blocks"), [(64, 3), (40, 5), (33, 6), (32, 6), (16, 0), (7, 0)])
def test_blocks_of_rows_are_what_they_are_one_by_one(size, blocks, length, rounding, monkeypatch):
    """200 rows; too few of them for a product in tiles are left to be multiplied one by one."""
    spec = dataclasses.replace(SPEC, analog_length=length, rounding=rounding)
    specs = ProductSpecs.same(spec, row_block=size)
    generator = torch.Generator().manual_seed(4)
    x, weight = torch.randn(200, 192, generator=generator), torch.randn(96, 192, generator=generator)
    together, calls = noisy_matmul(x, weight.mT, specs, 9), []

    def count(*arguments):
        calls.append(deliver_rows(*arguments))
        return 0

    monkeypatch.setattr(optical.execution.row_blocks, "deliver_rows", count)
    assert torch.equal(together, noisy_matmul(x, weight.mT, specs, 9))
    assert calls == [blocks]


def any_product(number):
    """Return a product and its gradients, of a shape, a layout, blocks and a core that the number draws."""
    pick, generator = random.Random(number), torch.Generator().manual_seed(number)
    spec = dataclasses.replace(
        SPEC,
        dac_bits=pick.choice([4, 8]),
        analog_length=pick.choice([32, 72, 100, 5000]),
        shot_variance=pick.choice([0.0, 1e-4]),
        rin_variance=pick.choice([0.0, 1e-5]),
        rounding=pick.choice(list(Rounding)),
        scale=pick.choice([Scale.ROW, Scale.TENSOR]),
    )
    specs = ProductSpecs.same(spec, row_block=pick.choice([1, 16, 24, 32, 33, 40, 64, 256]))
    k, n, matrices = (
        pick.choice([64, 192, 320, 100, 7]),
        pick.choice([32, 96, 256, 30]),
        pick.choice([(), (), (5,)]),
    )
    m = pick.choice([1, 16, 31, 33, 64] if matrices else [1, 7, 31, 32, 33, 48, 77, 200, 300])
    a, b = (
        torch.randn(*matrices, m, k, generator=generator),
        torch.randn(*matrices, n, k, generator=generator).mT,
    )
    a = a.mT.contiguous().mT if pick.random() < 0.3 else a
    b = b.contiguous() if pick.random() < 0.5 else b
    a, b = a.requires_grad_(), b.requires_grad_()
    out = noisy_matmul(a, b, specs, number)
    return (out, *torch.autograd.grad(out, (a, b), torch.randn(out.shape, generator=generator)))


@pytest.mark.filterwarnings("ignore::simulator.errors.SuspectWarning")
@pytest.mark.parametrize("first", range(0, 80, 20))
def test_any_product_has_the_same_bits_with_tiles_and_without(first, without_tiles, monkeypatch):
    """Odd sizes, short blocks, all layouts; with tiles on three threads, without on one."""
    numbers = range(first, first + 20)
    alone = without_tiles(lambda: [any_product(number) for number in numbers])
    monkeypatch.setattr(optical.execution.fused_threads, "_FEWEST", 2000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for number, expected in zip(numbers, alone, strict=True):
        for found, same in zip(any_product(number), expected, strict=True):
            assert torch.equal(found, same), number
