import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from electronic.numerics import Float8Numerics
from optical.execution import AnalogSpec, Scale
from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import OperandTransforms, Residues, misread_shifts
from simulator.errors import ParameterError, WorkloadError
from simulator.interfaces import Numerics
from workloads.training.gpt import Corpus, Gpt, GptConfig, ProductName, Products, TrainingConfig, validate
from workloads.training.probes import (
    EXACT_PRODUCTS,
    ErrorClass,
    GaussianProducts,
    MeasuredProducts,
    MirroredProducts,
    MisreadProducts,
    ModelledErrors,
    RepeatedProducts,
    Scaled,
    gain_response,
    only,
    place,
    probe,
    repeated,
    scaling_of,
    sites,
)

GENERATOR = torch.Generator().manual_seed(3)
A, B = torch.randn(2, 96, 64, generator=GENERATOR), torch.randn(2, 64, 128, generator=GENERATOR)
EXACT = torch.bmm(A, B)
OUTPUTS = EXACT.numel()


@dataclass(frozen=True)
class ScaledProducts:
    """Exact products times a gain: what an error in common does to them."""

    gain: float
    """Dimensionless; 1 changes nothing."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the scaled product, shape [B, M, N]; nothing is random."""
        del key
        return torch.bmm(a_BMK, b_BKN).mul_(self.gain)


def nsr_of(c):
    return float((c - EXACT).square().sum() / EXACT.square().sum())


@pytest.mark.parametrize("uneven", [False, True])
def test_probe_has_the_noise_that_it_says(uneven):
    """The mean square of n Gaussians has the relative standard error sqrt(2/n); uneven ones have fewer."""
    error = math.sqrt((2.0 if not uneven else 6.0) / OUTPUTS)
    assert nsr_of(GaussianProducts(0.01, uneven=uneven).matmul(A, B, 5)) == pytest.approx(
        0.01, rel=5.0 * error
    )


def test_mirror_image_of_a_draw_cancels_it():
    both = [GaussianProducts(0.04, sign, uneven=True).matmul(A, B, 5) for sign in (1, -1)]
    assert torch.allclose(sum(both) / 2.0, EXACT, atol=1e-4)
    assert nsr_of(both[0]) > 0.03


def test_uneven_noise_follows_the_full_scales_of_rows():
    loud = A.clone()
    loud[:, 0] *= 30.0
    error = (
        (GaussianProducts(0.01, uneven=True).matmul(loud, B, 5) - torch.bmm(loud, B)).square().mean((0, 2))
    )
    assert error[0] > 200.0 * error[1:].mean()
    even = (GaussianProducts(0.01).matmul(loud, B, 5) - torch.bmm(loud, B)).square().mean((0, 2))
    assert even[0] == pytest.approx(float(even[1:].mean()), rel=0.5)


def test_gaussian_errors_have_the_mean_and_the_noise_that_were_measured():
    scales = Scaled.by_row(A, B).outputs
    limit = 2.0 * float((EXACT / scales).abs().mean()) * scales

    class Clipped:
        def matmul(self, a_BMK, b_BKN, key):
            return GaussianProducts(0.01).matmul(a_BMK, b_BKN, key).clamp(-limit, limit)

    core = MeasuredProducts(Clipped())
    error = core.matmul(A, B, 5) - EXACT
    transfer, gain = core.meter.transfer, core.meter.gain
    assert gain < 0.99
    assert 0.0 < transfer.explained < float(error.square().sum() / EXACT.square().sum())
    found = ModelledErrors.of(core.meter.nsr, gain, transfer).matmul(A, B, 7) - EXACT
    power = [float(one.square().sum()) for one in (found, error)]
    assert power[0] == pytest.approx(power[1], rel=0.1)
    loud = EXACT.abs() > 1.25 * limit
    means = [float((one * EXACT.sign())[loud].mean()) for one in (found, error)]
    assert means[1] < 0.0
    assert means[0] == pytest.approx(means[1], rel=0.15)  # bins are a quarter of an octave wide


