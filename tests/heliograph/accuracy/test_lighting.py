"""Light of photonic accelerators, sized for the precision of a number format over the products of a step."""

import json

import pytest

import heliograph as hg
from electronic.formats import FORMATS
from experiments.__main__ import main
from heliograph.accuracy.precision import delivered, of_core, of_format, products_of, target_db
from heliograph.systems import Lighting, TargetFormat, build_system
from heliograph.tables import precision_notes
from simulator.errors import LinkError, ParameterError
from simulator.operands.statistics import OperandKind
from simulator.operators import SCORES, VALUES, Phase, Role

MODEL = "llama-3-8b"
PLAN = "tp=8,dp=2,global_batch=16,sequence_length=2048"
N = 16
CORE = "photonic_packet:block_float"


def system(**changes):
    """Return a system of sixteen cores, whatever power they take, for Gaussian operands."""
    return build_system(CORE, accelerators=N, basis="count").with_({"operands": "gaussian"} | changes)


def run(**changes):
    return hg.simulate(system(**changes), MODEL, PLAN)


@pytest.fixture(scope="module")
def lit():
    return run(**{"lighting.target": "nvfp4"})


def test_targets_are_the_number_formats():
    assert {one.value for one in TargetFormat} == set(FORMATS)


def test_light_is_sized_for_fp8_on_captured_operands_unless_somebody_says_otherwise():
    assert system().lighting == Lighting(target=TargetFormat.FP8)
    assert build_system(CORE, accelerators=N).operands is OperandKind.CAPTURED
    assert build_system("gpu_packet", accelerators=N).lighting is None


def test_a_photonic_system_delivers_what_its_target_does(lit):
    products = products_of(lit.graph)
    assert lit.snr_db == pytest.approx(target_db("nvfp4", products, OperandKind.GAUSSIAN), abs=0.02)
    assert delivered(lit.system, products, OperandKind.GAUSSIAN).snr_db == lit.snr_db
    assert lit.record()["precision_target"] == "nvfp4"
    assert lit.record()["laser_line_w"] == lit.system.laser_power_w > 0.0


def test_a_gpu_in_fp8_delivers_a_little_more_than_fp8_in_all_products(lit):
    gpu = build_system("gpu_packet:fp8", accelerators=N, assignments=("operands=gaussian",))
    gpu = hg.simulate(gpu, MODEL, PLAN)  # attention and head are in bf16
    assert 0.0 < gpu.snr_db - target_db("fp8", products_of(lit.graph), OperandKind.GAUSSIAN) < 2.0
    assert gpu.record()["laser_line_w"] is None


def test_more_precision_takes_more_light_energy_and_room():
    dim, middle, bright = (run(**{"lighting.target_db": decibels}) for decibels in (14.0, 19.0, 24.0))
    assert [one.snr_db for one in (dim, middle, bright)] == pytest.approx([14.0, 19.0, 24.0], abs=0.02)
    powers = [one.system.laser_power_w for one in (dim, middle, bright)]
    assert powers == sorted(powers)
    fitting = [
        build_system(
            "photonic_packet:homodyne",
            accelerators=N,
            assignments=(f"lighting.target_db={decibels}", "operands=gaussian"),
        )
        for decibels in (14.0, 24.0)
    ]
    few, many = (hg.simulate(one, MODEL, PLAN).system.photonic.cores for one in reversed(fitting))
    assert few < many
    assert dim.energy_by_part_j["laser"] < bright.energy_by_part_j["laser"]


def test_the_default_light_delivers_fp8_on_captured_operands():
    found = hg.simulate(build_system("photonic_packet", accelerators=N), MODEL, PLAN)
    assert found.record()["operands"] == "captured"
    wanted = target_db("fp8", products_of(found.graph), OperandKind.CAPTURED)
    assert wanted == target_db("fp8", products_of(found.graph))
    assert found.snr_db == pytest.approx(wanted, abs=0.02)


def test_no_target_leaves_the_laser_as_it_stands():
    found = run(**{"lighting.target": "none"})
    assert found.system.laser_power_w == system().laser_power_w
    assert found.record()["precision_target"] == "power as it stands"


def test_a_laser_power_that_is_set_wins_and_is_said():
    found = run(laser_power_w="20 mW")
    assert found.system.laser_power_w == 0.02
    assert found.system.lighting is None
    assert precision_notes([found.record()])[-1] == "Light: power as set, 20.0 mW a laser or line."
    with pytest.raises(ParameterError, match=r"sizes the laser, and .* sets its power"):
        run(laser_power_w="20 mW", target="int8")
    with pytest.raises(ParameterError, match="its laser power is set"):
        found.system.with_({"lighting.target": "fp8"})


def test_a_target_that_no_light_reaches_is_told_with_what_can_be_had():
    with pytest.raises(LinkError, match=r"cannot deliver 60.0 dB .* dB are the most"):
        run(**{"lighting.target_db": 60.0})
    beyond = system(**{"lighting.target_db": 60.0})
    found = hg.compare(["gpu_packet", beyond], MODEL, PLAN)
    assert [one.system.name for one in found.results] == ["gpu_packet"]
    assert "cannot deliver 60.0 dB" in found.refused[CORE]


def test_harder_operands_need_more_light(lit):
    uniform = run(**{"lighting.target": "nvfp4", "operands": "uniform"})
    assert uniform.record()["operands"] == "uniform"
    assert uniform.system.laser_power_w != lit.system.laser_power_w
    assert uniform.snr_db == pytest.approx(
        target_db("nvfp4", products_of(uniform.graph), uniform.system.operands), abs=0.02
    )


