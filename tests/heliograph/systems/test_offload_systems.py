"""Hosts of named systems: every number of theirs counts, and a published rate lies where it should."""

import dataclasses

import pytest

from electronic.devices import REFERENCE_SYSTEMS, host_of, load_host
from electronic.gpu import gpu_names
from experiments.__main__ import main
from heliograph.catalogue import description
from heliograph.simulation import run_step
from heliograph.systems import build_system
from simulator.errors import HeliographError, WorkloadError
from simulator.parameter_tree import numeric_leaves, replace_at
from workloads.models.architecture import TransformerConfig
from workloads.models.config import load_model
from workloads.plan.parts import Place, Precision, Recompute
from workloads.plan.plan import Plan, parse_plan

MODEL = dataclasses.replace(load_model("llama-3-8b"), layers=2)
PLAN = Plan.of(dp=8, global_batch=8, sequence_length=1024, zero=2, optimizer_place=Place.HOST)


@pytest.mark.parametrize("name", ["gpu_packet", "photonic_packet"])
def test_a_plan_may_keep_its_optimizer_on_the_host_of_its_accelerator(name):
    system = build_system(name, accelerators=8)
    assert system.host.name == "dgx-h100"
    result = run_step(system, MODEL, PLAN)
    record = result.record()
    assert record["host_bytes"]["to_host"] == pytest.approx(4 * MODEL.parameters)
    assert record["host_bytes"]["from_host"] == pytest.approx(2 * MODEL.parameters)
    assert record["energy_by_component_j_per_token"]["host processors"] > 0
    plain = run_step(system, MODEL, PLAN.with_(optimizer_place=Place.DEVICE))
    assert "host processors" not in plain.record()["energy_by_component_j_per_token"]
    assert plain.record()["host_bytes"] == {}


def test_no_number_of_a_host_is_a_dead_knob():
    everything = {"zero": 3, "optimizer_place": Place.NVME, "parameter_place": Place.NVME}
    plans = (PLAN, PLAN.with_(**everything))
    # On one accelerator the link itself limits, on eight the links together.
    alone = PLAN.with_(dp=1, global_batch=1)
    system = build_system("gpu_packet", accelerators=8)
    single = build_system("gpu_packet", accelerators=1)

    def outputs(host):
        found = []
        for one, plan in ((system, plans[0]), (system, plans[1]), (single, alone)):
            try:
                changed = dataclasses.replace(one, host=fitted(host, one))
                metrics = run_step(changed, MODEL, plan).metrics
                found += [metrics.step_time_s, metrics.energy_j, changed.capital_usd()]
            except HeliographError as error:
                found.append(str(error))
        return found

    def fitted(host, one):
        shared = min(host.processors.accelerators, one.accelerators)
        return dataclasses.replace(host, processors=dataclasses.replace(host.processors, accelerators=shared))

    base = load_host("dgx-h100")
    before = outputs(base)
    dead = [
        path
        for path, value in numeric_leaves(base).items()
        if all(
            outputs(replace_at(base, path, type(value)(value * factor))) == before
            for factor in (0.5, 1e-4 if isinstance(value, float) else 0.25)
        )
    ]
    assert not dead


def test_every_accelerator_with_a_host_has_its_rows():
    assert set(REFERENCE_SYSTEMS) == set(gpu_names())
    for gpu, system in REFERENCE_SYSTEMS.items():
        name, host = system.host, host_of(gpu, 4096)
        assert host.name == name
        assert host.accelerators == load_host(name).accelerators
        shown = description(name)
        assert {one.path for one in shown} == set(numeric_leaves(host))
        assert "choice" not in {one.status for one in shown}
    assert host_of("h100", 1).accelerators == 1


def test_every_step_pays_for_its_servers_whatever_the_accelerator():
    """Two servers of eight: static power, fans and supplies on what stands in them, and a price."""
    for name in ("gpu_packet", "photonic_packet"):
        system = build_system(name, accelerators=16)
        result = run_step(system, MODEL, Plan.of(dp=16, global_batch=16, sequence_length=1024))
        energy, host = result.metrics.energy_by_component_j, system.host
        assert energy["host static"] == pytest.approx(16 * host.static_w * result.metrics.step_time_s)
        around = ("fans", "power supplies", "network static", "network transfers", "circuit changes")
        own = sum(joules for part, joules in energy.items() if part not in around)
        assert energy["fans"] == pytest.approx(host.chassis.fan_share * own)
        taken = own + energy["fans"] + energy["power supplies"]
        assert taken * host.chassis.supply_efficiency == pytest.approx(own + energy["fans"])
        bare = system.with_({"host.chassis.price_usd": 0.0})
        assert system.capital_usd() - bare.capital_usd() == pytest.approx(2 * host.chassis.price_usd)


def test_a_host_can_be_set_and_a_full_one_is_refused():
    slow = build_system("gpu_packet", accelerators=8, assignments=("host.link.total_bytes_per_s=1 GB/s",))
    assert slow.host.link.total_bytes_per_s == 1e9
    assert run_step(slow, MODEL, PLAN).metrics.step_time_s > 8 * 2 * MODEL.parameters / 8 / 1e9
    torus = run_step(build_system("gpu_packet", accelerators=8, gpu="tpu-v4"), MODEL, PLAN)
    assert torus.system.host.accelerators == 4
    large = load_model("llama-3.1-405b")
    plan = PLAN.with_(zero=3, parameter_place=Place.HOST, recompute=Recompute.FULL)
    with pytest.raises(WorkloadError, match="does not fit the host's memory: 8 ranks need"):
        run_step(build_system("gpu_packet", accelerators=8), large, plan)


def test_keys_of_offloading_reach_the_command_line(capsys):
    plan = "dp=2,zero=2,global_batch=2,sequence_length=256,optimizer_place=host,delayed_update=true"
    assert main(["step", "--system", "gpu_packet", "--model", "gpt2", "--plan", plan, "--json"]) in {
        0,
        None,
    }
    assert '"waiting for the host"' in capsys.readouterr().out
    assert parse_plan(plan).sharding.delayed_update


def test_10_billion_on_one_v100_run_at_the_published_rate():
    """40 TFLOP/s for 10 B on one V100 (arXiv:2101.06840, abstract). The batch is not given there: the rate
    lies between those of one sequence, whose passes are shorter than the update, and of as many as fit."""
    config = TransformerConfig(
        name="gpt-10b",
        layers=50,
        hidden=4096,
        heads=32,
        kv_heads=32,
        head_dim=128,
        ffn_hidden=16384,
        vocabulary=50257,
        max_sequence=1024,
        position_rows=1024,
    )
    plan = Plan.of(
        sequence_length=1024,
        precision=Precision.FP16,
        grad_bytes=2,
        zero=2,
        recompute=Recompute.FULL,
        optimizer_place=Place.HOST,
    )
    system = build_system("gpu_packet", accelerators=1, gpu="v100")

    def rate(batch):
        result = run_step(system, config, plan.with_(micro_batch=batch, global_batch=batch))
        return result.metrics.model_flop_utilisation * system.node().peak_flop_per_s

    assert rate(1) < 40e12 < rate(8)
    assert rate(4) == pytest.approx(40e12, rel=0.2)
