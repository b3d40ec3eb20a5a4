import dataclasses

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from optical.cores import load_core
from optical.execution import AnalogSpec, ProductSpecs, Scale
from optical.execution.matmul import noisy_matmul
from simulator.errors import WorkloadError

COMPILES = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
"""The compiler itself instantiates autograd functions while it traces them."""
SPECS = ProductSpecs.of(load_core("crossbar").analog, row_block=16)
IDEAL = ProductSpecs.ideal()
THERMAL = dataclasses.replace(AnalogSpec.ideal(), analog_length=64, thermal_variance=1e-2)


def operands(*shapes, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def gradients(run, *inputs):
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = run(*leaves)
    out.square().sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "shape"),
    [
        ((5, 8), (8, 3), (5, 3)),
        ((2, 5, 8), (8, 3), (2, 5, 3)),
        ((2, 3, 5, 8), (2, 3, 8, 4), (2, 3, 5, 4)),
        ((2, 3, 5, 8), (1, 3, 8, 4), (2, 3, 5, 4)),
    ],
)
def test_the_ideal_limit_is_torch_matmul(a_shape, b_shape, shape):
    a, b = operands(a_shape, b_shape, dtype=torch.float64)
    found = gradients(lambda a, b: noisy_matmul(a, b, IDEAL, 1), a, b)
    exact = gradients(torch.matmul, a, b)
    assert found[0].shape == shape
    for mine, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_gradcheck_in_the_ideal_limit():
    a, b = (x.requires_grad_() for x in operands((3, 4), (4, 2), dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda a, b: noisy_matmul(a, b, IDEAL, 1), (a, b))


@pytest.mark.parametrize("which", ["forward", "grad_input", "grad_weight"])
def test_each_product_has_the_errors_of_its_own_phase(which):
    a, b = operands((6, 64), (64, 5))
    specs = dataclasses.replace(IDEAL, **{which: THERMAL})
    found = gradients(lambda a, b: noisy_matmul(a, b, specs, 1).mul(1.0), a, b)
    exact = gradients(torch.matmul, a, b)
    off = [not torch.allclose(mine, theirs, rtol=1e-4) for mine, theirs in zip(found, exact, strict=True)]
    if which == "forward":  # what follows squares the output, so its gradient is off too
        assert off[0]
    else:
        assert off == [False, which == "grad_input", which == "grad_weight"]


def test_a_dynamic_operand_is_no_weight():
    a, b = operands((6, 64), (64, 5))
    specs = dataclasses.replace(IDEAL, grad_weight=THERMAL)
    _, _, grad_b = gradients(lambda a, b: noisy_matmul(a, b, specs, 1, weight=False), a, b)
    _, _, exact = gradients(torch.matmul, a, b)
    torch.testing.assert_close(grad_b, exact)


def test_keys_and_places_tell_draws_apart():
    a, b = operands((6, 64), (64, 5))
    specs = ProductSpecs.same(THERMAL)
    base = noisy_matmul(a, b, specs, 1, place=(0, 0))
    assert torch.equal(base, noisy_matmul(a, b, specs, torch.tensor(1), place=(0, 0)))
    for key, place, first in ((2, (0, 0), 0), (1, (1, 0), 0), (1, (0, 1), 0), (1, (0, 0), 1)):
        assert not torch.equal(base, noisy_matmul(a, b, specs, key, place=place, first_block=first))
    assert torch.equal(noisy_matmul(a, b, specs, 2**64 - 1), noisy_matmul(a, b, specs, torch.tensor(-1)))


@pytest.mark.parametrize("shape", [(64, 24), (4, 3, 16, 24)])
def test_a_batch_cut_at_row_blocks_draws_the_same(shape):
    batched = len(shape) > 2
    a, b = operands(shape, (*shape[:2], 24, 8) if batched else (24, 8))
    specs = dataclasses.replace(SPECS, row_block=48 if batched else 16)
    whole = gradients(lambda a, b: noisy_matmul(a, b, specs, 7, weight=not batched), a, b)
    half = shape[0] // 2
    pieces = [
        gradients(
            lambda a, b, first=first: noisy_matmul(a, b, specs, 7, weight=not batched, first_block=first),
            a[part],
            b[part] if batched else b,
        )
        for part, first in ((slice(half), 0), (slice(half, None), 2))
    ]
    for mine, one, two in list(zip(whole, *pieces, strict=True))[:2]:
        assert torch.equal(mine, torch.cat([one, two]))
    if batched:
        assert torch.equal(whole[2], torch.cat([pieces[0][2], pieces[1][2]]))
    else:
        torch.testing.assert_close(whole[2], pieces[0][2] + pieces[1][2], rtol=1e-6, atol=1e-5)


def test_recomputed_activations_draw_the_same():
    a, b = operands((32, 24), (24, 8))
    run = lambda a, b: noisy_matmul(noisy_matmul(a, b, SPECS, 3).tanh(), b.mT, SPECS, 3, place=(1,))  # noqa: E731
    plain = gradients(run, a, b)
    kept = gradients(lambda a, b: checkpoint(run, a, b, use_reentrant=False), a, b)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(plain, kept, strict=True))


