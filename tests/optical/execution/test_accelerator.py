"""Products on an accelerator: the road of torch's own operations, with all that it needs on one device."""

import contextlib
import dataclasses

import pytest
import torch

from optical.cores import CORES, load_core
from optical.execution import AnalogSpec, OperandTransforms
from optical.execution.matmul import RowBlocks, multiply_in_blocks
from simulator.operators import Phase
from tests.optical.execution.accelerator import accelerator

BLOCKS = RowBlocks(key=7, place=(1, 2), first=0, size=16, sums_rows=False)
TRANSFORMS = OperandTransforms(rotation_width=16, electronic_share=0.05)
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
RESIDUES = ("residue", "phase_residue")


@pytest.fixture(params=["as if", pytest.param("cuda", marks=CUDA)])
def device(request):
    with contextlib.nullcontext(torch.device("cuda")) if request.param == "cuda" else accelerator() as found:
        yield found


def operands(dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in ((1, 48, 128), (1, 128, 32)))


def error(found, exact):
    return float((found.double() - exact).square().mean() / exact.square().mean())


def error_on(device, spec, blocks=BLOCKS, dtype=torch.float32):
    """Return the power of the errors over that of the product, on the CPU and on a device."""
    a, b = operands(dtype)
    exact = a.double() @ b.double()
    away = multiply_in_blocks(a.to(device), b.to(device), spec, blocks)
    assert away.device.type == device.type
    assert away.dtype == dtype
    return error(multiply_in_blocks(a, b, spec, blocks), exact), error(away.cpu(), exact)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("phase", Phase)
def test_every_core_errs_as_much_on_an_accelerator(core, phase, device):
    """Draws differ there: over 1,536 outputs the errors scatter by 5 %; misread sums are few and large."""
    blocks = dataclasses.replace(BLOCKS, sums_rows=phase is Phase.GRAD_WEIGHT)
    here, there = error_on(device, load_core(core).analog(phase), blocks)
    assert there == pytest.approx(here, rel=0.5 if core in RESIDUES else 0.2)


@pytest.mark.parametrize("core", [one for one in CORES if one not in RESIDUES])
def test_so_does_every_sample_of_its_own(core, device):
    blocks = dataclasses.replace(BLOCKS, exact_tiles=True)
    here, there = error_on(device, load_core(core).analog(Phase.FORWARD), blocks)
    assert there == pytest.approx(here, rel=0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rescues_and_types_are_the_same_there(dtype, device):
    spec = dataclasses.replace(load_core("homodyne").analog(Phase.FORWARD), transforms=TRANSFORMS)
    here, there = error_on(device, spec, dtype=dtype)
    assert there == pytest.approx(here, rel=0.2)


def test_without_draws_an_accelerator_tells_the_cpu_s_result(device):
    """Rounding of operands draws nothing, so that what remains is the order of sums."""
    still = dataclasses.replace(AnalogSpec.ideal(), dac_bits=6, analog_length=16)
    a, b = operands()
    here = multiply_in_blocks(a, b, still, BLOCKS)
    there = multiply_in_blocks(a.to(device), b.to(device), still, BLOCKS).cpu()
    torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-3)


def test_what_stays_on_the_cpu_is_an_error_there():
    """The stand-in refuses what the device refuses, or no test above could fail."""
    with accelerator() as device:
        away = torch.ones(4, device=device)
        with pytest.raises(RuntimeError, match="is on the CPU"):
            away + torch.ones(4)
        with pytest.raises(RuntimeError, match="numpy"):
            away.numpy()
        assert (away * 2.0).device.type == device.type
        assert (away.cpu() + torch.ones(4)).sum() == 8.0