@pytest.mark.parametrize("scale", [Scale.ROW, Scale.BLOCK])
def test_errors_go_with_the_full_scales_that_a_core_rotates_to(scale):
    """A row with one loud element errs as its norm says once rotated, not as that element does.

    Half of the rows have one element, half are level; each half is held to six standard errors of its mean.
    """
    spec = dataclasses.replace(
        AnalogSpec.ideal(),
        analog_length=32,
        scale=scale,
        thermal_variance=1e-3,
        transforms=OperandTransforms(rotation_width=64),
    )
    peaked = torch.nn.functional.one_hot(torch.arange(48) % 64, 64).float().expand(2, -1, -1)
    a = torch.cat((peaked, torch.full((2, 48, 64), 1.0 / 64.0)), 1)
    exact, core = torch.bmm(a, B), MeasuredProducts(AnalogNumerics(spec))
    error = core.matmul(a, B, 5) - exact
    found = {}
    for name, scaling in (("core", scaling_of(core.numerics)), ("rows", Scaled.by_row)):
        modelled = ModelledErrors(core.meter.nsr, scaling=scaling).matmul(a, B, 7) - exact
        found[name] = (modelled.square().mean((0, 2)) / error.square().mean((0, 2))).unflatten(0, (2, 48))
    limit = 6.0 * math.sqrt(4.0 / (2 * 48 * 128))
    assert found["core"].mean(1).tolist() == pytest.approx([1.0, 1.0], abs=limit + 0.02)
    assert found["rows"].mean(1)[1] < 0.1  # level rows, of which the largest element tells next to nothing


