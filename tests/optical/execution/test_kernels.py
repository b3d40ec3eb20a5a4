"""Compiled passes give the bits of torch, and no draw depends on how a product is cut into blocks."""

import dataclasses
import math
import os
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import optical.execution.operands
from optical.cores import load_core
from optical.execution import AnalogSpec, ProductSpecs, Rounding, Scale, draws, kernels
from optical.execution.draws import Draws, compiled
from optical.execution.matmul import noisy_matmul
from optical.execution.numerics import AnalogNumerics
from optical.execution.operands import encode
from optical.execution.readout import multiply
from simulator.keys import mix_key
from simulator.operators import Phase

numba = pytest.importorskip("numba")
CPU = torch.device("cpu")
CONVERTERS = dataclasses.replace(
    AnalogSpec.ideal(),
    dac_bits=8,
    adc_bits=9,
    adc_enob_bits=8,
    adc_range_sigma=4.0,
    analog_length=400,
    thermal_variance=1e-3,
)
SPECS = {
    "one sample": CONVERTERS,
    "noise by rows and columns": dataclasses.replace(CONVERTERS, shot_variance=1e-4),
    "several samples": dataclasses.replace(
        CONVERTERS, analog_length=64, rin_variance=1e-4, shot_variance=1e-4, adc_range_sigma=8.0
    ),
    "laser noise alone": dataclasses.replace(
        CONVERTERS, analog_length=64, rin_variance=1e-3, adc_range_sigma=8.0
    ),
    "four bits": dataclasses.replace(CONVERTERS, dac_bits=4, adc_bits=4, adc_enob_bits=4),
    "twelve bits": dataclasses.replace(CONVERTERS, dac_bits=12, adc_bits=12, adc_enob_bits=12),
    "no noise": dataclasses.replace(CONVERTERS, thermal_variance=0.0, adc_enob_bits=9),
    "no converter": dataclasses.replace(CONVERTERS, adc_bits=math.inf, adc_enob_bits=math.inf),
    "crossbar": load_core("crossbar").analog(Phase.GRAD_INPUT),
}
SHAPES = [(1, 300, 300, 96), (6, 40, 200, 48), (1, 7, 30, 5), (2, 5, 9, 33)]