@pytest.mark.slow
@COMPILES
def test_a_compiled_graph_is_whole_and_follows_the_key():
    a, b = operands((32, 24), (24, 8))
    run = lambda a, b, key: noisy_matmul(a, b, SPECS, key, place=(2,)).square()  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    torch._dynamo.utils.counters.clear()
    for key in (torch.tensor(1), torch.tensor(2)):
        mine = gradients(lambda a, b, key=key: compiled(a, b, key), a, b)
        theirs = gradients(lambda a, b, key=key: run(a, b, key), a, b)
        assert all(torch.equal(x, y) for x, y in zip(mine, theirs, strict=True))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_the_operator_keeps_torchs_contract():
    a, b = operands((1, 32, 24), (1, 24, 8))
    arguments = (a, b, torch.tensor(3), SPECS.texts[0], [16, 0, 0, 0, 0])
    torch.library.opcheck(torch.ops.heliograph.analog_matmul.default, arguments)


@COMPILES
def test_it_exports_and_runs_on_the_meta_device():
    class Model(torch.nn.Module):
        def forward(self, a, b, key):
            return noisy_matmul(a, b, SPECS, key)

    a, b = operands((32, 24), (24, 8))
    exported = torch.export.export(Model(), (a, b, torch.tensor(3)))
    assert torch.equal(exported.module()(a, b, torch.tensor(4)), noisy_matmul(a, b, SPECS, 4))
    assert noisy_matmul(a.to("meta"), b.to("meta"), SPECS, torch.tensor(3)).shape == (32, 8)


def test_functional_transforms_see_through_it():
    a, b = operands((4, 16, 24), (24, 8))
    loss = lambda b: noisy_matmul(a, b, SPECS, 3).square().sum()  # noqa: E731
    assert torch.equal(torch.func.grad(loss)(b), gradients(lambda b: noisy_matmul(a, b, SPECS, 3), b)[1])
    each = torch.vmap(lambda x: noisy_matmul(x, b, IDEAL, 3))(a)
    torch.testing.assert_close(each, a @ b)
    alike = torch.vmap(lambda x: noisy_matmul(x, b, ProductSpecs.same(THERMAL), 3))(a[:1].expand(4, 16, 24))
    assert not torch.equal(alike[0], alike[1])


def cubes(run):
    """Return a loss that is not linear in a product."""
    return lambda a, b: run(a, b).pow(3).sum()


def noisy(specs):
    return lambda a, b: noisy_matmul(a, b, specs, 3)


def penalty(run, a, b):
    """Return gradients of the square of a gradient, and that gradient."""
    leaves = [x.clone().requires_grad_() for x in (a, b)]
    first = torch.autograd.grad(cubes(run)(*leaves), leaves, create_graph=True)
    second = torch.autograd.grad(sum(each.square().sum() for each in first), leaves)
    return [each.detach() for each in (*first, *second)]


@pytest.mark.parametrize("shapes", [((6, 8), (8, 5)), ((3, 6, 8), (3, 8, 5))])
def test_gradients_of_gradients_are_right_in_the_ideal_limit(shapes):
    """Products of both gradients, and theirs, by finite differences too."""
    a, b = (x.requires_grad_() for x in operands(*shapes, dtype=torch.float64))
    assert torch.autograd.gradgradcheck(noisy(IDEAL), (a, b))
    for mine, theirs in zip(penalty(noisy(IDEAL), a, b), penalty(torch.matmul, a, b), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_gradients_of_gradients_are_products_of_the_core():
    """First gradients keep their draws, second ones have their own: the errors of the gradients' phases."""
    a, b = operands((32, 24), (24, 8))
    plain = [x.clone().requires_grad_() for x in (a, b)]
    first = torch.autograd.grad(cubes(noisy(SPECS))(*plain), plain)
    found = penalty(noisy(SPECS), a, b)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, first, strict=False))
    assert not torch.allclose(found[2], penalty(torch.matmul, a, b)[2], rtol=1e-4)
    quiet = dataclasses.replace(IDEAL, forward=THERMAL)
    linear = lambda specs: torch.func.grad(lambda a: noisy_matmul(a, b, specs, 3).sum())  # noqa: E731
    assert torch.equal(linear(quiet)(a), linear(IDEAL)(a))
    assert not torch.equal(linear(dataclasses.replace(IDEAL, grad_input=THERMAL))(a), linear(IDEAL)(a))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")