@pytest.mark.parametrize("transforms", [None, OperandTransforms(electronic_share=0.1, rotation_width=64)])
@pytest.mark.parametrize("scale", list(Scale))
def test_operands_that_enter_a_core_fill_their_scales(transforms, scale):
    """The largest element of what shares a scale is that scale; what is left out is few channels' product."""
    spec = dataclasses.replace(AnalogSpec.ideal(), analog_length=16, scale=scale, transforms=transforms)
    scaled = scaling_of(AnalogNumerics(spec))(A, B)
    a_BMK, scale_BMK = torch.broadcast_tensors(scaled.a_BMK, scaled.a_scale)
    assert bool((a_BMK.abs() <= scale_BMK).all())
    filled = (a_BMK.abs() == scale_BMK).sum(2)
    least = {Scale.TENSOR: 0, Scale.ROW: 1, Scale.BLOCK: -(-a_BMK.shape[2] // 16)}[scale]
    assert int(filled.min()) == least
    left = EXACT - torch.bmm(scaled.a_BMK, scaled.b_BKN)
    assert a_BMK.shape[2] == A.shape[2]  # channels that electronics multiplies are rotated as zeros
    electronic = 0 if transforms is None else math.ceil(transforms.electronic_share * A.shape[2])
    assert int(torch.linalg.matrix_rank(left[0], atol=1e-3)) == electronic


def test_errors_of_eight_bits_are_at_most_half_a_step():
    numerics = Float8Numerics()
    for x, rounded, step in zip(
        (A, B), numerics.set_operands(A, B, 1), numerics.full_scales(A, B), strict=True
    ):
        assert bool(((rounded - x).abs() <= 0.5001 * step).all())
        assert float((rounded - x).square().sum() / step.square().sum()) == pytest.approx(1 / 12, rel=0.05)


def test_misread_samples_are_those_of_a_core():
    """Drawn from the law of shifts, not sample by sample: as many wrong outputs, their power, and their sign.

    Each is held to five standard errors of its number of jumps.
    """
    residues = Residues(moduli=(15, 16, 17), sigmas=(0.0, 0.12, 0.16))
    spec = dataclasses.replace(
        AnalogSpec.ideal(), dac_bits=5.0, analog_length=8, scale=Scale.BLOCK, residues=residues
    )
    core = AnalogNumerics(spec)
    set_a, set_b = core.set_operands(A, B, 3)
    sizes, chances = misread_shifts(residues)
    law = MisreadProducts(
        length=8,
        mantissa=15,
        numbers=residues.product,
        shifts=tuple(sizes[sizes > 0.0].tolist()),
        chances=tuple(chances[sizes > 0.0].tolist()),
    )
    told = []
    for found in (core.matmul(A, B, 3), law.matmul(set_a, set_b, 7)):
        error = found - torch.bmm(set_a, set_b)
        wrong = error.abs() > 0.5
        told.append((float(wrong.sum()), float(error.square().mean()), float((error * EXACT).mean())))
    jumps = 8.0 * residues.wrong_sample * OUTPUTS
    assert told[0][0] > 0.8 * jumps
    assert told[1][:2] == pytest.approx(told[0][:2], rel=5.0 * math.sqrt(2.0 / jumps))
    assert told[0][2] < 0.0
    assert told[1][2] == pytest.approx(told[0][2], rel=0.5)


def test_where_no_sample_is_misread_products_are_exact():
    law = MisreadProducts(length=8, mantissa=15, numbers=4080, shifts=(1920.0,), chances=(1e-12,))
    assert torch.equal(law.matmul(A, B, 7), EXACT)


def test_silent_errors_leave_products_exact():
    quiet = ModelledErrors(dict.fromkeys(ErrorClass, 0.0)).matmul(A, B, 5)
    assert torch.equal(quiet, EXACT)


def test_meter_tells_gain_and_noise_apart():
    class Wrong:
        def matmul(self, a, b, key):
            return 0.9 * GaussianProducts(0.01).matmul(a, b, key)

    core = MeasuredProducts(Wrong())
    core.matmul(A, B, 1)
    assert core.meter.gain == pytest.approx(0.9, abs=5.0 * 0.1 / math.sqrt(OUTPUTS))
    assert core.meter.nsr[ErrorClass.OUTPUT] == pytest.approx(0.81 * 0.01, rel=0.05)
    assert core.meter.nsr[ErrorClass.FIRST] == core.meter.nsr[ErrorClass.SECOND] == 0.0


def test_mirrored_core_errs_the_other_way():
    core = MeasuredProducts(ScaledProducts(0.9))
    mirrored = MirroredProducts(core.errors)
    assert torch.allclose(core.matmul(A, B, 1), 0.9 * EXACT)
    assert torch.allclose(mirrored.matmul(A, B, 1), 1.1 * EXACT, atol=1e-4)
    assert torch.allclose(mirrored.matmul(3.0 * A, B, 1), 3.3 * EXACT, atol=1e-3)
    with pytest.raises(WorkloadError, match="key 2"):
        mirrored.matmul(A, B, 2)


def test_mirror_image_of_rounding_is_not_rounded_anew():
    """Rounding is no function of a key: operands moved by half a step err otherwise; an image must not."""
    spec = dataclasses.replace(AnalogSpec.ideal(), dac_bits=5.0, scale=Scale.ROW)
    core = MeasuredProducts(AnalogNumerics(spec))
    error = core.matmul(A, B, 1) - EXACT
    moved = A + 0.03 * torch.randn(A.shape, generator=torch.Generator().manual_seed(4))
    image = MirroredProducts(core.errors).matmul(moved, B, 1) - torch.bmm(moved, B)
    anew = AnalogNumerics(spec).matmul(moved, B, 1) - torch.bmm(moved, B)
    power = error.square().sum()
    assert float((image * error).sum() / power) == pytest.approx(-1.0, abs=1e-2)
    assert float((anew * error).sum() / power) < 0.9


def test_noise_of_a_mean_falls_with_its_passes():
    four = nsr_of(RepeatedProducts(GaussianProducts(0.04), 4).matmul(A, B, 1))
    assert four == pytest.approx(0.01, rel=5.0 * math.sqrt(2.0 / OUTPUTS))
    assert repeated(ScaledProducts(1.0), 1) == ScaledProducts(1.0)


def test_only_one_product_is_noisy():
    noisy = only(ProductName.HEAD, ScaledProducts(2.0))
    head, other = (noisy.run(name, A, B, key=0, weight=False) for name in (ProductName.HEAD, ProductName.UP))
    assert torch.allclose(head, 2.0 * EXACT)
    assert torch.equal(other, EXACT)


def errors_of(error_class, sign=1):
    return probe(error_class, 0.01, sign, uneven=True).matmul(A, B, 5) - EXACT


@pytest.mark.parametrize("error_class", ErrorClass)
def test_errors_of_a_class_lie_in_the_space_of_its_operand(error_class):
    """Errors on A are (A' - A) B, so their rank is K; those on B too, in the other space (linear algebra)."""
    error = errors_of(error_class)
    power = error.square().sum()
    in_rows = error - error @ torch.linalg.pinv(B) @ B
    in_columns = error - A @ torch.linalg.pinv(A) @ error
    shares = {
        ErrorClass.FIRST: float(in_rows.square().sum() / power),
        ErrorClass.SECOND: float(in_columns.square().sum() / power),
    }
    for one, share in shares.items():
        assert (share < 1e-6) == (one is error_class)
    assert nsr_of(EXACT + error) == pytest.approx(0.01, rel=0.06)
    assert torch.allclose(error, -errors_of(error_class, -1), atol=1e-4)


def test_meter_tells_the_classes_of_a_core_apart():
    """`AnalogSpec`: a loaded element errs by `load_variance`, an output by `thermal_variance` a sample."""
    spec = dataclasses.replace(AnalogSpec.ideal(), load_variance=1e-4, thermal_variance=1e-3)
    tall = torch.randn(1, 400, 64, generator=torch.Generator().manual_seed(8))
    wide = torch.randn(1, 64, 100, generator=torch.Generator().manual_seed(9))
    core = MeasuredProducts(AnalogNumerics(spec))
    core.matmul(tall, wide, 1)
    found, exact = core.meter.nsr, torch.bmm(tall, wide)
    scale_a, scale_b = tall.abs().amax(2, keepdim=True), wide.abs().amax(1, keepdim=True)
    held = 1e-4 * float(tall.square().sum() * scale_b.square().sum() / exact.square().sum())
    white = 1e-3 * 64 * float((scale_a * scale_b).square().sum() / exact.square().sum())
    assert found[ErrorClass.SECOND] == pytest.approx(held, rel=5.0 * math.sqrt(2.0 / wide.numel()))
    assert found[ErrorClass.OUTPUT] == pytest.approx(white, rel=5.0 * math.sqrt(4.0 / exact.numel()))
    assert found[ErrorClass.FIRST] == pytest.approx(0.0, abs=1e-9)
    turned = MeasuredProducts(AnalogNumerics(spec))
    turned.matmul(wide.mT, tall.mT, 1)
    assert turned.meter.nsr[ErrorClass.FIRST] == pytest.approx(held, rel=5.0 * math.sqrt(2.0 / wide.numel()))
    assert turned.meter.nsr[ErrorClass.SECOND] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("scale", [Scale.ROW, Scale.BLOCK])
def test_operands_that_a_core_tells_are_those_it_multiplies(scale):
    spec = dataclasses.replace(AnalogSpec.ideal(), dac_bits=5.0, analog_length=16, scale=scale)
    core = AnalogNumerics(spec)
    set_a, set_b = core.set_operands(A, B, 3)
    torch.testing.assert_close(torch.bmm(set_a, set_b), core.matmul(A, B, 3), rtol=1e-4, atol=1e-3)
    assert not torch.allclose(set_a, A, atol=1e-3)


def small_model():
    config = GptConfig(layers=2, width=16, heads=2, context=8)
    text = np.random.default_rng(4).integers(0, 256, 4000).astype(np.uint8)
    corpus = Corpus(name="noise", train=text, validation=text, sha256="")
    model = Gpt(config, EXACT_PRODUCTS, 3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4.0)
    return model, TrainingConfig(validation_windows=6, batch=4), corpus


def test_gains_of_two_products_act_together_as_the_derivatives_say():
    """Taylor's theorem, second order, against executed gains at two sites at once."""
    model, training, corpus = small_model()
    response = gain_response(model, training, corpus)
    place(model, {})
    clean = validate(model, training, corpus)
    step, pair = 0.02, ("values.0", "projection.0")

    def rise(sign):
        place(model, dict.fromkeys(pair, ScaledProducts(1.0 + sign * step)))
        return validate(model, training, corpus) - clean

    first = sum(response.first[name] for name in pair)
    second = sum(response.second[one][other] for one in pair for other in pair)
    assert (rise(1) - rise(-1)) / (2.0 * step) == pytest.approx(first, rel=0.01, abs=1e-4)
    assert (rise(1) + rise(-1)) / step**2 == pytest.approx(second, rel=0.05)
    assert abs(response.second[pair[0]][pair[1]]) > 0.1 * abs(second)


def test_a_site_is_one_product_of_one_layer():
    model, training, corpus = small_model()
    exact = validate(model, training, corpus)
    assert len(sites(model.config)) == 13
    losses = {}
    for name in sites(model.config):
        place(model, {name: ScaledProducts(1.1)})
        losses[name] = validate(model, training, corpus)
    assert len(set(losses.values())) >= 11
    assert losses["up.0"] != losses["up.1"]
    assert exact not in losses.values()
    place(model, {})
    assert validate(model, training, corpus) == exact


def test_exact_is_torch_bit_for_bit_in_any_precision():
    exact = EXACT_PRODUCTS.forward
    assert isinstance(exact, Numerics)
    assert torch.equal(exact.matmul(A, B, 1), torch.bmm(A, B))
    assert exact.matmul(A.double(), B.double(), 1).dtype == torch.float64


def test_silence_is_exact_and_nonsense_is_refused():
    silent = Products.same(GaussianProducts(0.0)).run(ProductName.UP, A, B, key=0, weight=False)
    assert torch.equal(silent, EXACT)
    assert torch.equal(EXACT_PRODUCTS.run(ProductName.UP, A, B, key=0, weight=False), EXACT)
    with pytest.raises(ParameterError, match="nsr"):
        GaussianProducts(-1.0)
    with pytest.raises(ParameterError, match="passes"):
        RepeatedProducts(ScaledProducts(1.0), 0)
