"""Products that run on the GPU's matrix units beside the light: price, precision, power and refusals."""

import dataclasses
import math

import pytest

from heliograph.accuracy.precision import delivered, divided, products_of
from heliograph.simulation import lifetime_steps, lit, run_step, step_graph
from heliograph.systems import build_system
from heliograph.systems.system import HybridUnit, Kind, LightShares, PhaseShares, kind_of
from heliograph.workload import plan_for
from simulator.errors import BudgetError, HeliographError, ParameterError
from simulator.operators import MatMul, Phase, Role
from workloads.models.config import load_model
from workloads.plan.parts import Precision

MODEL = dataclasses.replace(load_model("gpt2"), layers=2)
PLAN = plan_for(
    MODEL, "tp=1,pp=1,dp=2,global_batch=4,sequence_length=1024", accelerators=2, memory_bytes=math.inf
)
PRODUCT = MatMul(
    name="down",
    role=Role.MLP_DOWN,
    phase=Phase.FORWARD,
    batch=1,
    m=1024,
    k=4096,
    n=1024,
    element_bytes=2,
)


def _system(*assignments, **options):
    return build_system("photonic_packet", accelerators=2, assignments=assignments, **options)


def test_all_in_light_is_the_photonic_unit():
    assert _system("light.down.forward=1").node() == _system().node()


def test_a_share_of_the_layers_costs_as_much_of_both():
    half, none = (_system(f"light.down.forward={share}").node() for share in (0.5, 0))
    light, electronic = _system().node().cost(PRODUCT), none.cost(PRODUCT)
    mixed = half.cost(PRODUCT)
    assert mixed.time_s == pytest.approx((light.time_s + electronic.time_s) / 2)
    total = (math.fsum(light.energy_j.values()) + math.fsum(electronic.energy_j.values())) / 2
    assert math.fsum(mixed.energy_j.values()) == pytest.approx(total)
    assert electronic.time_s != light.time_s


def test_other_products_and_phases_stay_in_light():
    node, plain = _system("light.down.forward=0").node(), _system().node()
    for role, phase in ((Role.MLP_UP, Phase.FORWARD), (Role.MLP_DOWN, Phase.GRAD_INPUT)):
        other = dataclasses.replace(PRODUCT, role=role, phase=phase)
        assert node.cost(other) == plain.cost(other)


def test_electronics_have_the_power_that_light_leaves():
    node, gpu = _system("light.down.forward=0").node(), _system().gpu
    unit = node.units[0]
    assert isinstance(unit, HybridUnit)
    taken_w = node.static_w - node.memory.static_w - node.host.static_w - gpu.chip.idle_w
    assert unit.electronics.chip.tdp_w == pytest.approx(gpu.chip.tdp_w - max(0.0, taken_w))
    for basis, said in (("power", "to work; set fewer cores"), ("count", "to its matrix units")):
        with pytest.raises(BudgetError, match=f"leaves nothing .* {said}"):
            _system("light.down.forward=0", "photonic.cores=4000", basis=basis).node()


def test_a_hybrid_has_area_and_price_of_both():
    plain, hybrid = _system(), _system("light.down.forward=0")
    area_m2 = plain.accelerator_area_m2() - plain.vector.area_m2 + plain.gpu.area_m2
    assert hybrid.accelerator_area_m2() == pytest.approx(area_m2)
    assert hybrid.accelerator_usd() == pytest.approx(plain.photonic.price_usd + plain.gpu.price_usd)
    assert hybrid.accelerator_peak_w() == max(plain.accelerator_peak_w(), plain.gpu.chip.tdp_w)


def test_precision_is_that_of_both_units():
    products = products_of(step_graph(MODEL, PLAN))
    plain, hybrid = (delivered(_system(*more), products) for more in ((), ("light.attention.forward=0",)))
    assert hybrid.snr_db > plain.snr_db
    macs = [math.fsum(one.macs for one, _ in some.parts) for some in (plain, hybrid)]
    assert macs[0] == pytest.approx(macs[1])


def test_products_beside_light_have_the_format_of_the_plan():
    system = _system("lighting.target=none", *(f"light.{kind}.forward=0" for kind in Kind))
    wide, narrow = (
        run_step(system, MODEL, PLAN.with_(precision=one)) for one in (Precision.BF16, Precision.FP8)
    )
    assert narrow.snr_db < wide.snr_db


def test_a_step_runs():
    result = run_step(_system("lighting.target=none", "light.head.forward=0.5"), MODEL, PLAN)
    assert result.record()["accelerator"] == "photonic + h100"


def test_a_laser_is_sized_for_what_runs_in_light():
    nothing = [
        f"light.{kind}.{phase}=0"
        for kind in Kind
        for phase in ("forward", "grad_input", "grad_weight")
        if (kind, phase) != (Kind.ATTENTION, "grad_weight")
    ]
    graph = step_graph(MODEL, PLAN)
    system = _system(*nothing)
    assert lit(system, graph) == system
    in_light, others = divided(products_of(graph), _system("light.attention.forward=0").light)
    assert {one.name for one in others} == {"attention.scores", "attention.values"}
    assert not any(one.phase is Phase.FORWARD for one in in_light if one.name in {two.name for two in others})


def test_cells_wear_only_by_what_runs_in_light():
    system, graph = build_system("photonic_packet:pcm_crossbar", accelerators=2), step_graph(MODEL, PLAN)
    halves = LightShares(**{str(kind): PhaseShares(forward=0.5, grad_input=0.5) for kind in Kind})
    whole = lifetime_steps(system.photonic, graph)
    assert whole < lifetime_steps(system.photonic, graph, halves) < math.inf


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        (Role.ATTENTION_QKV, Kind.QKV),
        (Role.ATTENTION_SCORES, Kind.ATTENTION),
        (Role.ATTENTION_VALUES, Kind.ATTENTION),
        (Role.ATTENTION_OUTPUT, Kind.OUTPUT),
        (Role.MLP_GATE_UP, Kind.UP),
        (Role.MLP_DOWN, Kind.DOWN),
        (Role.HEAD_LOGITS, Kind.HEAD),
    ],
)
def test_products_have_a_kind(role, kind):
    assert kind_of(role) is kind


@pytest.mark.parametrize("value", ["1.5", "-0.1"])
def test_a_share_lies_between_nothing_and_all(value):
    with pytest.raises(ParameterError, match="forward"):
        _system(f"light.head.forward={value}")


def test_a_system_without_light_has_no_shares():
    with pytest.raises(HeliographError, match=r"light\.head\.forward"):
        build_system("gpu_packet", accelerators=2, assignments=("light.head.forward=0",))
