import dataclasses
import gc

import pytest
import torch

from optical.execution import AnalogSpec, ProductSpecs, Rounding, Scale, row_blocks, weight_codes
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from simulator.keys import mix_key

EIGHT = dataclasses.replace(
    AnalogSpec.ideal(),
    dac_bits=8,
    adc_bits=8,
    adc_enob_bits=8,
    adc_range_sigma=4.0,
    analog_length=64,
    thermal_variance=1e-2,
)
SPECS = ProductSpecs.same(EIGHT, row_block=16)


@pytest.fixture
def counted(monkeypatch):
    """Shapes of what is coded as B."""
    seen, encode = [], row_blocks.encode

    def counting(x, summed_dim, *rest, **options):
        if summed_dim == -2:
            seen.append(tuple(x.shape))
        return encode(x, summed_dim, *rest, **options)

    monkeypatch.setattr(row_blocks, "encode", counting)
    return seen


def operands():
    generator = torch.Generator().manual_seed(1)
    weight = torch.nn.Parameter(torch.randn(48, 64, generator=generator))
    return torch.randn(40, 64, generator=generator), weight


def run(x, weight, key=1, specs=SPECS):
    return noisy_matmul(x, weight.mT, specs, key).detach()


def test_a_weight_is_coded_once_until_it_changes(counted):
    x, weight = operands()
    first = run(x, weight)
    assert torch.equal(run(x, weight), first)
    run(x, weight, key=2)
    assert len(counted) == 1
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    run(x, weight)
    assert len(counted) == 2


@pytest.mark.parametrize("write", ["in place", "data", "uncounted"])
def test_no_write_to_a_weight_goes_unseen(write):
    x, weight = operands()
    before = run(x, weight)
    with torch.no_grad():
        if write == "in place":
            weight[3, 5] += 20.0
        elif write == "data":
            weight.data.mul_(1.5).add_(0.1)
        else:
            with torch.autograd._unsafe_preserve_version_counter(weight):
                weight.mul_(1.5).add_(0.1)
    after = run(x, weight)
    assert not torch.equal(before, after)
    assert torch.equal(after, run(x, torch.nn.Parameter(weight.detach().clone())))


def test_kept_codes_go_with_their_weight():
    x, weight = operands()
    gc.collect()
    before = len(weight_codes._STORAGES)
    run(x, weight)
    assert len(weight_codes._STORAGES) == before + 1
    del weight
    gc.collect()
    assert len(weight_codes._STORAGES) == before


def test_activations_compilers_and_transforms_keep_no_codes():
    x, weight = operands()
    gc.collect()
    before = len(weight_codes._STORAGES)
    noisy_matmul(x, weight.mT, SPECS, 1, weight=False)
    torch.func.grad(lambda w: noisy_matmul(x, w.mT, SPECS, 1).sum())(weight.detach())
    with torch.inference_mode():
        run(x, torch.randn(48, 64))
    run(x, weight, specs=ProductSpecs.same(dataclasses.replace(EIGHT, rounding=Rounding.STOCHASTIC)))
    assert len(weight_codes._STORAGES) == before


@pytest.mark.parametrize("scale", list(Scale))
def test_row_blocks_are_products_of_their_own(scale):
    """Bit for bit what a core makes of each block alone, with the block's key."""
    x, weight = operands()
    each = dataclasses.replace(EIGHT, scale=scale)
    whole = run(x, weight, specs=ProductSpecs.same(each, row_block=16))
    blocks = row_blocks.RowBlocks(key=1, place=(0,), first=0, size=16, sums_rows=False, keeps_codes=False)
    for key, part in blocks.parts(40):
        alone = AnalogNumerics(each).matmul(x[None, part], weight.detach().mT[None], key)[0]
        assert torch.equal(whole[part], alone)


def test_a_stochastic_weight_is_rounded_alike_for_all_row_blocks():
    """One load, one rounding: the same rows in two blocks meet the same codes, with noise of their own."""
    x, weight = operands()
    rounds = dataclasses.replace(AnalogSpec.ideal(), dac_bits=3, rounding=Rounding.STOCHASTIC)
    x = torch.eye(64)[:16].repeat(2, 1)  # on the grid: rounded to itself
    out = run(x, weight, specs=ProductSpecs.same(rounds, row_block=16))
    assert torch.equal(out[:16], out[16:])
    assert not torch.equal(out, run(x, weight, key=2, specs=ProductSpecs.same(rounds, row_block=16)))


def test_samples_are_executed_one_by_one_where_asked_for():
    """In all three products: bit for bit what the executor makes of each sample."""
    x, weight = operands()
    short = dataclasses.replace(EIGHT, analog_length=16)
    specs = ProductSpecs.same(short, row_block=64, exact_tiles=True)
    found = noisy_matmul(x.requires_grad_(), weight.mT, specs, 1)
    grads = torch.autograd.grad(found, (x, weight), torch.ones_like(found))
    exact = AnalogNumerics(short, exact_tiles=True)
    ones, plain = torch.ones(1, 40, 48), weight.detach()
    keys = [mix_key(1, product, 0) for product in range(3)]
    assert torch.equal(found[None], exact.matmul(x.detach()[None], plain.mT[None], keys[0]))
    assert torch.equal(grads[0][None], exact.matmul(ones, plain[None], keys[1]))
    assert torch.equal(grads[1].mT[None], exact.matmul(x.detach().mT[None], ones, keys[2]))
