"""Products with few photons: counted, and in a homodyne core lit for them."""

import dataclasses
import math

import pytest
import torch

from optical.cores.homodyne import LitCore, default_homodyne, lit_for, shot_limited
from optical.execution.numerics import AnalogNumerics, CountingNumerics, HomodyneNumerics, Signs
from simulator.errors import LinkError, ParameterError
from simulator.operators import Phase
from tests.bounds import standard_quantum_limit


def operands(m=64, k=100, n=32, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(1, m, k, generator=generator), torch.randn(1, k, n, generator=generator)


@pytest.mark.parametrize("signs", Signs)
def test_many_photons_give_the_exact_product(signs):
    a, b = operands()
    found = CountingNumerics(photons_per_mac=1e8, signs=signs).matmul(a.double(), b.double(), 1)
    assert torch.allclose(found, a.double() @ b.double(), atol=2e-2)


def test_an_output_has_the_variance_of_its_own_count():
    """Poisson: g counts per unit, so a rate y has the variance y / g; 20,000 draws, 1 % sigma."""
    a, b = operands(m=1, n=1)
    plus, minus = (a @ b.clamp(min=0.0)).item(), (a @ (-b).clamp(min=0.0)).item()
    rows = a.expand(1, 20_000, 100)
    found = CountingNumerics(photons_per_mac=2.0, signs=Signs.PAIR).matmul(rows, b, 5).double()
    gain = 200.0 / (plus + minus)
    assert found.var().item() == pytest.approx((plus + minus) / gain, rel=0.04)
    assert found.mean().item() == pytest.approx(
        plus - minus, abs=4.0 * math.sqrt((plus + minus) / gain / 2e4)
    )


def test_counts_are_whole_and_as_many_as_asked_for():
    """Photons are averaged over all outputs and divided by the products of one: Wang et al. (2022)."""
    a, b = operands()
    b = b.abs()
    found = CountingNumerics(photons_per_mac=3.0, signs=Signs.PAIR).matmul(a, b, 5)
    counts = found * (300.0 / (a @ b).mean())
    assert torch.allclose(counts, counts.round(), atol=1e-2)
    assert counts.mean().item() == pytest.approx(300.0, rel=4.0 / math.sqrt(300.0 * counts.numel()))


@pytest.mark.parametrize("signs", Signs)
@pytest.mark.parametrize("times", [2, 8])
def test_a_longer_vector_needs_fewer_photons_per_multiplication(signs, times):
    """Wang et al. (2022), Fig. 1c: the whole sum's photons count, so n times the length needs 1/n of them."""
    a, b = operands()
    short = CountingNumerics(photons_per_mac=4.0, signs=signs).matmul(a, b, 9)
    numerics = CountingNumerics(photons_per_mac=4.0 / times, signs=signs)
    longer = numerics.matmul(a.repeat(1, 1, times), b.repeat(1, times, 1), 9)
    different = (longer / times - short).abs() > 1e-3
    assert different.float().mean() < 0.02  # a rate's last bit may move a draw
    exact = a @ b
    unscaled = CountingNumerics(photons_per_mac=4.0 / times, signs=signs).matmul(a, b, 9)
    ratio = (unscaled - exact).square().mean() / (short - exact).square().mean()
    assert ratio.item() == pytest.approx(times, rel=0.15)


def test_shifted_weights_cost_photons():
    """The shift carries light that says nothing: both schemes at equal photons, the pair errs less."""
    a, b = operands()
    errors = {
        signs: (CountingNumerics(photons_per_mac=5.0, signs=signs).matmul(a, b, 2) - a @ b).square().mean()
        for signs in Signs
    }
    assert errors[Signs.PAIR] < errors[Signs.OFFSET]


@pytest.mark.parametrize("signs", Signs)
def test_operands_of_either_sign_come_out_in_the_mean(signs):
    """Four quadrants by two detectors; 4,000 draws of each of 64 outputs, tolerance 4.5 standard errors."""
    a, b = operands(m=8, k=20, n=8)
    a = a - 0.5
    drawn = CountingNumerics(photons_per_mac=5.0, signs=signs).matmul(
        a.repeat(1, 4000, 1).double(), b.double(), 3
    )
    drawn = drawn.reshape(4000, 8, 8)
    wrong = (drawn.mean(0) - (a @ b)[0].double()) / (drawn.std(0) / 4000**0.5)
    assert wrong.abs().max() < 4.5
    assert drawn.std(0).min() > 0.0


def test_the_pair_counts_every_product_by_its_sign():
    """Poisson: the variance is the rate of both detectors, sum |x w| / g; 20,000 draws, 1 % sigma."""
    a, b = operands(m=1, n=1)
    a = a - 0.5
    rows = a.expand(1, 20_000, 100)
    found = CountingNumerics(photons_per_mac=2.0, signs=Signs.PAIR).matmul(rows, b, 5).double()
    rate = (a[0, 0] * b[0, :, 0]).abs().sum().item()
    assert found.var().item() == pytest.approx(rate * rate / 200.0, rel=0.04)


def test_same_key_same_counts():
    a, b = operands()
    numerics = CountingNumerics(photons_per_mac=1.0)
    assert torch.equal(numerics.matmul(a, b, 7), numerics.matmul(a, b, 7))
    assert not torch.equal(numerics.matmul(a, b, 7), numerics.matmul(a, b, 6))
    assert torch.isfinite(numerics.matmul(torch.zeros_like(a), b, 7)).all()


def test_what_light_cannot_be_is_refused():
    with pytest.raises(ParameterError, match="photons_per_mac"):
        CountingNumerics(photons_per_mac=0.0)
    with pytest.raises(ParameterError, match="mean_square"):
        lit_for(default_homodyne(), 1.0, mean_square=0.0)


@pytest.mark.parametrize("power_w", [1e-6, 1.0])
def test_the_laser_is_solved_for_the_photons(power_w):
    core = dataclasses.replace(default_homodyne(), laser_power_w=power_w)
    lit = lit_for(core, 7.0, mean_square=0.2)
    assert lit.photoelectrons_per_mac(0.2) == pytest.approx(7.0, rel=1e-12)
    assert lit.laser_power_w == pytest.approx(lit_for(default_homodyne(), 7.0, mean_square=0.2).laser_power_w)


def test_shot_noise_alone_is_the_standard_quantum_limit():
    """Hamerly et al., PRX 9, 021032 (2019): |a| |x| / sqrt(N n); equal norms, 40,000 draws, 0.35 % sigma."""
    depth, photons = 256, 2.0
    a = torch.where(torch.rand(1, 1, depth, generator=torch.Generator().manual_seed(1)) < 0.5, -1.0, 1.0)
    rows, columns = a.expand(1, 200, depth).contiguous(), a.mT.expand(1, depth, 200).contiguous()
    lit = LitCore(core=default_homodyne(), photons_per_mac=photons, only_shot_noise=True)
    found = HomodyneNumerics(lit=lit).matmul(rows, columns, 4).double() - depth
    limit = standard_quantum_limit(depth**0.5, depth**0.5, depth=depth, photons_per_mac=photons)
    assert found.std().item() == pytest.approx(limit, rel=0.015)


def test_what_is_built_errs_more_than_its_shot_noise():
    a, b = operands()
    core = default_homodyne()
    error = {
        only: (
            HomodyneNumerics(lit=LitCore(core=core, photons_per_mac=50.0, only_shot_noise=only)).matmul(
                a, b, 3
            )
            - a @ b
        )
        .square()
        .mean()
        for only in (True, False)
    }
    assert error[True] < error[False]
    mean_square = 0.3
    lit = lit_for(core, 50.0, mean_square=mean_square)
    built, limit = lit.analog(Phase.FORWARD), shot_limited(lit)
    assert limit.shot_variance < built.shot_variance  # leakage and residue take some of the swing
    assert limit.shot_variance == pytest.approx(built.shot_variance, rel=0.1)
    assert limit.thermal_variance == limit.rin_variance == 0.0
    assert not torch.equal(AnalogNumerics(limit).matmul(a, b, 3), a @ b)


def test_a_built_core_refuses_too_little_and_too_much_light():
    a, b = operands()
    for photons, reason in ((1e-3, "does not close"), (1e7, "overflow|waveguides absorb it")):
        lit = LitCore(core=default_homodyne(), photons_per_mac=photons, only_shot_noise=False)
        with pytest.raises(LinkError, match=reason):
            HomodyneNumerics(lit=lit).matmul(a, b, 0)