@pytest.fixture
def without(monkeypatch):
    """Return a function that runs another one as where numba is missing."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "available", lambda x: False)
            return function()

    return run


def operands(shape, seed=3):
    batch, m, k, n = shape
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(batch, m, k, generator=generator)
    return a, torch.randn(batch, n, k, generator=generator).mT


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("scale", [Scale.ROW, Scale.TENSOR])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.filterwarnings("ignore::simulator.errors.SuspectWarning")
def test_compiled_passes_have_the_bits_of_torch(name, shape, scale, rounding, without):
    a, b = operands(shape)
    numerics = AnalogNumerics(dataclasses.replace(SPECS[name], scale=scale, rounding=rounding))
    found, expected = numerics.matmul(a, b, 5), without(lambda: numerics.matmul(a, b, 5))
    assert torch.equal(found, expected)


def gradients(a, b, specs, key, *, matrices=()):
    """Return a product and both gradients."""
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    out = noisy_matmul(a, b, specs, key)
    generator = torch.Generator().manual_seed(8)
    return (out.detach(), *torch.autograd.grad(out, (a, b), torch.randn(out.shape, generator=generator)))


def any_product(number):
    """Return a product and its gradients, of a shape, a layout, blocks and a core that the number draws."""
    pick, generator = random.Random(number), torch.Generator().manual_seed(number)
    spec = dataclasses.replace(
        CONVERTERS,
        dac_bits=pick.choice([4, 8, 12]),
        analog_length=pick.choice([32, 72, 100, 5000]),
        adc_range_sigma=6.0,
        shot_variance=pick.choice([0.0, 1e-4]),
        rin_variance=pick.choice([0.0, 1e-5]),
        rounding=pick.choice(list(Rounding)),
        scale=pick.choice([Scale.ROW, Scale.TENSOR]),
    )
    specs = ProductSpecs.same(spec, row_block=pick.choice([1, 16, 24, 33, 64, 256]))
    k, n, matrices = (
        pick.choice([64, 192, 100, 7]),
        pick.choice([32, 96, 30, 31]),
        pick.choice([(), (), (5,)]),
    )
    m = pick.choice([1, 16, 33, 64] if matrices else [1, 7, 32, 77, 200])
    a = torch.randn(*matrices, m, k, generator=generator)
    b = torch.randn(*matrices, n, k, generator=generator).mT
    a = a.mT.contiguous().mT if pick.random() < 0.3 else a
    b = b.contiguous() if pick.random() < 0.5 else b
    return gradients(a, b, specs, number)


@pytest.mark.filterwarnings("ignore::simulator.errors.SuspectWarning")
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_any_product_has_the_same_bits_compiled_and_on_any_number_of_threads(first, without, monkeypatch):
    """Odd sizes, short blocks, all layouts."""
    numbers = range(first, first + 20)
    expected = without(lambda: [any_product(number) for number in numbers])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        found = [any_product(number) for number in numbers]
    finally:
        torch.set_num_threads(before)
    for number, one, other in zip(numbers, found, expected, strict=True):
        for tensor, same in zip(one, other, strict=True):
            assert torch.equal(tensor, same), number


def test_threads_of_python_do_not_disturb_each_other():
    """Passes let other threads run: each product comes out as it does alone."""
    numerics = AnalogNumerics(SPECS["crossbar"])
    pairs = [operands(shape) for shape in SHAPES]
    alone = [numerics.matmul(a, b, 3) for a, b in pairs]
    found = [[] for _ in pairs]

    def work(place):
        found[place] += [numerics.matmul(*pairs[place], 3) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(pairs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for several, expected in zip(found, alone, strict=True):
        assert len(several) == 5
        assert all(torch.equal(one, expected) for one in several)


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("size", [7, 16, 40])
def test_row_blocks_are_products_of_their_own(size, scale, rounding):
    """The result has the bits of each block executed alone with its key; the codes of B are shared."""
    spec = dataclasses.replace(
        CONVERTERS, scale=scale, rounding=rounding, analog_length=64, shot_variance=1e-4
    )
    a, b = operands((1, 40, 64, 48))
    whole = noisy_matmul(a[0], b[0], ProductSpecs.same(spec, row_block=size), 1)
    for number, start in enumerate(range(0, 40, size)):
        rows = a[0, start : start + size]
        if rounding is Rounding.NEAREST:
            alone = AnalogNumerics(spec).matmul(rows[None], b, mix_key(1, 0, number))[0]
        else:
            specs = ProductSpecs.same(spec, row_block=size)
            alone = noisy_matmul(rows, b[0], specs, 1, first_block=number)
        assert torch.equal(whole[start : start + size], alone)


@pytest.mark.parametrize("matrices", [8, 11])
@pytest.mark.parametrize("length", [40, 4096])
def test_blocks_of_matrices_are_what_they_are_one_by_one(matrices, length):
    """In blocks of four matrices, the last one shorter."""
    spec = dataclasses.replace(SPECS["several samples"], analog_length=length, rounding=Rounding.STOCHASTIC)
    specs = ProductSpecs.same(spec, row_block=4 * 24)
    a, b = operands((matrices, 24, 96, 40))
    whole = gradients(a, b, specs, 2**63 + 9)
    for number, start in enumerate(range(0, matrices, 4)):
        part = slice(start, start + 4)
        out = noisy_matmul(a[part], b[part], specs, 2**63 + 9, first_block=number)
        assert torch.equal(whole[0][part], out)


def test_a_stochastic_weight_is_rounded_alike_for_all_row_blocks():
    """One load, one rounding: the same rows in two blocks meet the same codes, with noise of their own."""
    rounds = dataclasses.replace(AnalogSpec.ideal(), dac_bits=3, rounding=Rounding.STOCHASTIC)
    specs, weight = ProductSpecs.same(rounds, row_block=16), torch.randn(64, 48)
    x = torch.eye(64)[:16].repeat(2, 1)  # on the grid: rounded to itself
    out = noisy_matmul(x, weight, specs, 1)
    assert torch.equal(out[:16], out[16:])
    assert not torch.equal(out, noisy_matmul(x, weight, specs, 2))


@pytest.mark.parametrize("write", ["in place", "data", "uncounted"])
def test_every_write_to_a_weight_is_seen(write):
    weight, x = torch.nn.Parameter(torch.randn(48, 64)), torch.randn(40, 64)
    specs = ProductSpecs.same(CONVERTERS, row_block=16)
    before = noisy_matmul(x, weight.mT, specs, 1)
    with torch.no_grad():
        if write == "in place":
            weight[3, 5] += 20.0
        elif write == "data":
            weight.data[3, 5] += 20.0
        else:
            with torch.autograd._unsafe_preserve_version_counter(weight):
                weight[3, 5] += 20.0
    after = noisy_matmul(x, weight.mT, specs, 1)
    assert not torch.equal(before, after)
    assert torch.equal(after, noisy_matmul(x, weight.detach().clone().mT, specs, 1))


def test_samples_are_executed_one_by_one_where_asked_for():
    """All three products have the bits of the executor for each sample."""
    x, weight = torch.randn(40, 64), torch.randn(48, 64)
    short = dataclasses.replace(CONVERTERS, analog_length=16)
    specs = ProductSpecs.same(short, row_block=64, exact_tiles=True)
    a, b = x.clone().requires_grad_(), weight.clone().requires_grad_()
    found = noisy_matmul(a, b.mT, specs, 1)
    grads = torch.autograd.grad(found, (a, b), torch.ones_like(found))
    exact, ones = AnalogNumerics(short, exact_tiles=True), torch.ones(1, 40, 48)
    keys = [mix_key(1, product, 0) for product in range(3)]
    assert torch.equal(found[None], exact.matmul(x[None], weight.mT[None], keys[0]))
    assert torch.equal(grads[0][None], exact.matmul(ones, weight[None], keys[1]))
    assert torch.equal(grads[1].mT[None], exact.matmul(x.mT[None], ones, keys[2]))


def test_exact_tiles_follow_clipping_that_one_draw_does_not():
    """Several samples that clip, in blocks too."""
    spec = dataclasses.replace(SPECS["several samples"], adc_range_sigma=0.5, thermal_variance=0.0)
    a, b = operands((8, 24, 144, 40))
    collapsed, tiled = (
        noisy_matmul(a, b, ProductSpecs.same(spec, row_block=4 * 24, exact_tiles=exact_tiles), 3)
        for exact_tiles in (False, True)
    )
    alone = AnalogNumerics(spec, exact_tiles=True).matmul(a, b, 3)
    assert not torch.equal(collapsed, tiled)
    assert (tiled - alone).square().mean() < 0.2 * (tiled - a @ b).square().mean()


@pytest.mark.parametrize("bits", [4, 8, 12, 14])
@pytest.mark.parametrize(
    "shape", [(32, 64, 32), (77, 64, 160), (31, 70, 30), (1, 64, 64), (600, 1088, 1), (1030, 40, 1030)]
)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("in_int8", [True, False])
def test_products_of_codes_are_exact(monkeypatch, shape, bits, turned, in_int8):
    """Each equals that of float64, to the last bits of a float32 where codes are halved, or of its terms."""
    monkeypatch.setattr(optical.execution.operands, "has_quick_int8_products", lambda: in_int8)
    x, y = operands((1, *shape))
    x = x.mT.contiguous().mT if turned else x
    spec = dataclasses.replace(CONVERTERS, dac_bits=bits)
    a = encode(x, -1, spec, Draws([1], CPU), loaded=False)
    b = encode(y, -2, spec, Draws([2], CPU), loaded=True)
    found, exact = multiply(a.codes, b.codes).double(), a.codes.double() @ b.codes.double()
    if bits <= 8:
        assert torch.equal(found, exact)
    elif in_int8:
        torch.testing.assert_close(found, exact, rtol=3e-7, atol=1.0)
    else:
        terms = a.codes.double().abs() @ b.codes.double().abs()
        assert ((found - exact).abs() <= math.sqrt(shape[1]) * 2.0**-23 * terms).all()


def test_numbers_that_are_none_stay_so():
    """A diverged model must not look like one that trains."""
    a, b = torch.randn(1, 8, 40), torch.randn(1, 40, 8)
    a[0, 3, 4] = math.nan
    found = AnalogNumerics(CONVERTERS).matmul(a, b, 1)
    assert found[0, 3].isnan().all()
    assert found[0, :3].isfinite().all() or found.isnan().all()


def test_words_do_not_depend_on_how_many_are_taken_at_once():
    def words(*counts):
        draws = Draws([9, 2**64 - 1], CPU)
        return torch.cat([draws.words(count) for count in counts], 1)

    assert torch.equal(words(3, 1, 6, 5), words(15))


def test_blocks_draw_what_each_draws_alone():
    keys, shape = [4, 2**63 + 1, 7], torch.Size((3, 5, 3))
    together = Draws(keys, CPU)
    drawn = together.gaussian(shape, torch.float32), together.dither(shape, torch.float32)
    for place, key in enumerate(keys):
        alone = Draws([key], CPU)
        one = torch.Size((1, *shape[1:]))
        assert torch.equal(drawn[0][place], alone.gaussian(one, torch.float32)[0])
        assert torch.equal(drawn[1][place], alone.dither(one, torch.float32)[0])


def test_products_made_without_gradients_serve_those_with_gradients():
    numerics, (a, b) = AnalogNumerics(SPECS["crossbar"]), operands((1, 9, 34, 14))
    with torch.inference_mode():
        first = numerics.matmul(a, b, 1)
    assert torch.equal(first, numerics.matmul(a, b, 1))


def test_a_specification_does_not_carry_its_hash_to_other_processes():
    """Hashes of strings differ from process to process."""
    spec = load_core("crossbar").analog(Phase.FORWARD)
    hash(spec)
    assert "_hash" in vars(spec)
    copy = pickle.loads(pickle.dumps(spec))
    assert "_hash" not in vars(copy)
    assert copy == spec
    assert hash(copy) == hash(spec)


def test_passes_compile_where_no_folder_takes_machine_code():
    def twice(x):
        return 2 * x

    twice.__code__ = twice.__code__.replace(co_filename="<no file>")  # numba has no folder for it
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(twice)
    assert compiled()(twice)(3) == 6


@pytest.mark.slow
def test_a_pass_is_compiled_anew_when_the_file_of_its_helpers_changes(tmp_path):
    """Numba itself looks at the file of the pass only."""
    helper = Path(draws.__file__).read_text() + "\n\n@compiled_helper\ndef step(x):\n    return x + {}\n"
    (tmp_path / "kernel.py").write_text(
        "from helpers import compiled, step\n\n\n@compiled()\ndef twice(x):\n    return 2 * step(x)\n"
    )
    command = [sys.executable, "-c", "import kernel; print(kernel.twice(1))"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    for added in (1, 2):
        (tmp_path / "helpers.py").write_text(helper.replace("x + {}", f"x + {added}"))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert int(done.stdout) == 2 * (1 + added)
