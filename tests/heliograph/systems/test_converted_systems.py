import pytest
import torch

import heliograph as hg
from heliograph.systems import build_system
from optical.conversion import NoiseKey, ProductSpecs, convert
from simulator.errors import ParameterError


def test_a_model_runs_on_the_cores_of_a_named_system():
    model = torch.nn.Linear(64, 8)
    system = build_system("photonic_packet", accelerators=8).with_({"lighting.target": "none"})
    by_system, by_unit, by_core, by_specs = (
        convert(model, hardware, model_key=NoiseKey(seed=1))
        for hardware in (
            system,
            system.photonic,
            system.photonic.core,
            ProductSpecs.of(system.photonic.core.analog),
        )
    )
    x = torch.randn(16, 64)
    assert not torch.equal(by_system(x), model(x))
    assert torch.equal(by_system(x), by_unit(x))
    assert torch.equal(by_system(x), by_core(x))
    assert torch.equal(by_system(x), by_specs(x))


def test_less_laser_power_moves_outputs_further():
    model, errors = torch.nn.Linear(64, 64), []
    x = torch.randn(256, 64)
    for power in ("0.5 mW", "50 mW"):
        system = build_system("photonic_packet", accelerators=8, assignments=[f"laser_power_w={power}"])
        noisy = convert(model, system, model_key=NoiseKey(seed=1))
        errors.append((noisy(x) - model(x)).square().mean())
    assert errors[0] > 1.1 * errors[1]


def test_a_system_without_photonics_is_refused():
    with pytest.raises(ParameterError, match="'gpu_packet' has no photonic core"):
        convert(torch.nn.Linear(2, 2), build_system("gpu_packet", accelerators=8))


def test_a_laser_that_a_step_sizes_is_not_taken_before():
    layer, system = torch.nn.Linear(64, 64), build_system("photonic_packet", accelerators=8)
    with pytest.raises(ParameterError, match="is sized for fp8 when a step is run; hand in"):
        convert(layer, system)
    result = hg.simulate(system, "gpt2", "dp=8,global_batch=8")
    errors, x = [], torch.randn(512, 64)
    for one in (result.system, system.with_({"lighting.target": "none"})):
        noisy = convert(layer, one, model_key=NoiseKey(seed=1))
        errors.append(float((noisy(x) - layer(x)).detach().square().mean()))
    assert errors[0] < errors[1]
    with pytest.raises(ParameterError, match="is sized for fp8"):  # which is changed, and sized anew
        convert(layer, result.system.with_({"host.chassis.price_usd": 1.0}))