def test_a_sweep_of_another_number_solves_the_light_anew():
    axes = {"responsivity_a_per_w": [0.8, 1.0], "target_db": [18.0]}
    grid = hg.sweep(system(), axes, model=MODEL, plan=PLAN)
    assert [row["snr_db"] for row in grid.rows()] == pytest.approx([18.0, 18.0], abs=0.02)
    assert grid.rows()[0]["laser_line_w"] > grid.rows()[1]["laser_line_w"]
    power = hg.sweep(system(), {"laser_power_w": [0.01, 0.05]}, model=MODEL, plan=PLAN)
    assert power.rows()[0]["snr_db"] < power.rows()[1]["snr_db"]


def test_a_target_is_an_option_of_the_command_line(capsys):
    asked = ["step", "--system", CORE, "--basis", "count", "--set", "operands=gaussian"]
    asked += ["--model", MODEL, "--plan", PLAN, "--json"]
    found = {}
    for target in ("22", "none"):
        assert main([*asked, "--precision-target", target]) == 0
        found[target] = json.loads(capsys.readouterr().out)
    assert found["22"]["snr_db"] == pytest.approx(22.0, abs=0.02)
    assert found["22"]["precision_target"] == "22 dB"
    assert found["none"]["precision_target"] == "power as it stands"
    wrong = ["step", "--model", MODEL, "--plan", PLAN, "--precision-target"]
    assert main([*wrong, "fp9", "--system", CORE]) == 2
    assert "did you mean 'fp8'" in capsys.readouterr().err
    assert main([*wrong, "fp8", "--system", "gpu_packet"]) == 2
    assert "it has no light" in capsys.readouterr().err


def test_fp32_has_the_precision_of_the_units_whose_rate_it_has():
    plan = "dp=8,global_batch=8,sequence_length=512"
    rounded, whole = (hg.simulate(f"gpu_packet:{gpu}:fp32", "gpt2", plan) for gpu in ("h100", "v100"))
    assert rounded.snr_db == pytest.approx(72.0, abs=2.0)  # tf32: 10 bits behind the point
    assert whole.snr_db > 140.0
    assert (rounded.effective_bits, whole.effective_bits) == (11.0, 24.0)


@pytest.mark.parametrize("name", ["gpu_packet", "photonic_packet"])
def test_operands_that_are_kept_in_one_byte_take_precision_from_backward_passes(name):
    """Of three products forward stays, one operand of the weight's gradient is rounded."""
    plain, kept, again, whole = (
        hg.simulate(build_system(name, accelerators=N), MODEL, PLAN + more)
        for more in (
            "",
            ",kept_activations=fp8",
            ",kept_activations=fp8,recompute_norms=true",
            ",kept_activations=fp8,recompute=full",
        )
    )
    assert kept.snr_db < again.snr_db < plain.snr_db
    told = {cause for _, one in whole.precision.parts for cause in one.noise}
    assert "rounding of kept operands" not in told, "blocks are computed again from what is in two bytes"
    before = dict(plain.precision.parts)
    for product, one in kept.precision.parts:
        told = one.noise.get("rounding of kept operands", 0.0)
        assert one.total == pytest.approx(before[product].total + told)
        assert (told > 0.0) == (
            product.phase is not Phase.FORWARD
            and product.role is not Role.HEAD_LOGITS
            and (product.phase is Phase.GRAD_WEIGHT or product.role in SCORES | VALUES)
        )


def test_light_reads_operands_as_the_plan_stores_them():
    """Noise of the core and of the format add; attention and head stay in two bytes."""
    stored = hg.simulate(build_system("photonic_packet", accelerators=N), MODEL, f"{PLAN},precision=fp8")
    products, operands = [product for product, _ in stored.precision.parts], stored.system.operands
    alone = of_core(stored.system.photonic.core, products, operands)
    for (product, one), (_, core) in zip(stored.precision.parts, alone.parts, strict=True):
        narrow = of_format(FORMATS["fp8"], [product], operands).total.noise["rounding of operands"]
        assert one.total == pytest.approx(core.total + (narrow if product.element_bytes < 2 else 0.0))
    assert alone.snr_db - 4.0 < stored.snr_db < alone.snr_db - 2.0


@pytest.mark.parametrize(
    ("model", "more", "rounded", "exact"),
    [
        ("llama-3-8b", "", {"attention.qkv", "mlp.gate_up", "mlp.down"}, set()),
        ("llama-3-8b", ",recompute_norms=true", {"mlp.down"}, {"attention.qkv", "mlp.gate_up"}),
        ("mixtral-8x7b", ",recompute_norms=true", {"mlp.gate_up", "mlp.down"}, {"attention.qkv"}),
        ("deepseek-v2-lite", "", {"attention.latents"}, {"attention.keys_values"}),
    ],
)
def test_operands_are_rounded_where_memory_counts_one_byte(model, more, rounded, exact):
    """Routed experts keep copies of their own, and latents stay in two bytes (`workloads.step.memory`)."""
    plan = f"tp=8,dp=2,ep=1,zero=1,global_batch=16,sequence_length=1024,kept_activations=fp8{more}"
    found = hg.simulate(build_system("gpu_packet", accelerators=N), model, plan)
    told = {
        product.name: "rounding of kept operands" in one.noise
        for product, one in found.precision.parts
        if product.phase is Phase.GRAD_WEIGHT
    }
    assert all(told[name] for name in rounded)
    assert not any(told[name] for name in exact)
