import math

import pytest
import torch

from heliograph.errors import ParameterError
from workloads.gpt import ProductName, Products
from workloads.probes import (
    EXACT_PRODUCTS,
    GaussianProducts,
    MeasuredProducts,
    RepeatedProducts,
    ScaledProducts,
    measured,
    only,
    repeated,
)

GENERATOR = torch.Generator().manual_seed(3)
A, B = torch.randn(2, 96, 64, generator=GENERATOR), torch.randn(2, 64, 128, generator=GENERATOR)
EXACT = torch.bmm(A, B)
OUTPUTS = EXACT.numel()


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


def test_meter_tells_gain_and_noise_apart():
    class Wrong:
        def matmul(self, a, b, key):
            return 0.9 * GaussianProducts(0.01).matmul(a, b, key)

    probe = MeasuredProducts(Wrong())
    probe.matmul(A, B, 1)
    assert probe.meter.gain == pytest.approx(0.9, abs=5.0 * 0.1 / math.sqrt(OUTPUTS))
    assert probe.meter.nsr == pytest.approx(0.81 * 0.01, rel=0.05)


def test_mirrored_core_errs_the_other_way():
    plain, mirrored = (MeasuredProducts(ScaledProducts(0.9), sign=sign).matmul(A, B, 1) for sign in (1, -1))
    assert torch.allclose(plain, 0.9 * EXACT)
    assert torch.allclose(mirrored, 1.1 * EXACT, atol=1e-4)


def test_noise_of_a_mean_falls_with_its_passes():
    four = nsr_of(RepeatedProducts(GaussianProducts(0.04), 4).matmul(A, B, 1))
    assert four == pytest.approx(0.01, rel=5.0 * math.sqrt(2.0 / OUTPUTS))
    assert repeated(ScaledProducts(1.0), 1) == ScaledProducts(1.0)


def test_only_one_product_is_noisy_and_all_are_measured():
    noisy = only(ProductName.HEAD, ScaledProducts(2.0))
    head, other = (noisy.run(name, A, B, key=0, weight=False) for name in (ProductName.HEAD, ProductName.UP))
    assert torch.allclose(head, 2.0 * EXACT)
    assert torch.equal(other, EXACT)
    products, meters = measured(ScaledProducts(1.5))
    for name in ProductName:
        products.run(name, A, B, key=0, weight=False)
        assert meters[name].gain == pytest.approx(1.5)
        assert meters[name].nsr == pytest.approx(0.0, abs=1e-9)


def test_silence_is_exact_and_nonsense_is_refused():
    silent = Products.same(GaussianProducts(0.0)).run(ProductName.UP, A, B, key=0, weight=False)
    assert torch.equal(silent, EXACT)
    assert torch.equal(EXACT_PRODUCTS.run(ProductName.UP, A, B, key=0, weight=False), EXACT)
    with pytest.raises(ParameterError, match="nsr"):
        GaussianProducts(-1.0)
    with pytest.raises(ParameterError, match="passes"):
        RepeatedProducts(ScaledProducts(1.0), 0)