def test_tangents_run_forwards_through_the_core():
    """Forward mode: dA B + A dB, each a product of the forward phase with draws of its own."""
    (a, b), (da, db) = (operands((6, 64), (64, 5), seed=seed, dtype=torch.float64) for seed in (0, 1))
    with forward_ad.dual_level():
        c = noisy_matmul(forward_ad.make_dual(a, da), forward_ad.make_dual(b, db), IDEAL, 1)
        torch.testing.assert_close(forward_ad.unpack_dual(c).tangent, da @ b + a @ db)
    specs = dataclasses.replace(IDEAL, forward=THERMAL)
    out, tangent = torch.func.jvp(noisy(specs), (a, b), (da, db))
    assert torch.equal(out, noisy(specs)(a, b))
    errors = [tangent - (da @ b + a @ db), out - a @ b]
    assert all(error.std() > 0.1 for error in errors)
    assert torch.corrcoef(torch.stack([error.flatten() for error in errors]))[0, 1].abs() < 0.6
    hessian = torch.func.hessian(cubes(noisy(IDEAL)))(a[:2, :4], b[:4, :3])
    torch.testing.assert_close(hessian, torch.func.hessian(cubes(torch.matmul))(a[:2, :4], b[:4, :3]))


def test_autocast_gives_its_type_and_the_same_draws():
    a, b = operands((32, 64), (64, 8))
    with torch.autocast("cpu", torch.bfloat16):
        half = noisy_matmul(a, b, ProductSpecs.same(THERMAL), 3)
    assert half.dtype == torch.bfloat16
    rounded = noisy_matmul(a.bfloat16().float(), b.bfloat16().float(), ProductSpecs.same(THERMAL), 3)
    torch.testing.assert_close(half.float(), rounded, rtol=0.0, atol=0.15)  # the noise is 0.7 rms


def test_no_number_of_threads_changes_a_draw():
    a, b = operands((64, 128), (128, 96))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = noisy_matmul(a, b, SPECS, 3)
        torch.set_num_threads(2)
        two = noisy_matmul(a, b, SPECS, 3)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, two)


@pytest.mark.parametrize(("a_shape", "b_shape"), [((3, 4), (5, 2)), ((4,), (4, 2)), ((3, 4), (4,))])
def test_what_makes_no_product_is_refused(a_shape, b_shape):
    with pytest.raises(WorkloadError, match="operands must have shapes"):
        noisy_matmul(*operands(a_shape, b_shape), SPECS, 1)


@pytest.mark.parametrize("key", [1.5, None, "7", torch.tensor(1.5)])
def test_a_key_that_is_no_whole_number_is_refused(key):
    with pytest.raises(WorkloadError, match="key must be a whole number, or a tensor of int64; got"):
        noisy_matmul(torch.ones(2, 3), torch.ones(3, 2), ProductSpecs.ideal(), key)


def as_documented(a_MK, b_KN, spec):
    """Return a product of converters alone, as docs/noise.md says, in numpy."""
    codes = []
    for x, dim in ((a_MK, 1), (b_KN, 0)):
        full = np.abs(x).max(dim if spec.scale is Scale.ROW else None, keepdims=True)
        largest = 2 ** (spec.dac_bits - 1) - 1
        codes.append((np.rint(x / full * largest) / largest, full))
    (a, of_a), (b, of_b) = codes
    product = spec.product_gain * a @ b
    step = spec.adc_range_sigma * np.sqrt(np.mean(product**2)) * 2 ** (1 - spec.adc_bits)
    largest = 2 ** (spec.adc_bits - 1) - 1
    return np.clip(np.rint(product / step), -largest, largest) * step * of_a * of_b


@pytest.mark.parametrize("scale", [Scale.ROW, Scale.TENSOR])
@pytest.mark.parametrize("shape", [(40, 33, 17), (1, 8, 1), (60, 64, 60)])
def test_converters_do_to_all_three_products_what_the_page_says(shape, scale):
    generator, (m, k, n) = np.random.default_rng(1), shape
    a, b, gradient = (generator.standard_normal(one) for one in ((m, k), (k, n), (m, n)))
    a[:, 0] *= 50.0
    spec = dataclasses.replace(
        AnalogSpec.ideal(),
        dac_bits=6,
        adc_bits=8,
        adc_enob_bits=8,
        adc_range_sigma=3.0,
        analog_length=64,
        product_gain=0.97,
        scale=scale,
    )
    operands = [torch.from_numpy(x).requires_grad_() for x in (a, b)]
    c = noisy_matmul(*operands, ProductSpecs.same(spec), 3)
    c.backward(torch.from_numpy(gradient))
    for found, (x, y) in zip(
        (c.detach(), *(one.grad for one in operands)), ((a, b), (gradient, b.T), (a.T, gradient)), strict=True
    ):
        np.testing.assert_allclose(found.numpy(), as_documented(x, y, spec), rtol=1e-12, atol=1e-12)
