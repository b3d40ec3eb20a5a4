"""Penalties within a step: one law, charged to GPUs, to photonic accelerators, to both or to neither."""

import dataclasses
import math

import pytest

from heliograph.simulation import StepResult, run_step
from heliograph.systems import System, build_system
from heliograph.workload import model, plan_for
from simulator.amounts import Matrices
from simulator.interfaces import Bound
from simulator.node import NO_PENALTIES, Penalties, StepPenalties, library_calls
from simulator.operators import Elementwise, Held, MatMul, Phase

PRODUCT = MatMul(name="up", phase=Phase.FORWARD, batch=1, m=4096, k=4096, n=4096, held=Held.B)
FUSED = dataclasses.replace(PRODUCT, held=Held.NONE, on_chip=Matrices.C)
EXPERTS = dataclasses.replace(PRODUCT, batch=8)


def step_of(system: System) -> StepResult:
    """Return a small step on a system."""
    config = dataclasses.replace(model("llama-3-8b"), layers=2)
    text = "tp=8,pp=1,dp=2,global_batch=8,sequence_length=2048"
    return run_step(system, config, plan_for(config, text, accelerators=16, memory_bytes=math.inf))


def test_nothing_is_paid_without_penalties():
    assert NO_PENALTIES.lag == 1.0
    assert NO_PENALTIES.in_situ_s(2.0, PRODUCT) == 2.0
    assert NO_PENALTIES.issue_s(8) == 0.0


def test_the_slowest_of_more_lags_further():
    lags = [StepPenalties(clock_spread=0.015, slowest_of=n).lag for n in (1, 8, 1024)]
    assert lags == sorted(lags)
    assert lags[0] == pytest.approx(1.0)
    assert lags[-1] == pytest.approx(1.0 + 0.015 * 3.24, rel=2e-3)  # largest of 1,024 normal draws


def test_fused_attention_keeps_its_rate_and_is_called_once():
    paid = StepPenalties(in_situ_efficiency=0.5, host_operator_s=1.0, host_launch_s=0.25)
    assert paid.in_situ_s(1.0, PRODUCT) == 2.0
    assert paid.in_situ_s(1.0, FUSED) == 1.0
    later = dataclasses.replace(FUSED, on_chip=Matrices.A)
    assert [library_calls(one) for one in (PRODUCT, FUSED, later, EXPERTS)] == [1, 1, 0, 8]
    assert [paid.issue_s(calls) for calls in (0, 1, 8)] == [0.0, 1.0, 2.75]


def test_experts_are_cast_and_hooked_one_by_one():
    """Beside each expert's product stands the cast of its operand, or the buffer and hook of its gradient."""
    narrow = dataclasses.replace(EXPERTS, element_bytes=1)
    summed = dataclasses.replace(EXPERTS, phase=Phase.GRAD_WEIGHT, held=Held.NONE)
    assert [library_calls(one) for one in (EXPERTS, narrow, summed)] == [8, 16, 16]
    alone = [dataclasses.replace(one, batch=1) for one in (EXPERTS, narrow, summed)]
    assert [library_calls(one) for one in alone] == [1, 1, 1]


@pytest.mark.parametrize("name", ["gpu_packet", "photonic_packet"])
def test_penalties_cost_time_and_energy(name):
    found = {
        one: step_of(build_system(name, accelerators=16, assignments=[f"penalties={one}"]))
        for one in Penalties
    }
    none, gpu, both = (found[one] for one in Penalties)
    light = name.startswith("photonic")
    assert none.step_time_s < both.step_time_s
    assert none.energy_j < both.energy_j
    charged = none if light else both  # what only GPUs pay leaves light as it is, and GPUs as if both paid
    assert gpu.step_time_s == pytest.approx(charged.step_time_s)
    assert gpu.energy_j == pytest.approx(charged.energy_j)


def test_light_pays_what_its_gpu_pays():
    system = build_system("photonic_packet", accelerators=64)
    photonic, vector = system.node().units
    gpu = build_system("gpu_packet", accelerators=64).node().units[0]
    for name in (
        "host_operator_s",
        "host_launch_s",
        "in_situ_efficiency",
        "collective_share",
        "clock_spread",
        "slowest_of",
    ):
        assert getattr(photonic.penalties, name) == getattr(gpu.penalties, name)
        assert getattr(vector.penalties, name) == getattr(gpu.penalties, name)
    assert photonic.cost(PRODUCT).host_s == gpu.cost(PRODUCT).host_s > 0.0
    shares = [
        build_system(one, accelerators=64).node().collective_share for one in ("photonic_ocs", "gpu_ocs")
    ]
    assert shares[0] == shares[1] > 0.0
    idle_w = system.node().static_by_part_w()["idle"]
    assert idle_w + vector.static_w == pytest.approx(gpu.static_w)


@pytest.mark.parametrize("penalties", list(Penalties))
def test_products_in_light_start_as_work_of_the_lanes_beside_them_does(penalties):
    at_once, late = (
        build_system(
            "photonic_packet",
            accelerators=64,
            assignments=[f"penalties={penalties}", f"vector.engine.launch_s={text}"],
        ).node()
        for text in ("0 us", "2 us")
    )
    later = dataclasses.replace(FUSED, on_chip=Matrices.A)
    tiny = dataclasses.replace(PRODUCT, m=8, k=8, n=8)
    for one, start_s in ((PRODUCT, 2e-6), (FUSED, 2e-6), (later, 0.0), (tiny, 2e-6), (EXPERTS, 2e-6)):
        times_s = [node.cost(one).time_s for node in (at_once, late)]
        assert times_s[1] - times_s[0] == pytest.approx(start_s, rel=1e-9, abs=1e-15)
    assert late.cost(tiny).bound is Bound.LAUNCH
    assert late.cost(PRODUCT).bound is at_once.cost(PRODUCT).bound is not Bound.LAUNCH
    work = Elementwise(name="norm", phase=Phase.FORWARD, flops=1e3, read_bytes=1e3, written_bytes=1e3)
    assert late.cost(work).time_s - at_once.cost(work).time_s == pytest.approx(2e-6, rel=1e-9)


def test_a_slower_host_slows_light_too():
    usual, slow = (
        step_of(build_system("photonic_packet", accelerators=16, assignments=[f"host_operator_s={text}"]))
        for text in ("75 us", "5 ms")
    )
    assert slow.step_time_s > 2.0 * usual.step_time_s


def test_idle_power_counts_against_the_budget():
    free, paying = (
        build_system("photonic_packet", accelerators=8, assignments=[f"penalties={one}", "idle_w=150"])
        for one in ("none", "both")
    )
    assert paying.photonic.cores < free.photonic.cores
