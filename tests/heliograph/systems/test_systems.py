import dataclasses
import math

import pytest

from heliograph.simulation import run_step, step_graph
from heliograph.systems import SYSTEMS, Basis, System, build_system
from heliograph.workload import plan_for
from optical.accelerator import proportionate_buffer_bytes
from optical.cores import load_core
from simulator.engine.compiled.step import StepRuns
from simulator.errors import BudgetError, HeliographError, ParameterError, WorkloadError
from simulator.fabric import CircuitPolicy
from simulator.operators import Elementwise, MatMul, Phase, Sequence
from simulator.parameter_tree import numeric_leaves, replace_at
from simulator.topology.scale_up import load_cables
from simulator.units import to_si
from workloads.models.config import load_model
from workloads.plan.plan import parse_plan, plan_text
from workloads.step.memory import memory_by_kind

MODEL = load_model("llama-3-8b")
PLAN = "tp=8,pp=2,dp=2,global_batch=16,sequence_length=2048"
N = 32


def system(name="photonic_ocs", *assignments, **options):
    return build_system(name, **({"accelerators": N} | options), assignments=assignments)


def full_load_w(one):
    """Return the power of an accelerator in light with its cores at full load and a memory that rests."""
    node, unit = one.node(), one.photonic
    return node.static_w - one.host.static_w + unit.peak_power_w - unit.static_w


def run(one, plan=PLAN):
    return run_step(one, MODEL, plan_for(MODEL, plan, accelerators=N, memory_bytes=math.inf))


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_named_system_runs_and_its_parts_add_up(name):
    result = run(system(name))
    record = result.record()
    assert sum(record["time_by_category_s"].values()) == pytest.approx(record["step_time_s"])
    assert sum(record["energy_by_component_j_per_token"].values()) == pytest.approx(
        record["energy_per_token_j"]
    )
    assert record["mean_power_w"] * record["step_time_s"] == pytest.approx(record["energy_j"])
    assert 0.0 < record["model_flop_utilisation"] < 1.0


def test_the_power_basis_never_exceeds_the_gpu():
    one = system("photonic_packet")
    more = dataclasses.replace(
        one, photonic=one.photonic.resized(one.photonic.cores + one.photonic.core.cluster)
    )
    assert full_load_w(one) <= one.gpu.chip.tdp_w < full_load_w(more)


LIMITED = {
    "gpu_packet:h100:bf16": 0.9,
    "gpu_packet:h100:fp8": 0.9,
    "gpu_packet:b200:fp8": 0.9,
    "photonic_packet:h100": 0.9,
    "photonic_packet:b200": 0.9,
    "photonic_packet:ring_bank": 0.5,
    "photonic_packet:pcm_crossbar": 0.5,
}
"""Share of the power limit that the busiest operator uses at least: cores that are loaded wait in between."""


def single_operators(operator):
    if isinstance(operator, Sequence):
        for item, _ in operator.items:
            yield from single_operators(item)
    elif isinstance(operator, MatMul | Elementwise):
        yield operator


@pytest.mark.parametrize("penalties", ["both", "none"])
@pytest.mark.parametrize("name", LIMITED)
def test_no_operator_of_a_step_draws_more_than_the_power_limit(name, penalties):
    one = system(name, f"penalties={penalties}")
    plan = plan_for(MODEL, "dp=32,global_batch=32", accelerators=N, memory_bytes=math.inf)
    node, graph = one.node(), step_graph(MODEL, one.planned(plan))
    drawn_w = node.static_w - one.host.static_w
    at_work_w = []
    for operator in {single for task in graph.tasks for single in single_operators(task.operator)}:
        cost = node.cost(operator)
        if cost.time_s > 0.0:  # what moves nothing is part of the kernel before it
            at_work_w.append(drawn_w + math.fsum(cost.energy_j.values()) / cost.time_s)
    assert max(at_work_w) <= one.gpu.chip.tdp_w * (1.0 + 1e-9)
    assert max(at_work_w) > LIMITED[name] * one.gpu.chip.tdp_w


def test_cores_that_exceed_the_power_limit_work_at_it():
    fitting = system("photonic_packet")
    product = MatMul(name="some", phase=Phase.FORWARD, batch=1, m=8192, k=8192, n=8192)
    times = {}
    for more in (1, 2):
        several = fitting.with_({"photonic.cores": more * fitting.photonic.cores, "penalties": "none"})
        node = several.node()
        cost = node.cost(product)
        times[more] = cost.time_s
    at_work_w = sum(cost.energy_j.values()) / (cost.time_s - several.vector.engine.launch_s)
    assert node.static_w - several.host.static_w + at_work_w == pytest.approx(several.gpu.chip.tdp_w)
    assert times[2] > 0.8 * times[1]
    free = dataclasses.replace(several, basis=Basis.COUNT).node().cost(product)
    assert free.time_s < 0.6 * times[1]
    assert free.energy_j == pytest.approx(dict(cost.energy_j))


def test_cores_whose_light_alone_reaches_the_power_limit_are_an_error():
    with pytest.raises(BudgetError, match="leaves nothing of the 700 W"):
        system("photonic_packet", "photonic.cores=4000").node()


def test_the_area_basis_never_exceeds_the_gpu():
    one = system("photonic_packet", basis="area")
    more = dataclasses.replace(
        one, photonic=one.photonic.resized(one.photonic.cores + one.photonic.core.cluster)
    )
    assert one.accelerator_area_m2() <= one.gpu.area_m2 < more.accelerator_area_m2()


def test_the_count_basis_is_the_published_chip():
    assert system("photonic_packet", basis="count").photonic.cores == 16


def test_a_named_number_of_cores_is_not_resized():
    assert system("photonic_packet", "photonic.cores=24").photonic.cores == 24


@pytest.mark.parametrize("basis", ["power", "area", "count"])
def test_as_many_cores_as_fit_are_the_same_system_when_they_are_set(basis):
    fitting = system("photonic_packet", basis=basis)
    chosen = system("photonic_packet", f"photonic.cores={fitting.photonic.cores}", basis=basis)
    assert chosen.photonic.sram_bytes == pytest.approx(fitting.photonic.sram_bytes, rel=1e-12)
    assert dataclasses.replace(chosen.photonic, sram_bytes=fitting.photonic.sram_bytes) == fitting.photonic
    fewer = chosen.with_({"photonic.cores": 2})
    assert fewer.photonic.sram_bytes == pytest.approx(
        2 * fitting.photonic.sram_bytes / fitting.photonic.cores, rel=1e-12
    )


@pytest.mark.parametrize(
    ("basis", "buffer", "taken", "given"),
    [
        ("power", "100 MB", full_load_w, lambda gpu: gpu.chip.tdp_w),
        ("area", "30 MB", System.accelerator_area_m2, lambda gpu: gpu.area_m2),
    ],
)
def test_a_buffer_that_is_set_stays_and_leaves_room_for_what_fits(basis, buffer, taken, given):
    one = system("photonic_packet", f"photonic.sram_bytes={buffer}", basis=basis)
    for found in (one, one.with_(laser_power_w="60.1 mW"), one.with_core(one.photonic.core)):
        assert found.photonic == dataclasses.replace(one.photonic, core=found.photonic.core)
        assert taken(found) <= given(one.gpu)
    assert one.photonic.sram_bytes == to_si("sram_bytes", float(buffer.split()[0]), "MB")
    assert one.photonic.cores < system("photonic_packet", basis=basis).photonic.cores
    more = dataclasses.replace(one, photonic=dataclasses.replace(one.photonic, cores=one.photonic.cores + 1))
    assert taken(more) > given(one.gpu)


def test_a_buffer_beyond_the_budget_leaves_no_room():
    with pytest.raises(ParameterError, match="photonic cores need"):
        system("photonic_packet", "photonic.sram_bytes=5 GB")


def test_light_shares_the_memory_of_the_gpu_it_replaces():
    one = system("photonic_packet", "gpu.memory.bandwidth_bytes_per_s=1e12")
    assert one.photonic.memory == one.vector.memory == one.gpu.memory
    assert one.gpu.memory.bandwidth_bytes_per_s == 1e12


def test_slower_memory_slows_both_kinds_of_accelerator():
    for name in ("gpu_packet", "photonic_packet"):
        slow = run(system(name, "gpu.memory.bandwidth_bytes_per_s=2e11"))
        assert slow.metrics.step_time_s > 1.3 * run(system(name)).metrics.step_time_s
        waits = [s for part, s in slow.metrics.time_by_category_s.items() if part.endswith("memory-bound")]
        assert sum(waits) > 0.2 * slow.metrics.step_time_s


def test_brighter_laser_costs_energy_and_buys_accuracy():
    one = system("photonic_packet:crossbar", "photonic.cores=16")
    power = one.photonic.core.laser_power_w
    bright = system("photonic_packet:crossbar", "photonic.cores=16", f"laser_power_w={2 * power}")
    assert run(bright).metrics.energy_j > run(one).metrics.energy_j
    assert bright.effective_bits() > one.effective_bits()
    assert bright.analog()[Phase.FORWARD].thermal_variance < one.analog()[Phase.FORWARD].thermal_variance


def test_faster_symbols_save_time_and_cost_accuracy():
    # Small layers wait for their host, and the buffer feeds hardly more than 5 GHz.
    chosen = ("photonic.cores=16", "penalties=none", "electronics.ports.macro_bytes=16 KiB")
    one = system("photonic_packet:crossbar", *chosen)
    fast = system("photonic_packet:crossbar", *chosen, "photonic.core.symbol_rate_hz=10 GHz")
    assert run(fast).metrics.step_time_s < run(one).metrics.step_time_s
    assert fast.effective_bits() < one.effective_bits()


def test_circuits_that_move_at_once_on_full_lanes_equal_packets():
    # One axis at a time needs a permutation, which both fabrics carry at the full rate of the card.
    plan = "tp=8,pp=1,dp=4,global_batch=16,sequence_length=2048"
    free = ("switch.switch_s=0", "switch.relock_s=0", "switch.control_s=0")
    optical = system("gpu_ocs", *free, "circuits=per-axis")
    packets = system("gpu_packet")
    bandwidth = {"gpu_ocs": optical.fabric.lanes * optical.fabric.lane_bytes_per_s}
    assert bandwidth["gpu_ocs"] == pytest.approx(packets.fabric.port_bytes_per_s)
    same = run(optical, plan).metrics.step_time_s
    # What is left is the latency of the packet switches: microseconds in a fifth of a second.
    assert same == pytest.approx(run(packets, plan).metrics.step_time_s, rel=5e-4)


def test_slow_switches_cost_time_or_stand_still():
    quick, slow = (
        run(system("gpu_ocs", f"switch.switch_s={time}", "circuits=per-axis")) for time in ("1 us", "1 s")
    )
    assert slow.metrics.step_time_s > quick.metrics.step_time_s
    assert run(system("gpu_ocs", "switch.switch_s=1 s")).circuits == CircuitPolicy.STATIC


def test_a_switch_too_lossy_is_an_error_that_names_it():
    with pytest.raises(Exception, match="insertion"):
        system("gpu_ocs", "switch.insertion_loss_db=40")


_UNCALIBRATED = ("photonic.core.chip.mismatch", "raw")
LIVE_WITH = {
    "fabric.optics.circulator_loss_db": ("fabric.optics.circulators", 1),
    "gpu.chip.attention_fill_s": ("gpu.chip.host_operator_s", 0.0),
    "photonic.core.chip.averages": ("photonic.core.chip.mismatch", "calibrated"),
    "photonic.core.chip.modulator_gain": _UNCALIBRATED,
    "photonic.core.chip.receiver_gain": _UNCALIBRATED,
    "photonic.core.chip_seed": _UNCALIBRATED,
    "photonic.core.chip.coupler.angle_error_rad": _UNCALIBRATED,
    "photonic.core.chip.grid.spacing_m": _UNCALIBRATED,
    "photonic.core.chip.grid.wavelength_m": _UNCALIBRATED,
    "photonic.core.chip.grid.dispersion": _UNCALIBRATED,
}
"""Numbers that count only where another one says that the part is there, or that no host hides it."""
HASHED = ("fabric.queue_pairs", "fabric.hash_seed", "fabric.switch.shipped_queue_pairs")
"""Numbers of packets that are hashed over spines, which these are not."""
OFFLOADS = (
    "host.link.",
    "host.processors.simd_flop_per_s",
    "host.ddr.capacity",
    "host.ddr.bandwidth",
    "host.ddr.efficiency",
    "host.ddr.turnaround",
    "host.ddr.energy",
    "host.storage.capacity",
    "host.storage.read",
    "host.storage.write",
    "host.storage.energy",
)
"""What only plans move that keep something on the host (`test_offload_systems` holds them alive)."""
NOT_COUNTED = {
    # What a photonic system knows of the GPU it replaces, beside the budget that sizes it.
    # The plan's messages between nodes are too long for the library's quickest protocol; within a node its
    # slowest hides behind the host.
    "photonic": (
        "gpu.chip.",
        "gpu.slowest_of",
        "fabric.scale_up.protocols.ll.",
        "fabric.scale_up.protocols.simple.hop_s",
        "photonic.electronics.link.",  # one die
        "photonic.electronics.die_yield.spares",  # of a single cluster
        "photonic.calibration_interval_s",  # a chip that is never calibrated
        *OFFLOADS,
        *HASHED,
    ),
    # The plan below computes in bf16, has no experts, sends too short messages in a node for the slowest
    # protocol, and the system has more accelerators than it asks for.
    "gpu": (
        "gpu.slowest_of",
        "fabric.scale_up.protocols.simple.hop_s",
        "gpu.chip.byte_",
        "gpu.chip.nibble_",
        "gpu.chip.single_",
        "gpu.chip.block_efficiency",
        "gpu.chip.experts_together",
        "gpu.chip.exponentials_per_cycle",  # heads of 128, as all rates of attention are told
        "gpu.chip.host_launch_s",
        "fabric.scale_up.protocols.ll.",
        *OFFLOADS,
        *HASHED,
    ),
}
PAID_BY_LIGHT = tuple(
    f"gpu.chip.{name}" for name in ("host_operator_s", "in_situ_efficiency", "clock_spread", "idle_w")
)
"""Penalties within a step, which a photonic accelerator has from the GPU that it replaces."""
OVER_NODES = (
    *(".chunk_bytes", ".tree_hop_s", ".network_bytes_per_s", ".post_s", ".tree_wait_s"),
    "ll128.network_hop_s",  # sends between nodes go by Simple
)
"""Count in collectives of groups with several ranks in each of several nodes, or on trees, of which the plan
has none (`tests/electronic/fabrics/test_pipelined_levels.py` and `test_collectives.py` hold them alive)."""


def _turning(name):
    """Return a system whose circuits, if it has any, turn."""
    circuits = ("circuits=per-axis",) if name.endswith("ocs") else ()
    return system(name + ":crossbar" * SYSTEMS[name].light, *circuits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["photonic_ocs", "gpu_packet"])
def test_no_parameter_of_a_system_is_a_dead_knob(name):
    """Each number moves time, energy, cost, memory, fibres or the analog record, or a nudge is refused."""
    base = _turning(name)
    plan = "tp=8,pp=2,dp=2,global_batch=8,sequence_length=1024"
    small = dataclasses.replace(MODEL, layers=2)

    def outputs(one):
        sized = one.sized() if one.photonic is not None and one.photonic.cores == base.photonic.cores else one
        result = run_step(sized, small, plan_for(small, plan, accelerators=N, memory_bytes=math.inf))
        record = result.record()
        keys = ("step_time_s", "energy_j", "capital_usd", "usd_per_million_tokens", "memory_capacity_bytes")
        keys += ("effective_bits", "dark_s", "accelerator_area_m2", "accelerator_peak_w", "photonic_cores")
        fibres = load_cables("panels").bill(one.fabric.bill())
        return [record[key] for key in keys], sized.analog(), fibres

    before = outputs(base)
    skipped = NOT_COUNTED["photonic" if base.photonic is not None else "gpu"]
    dead = []
    for path, value in numeric_leaves(base).items():
        if (path.startswith(skipped) and path not in PAID_BY_LIGHT) or path.endswith(OVER_NODES):
            continue
        moved = False
        owner = replace_at(base, *LIVE_WITH[path]) if path in LIVE_WITH else base
        reference = outputs(owner) if path in LIVE_WITH else before
        for factor in (1.25, 0.8, 100.0, 0.01):
            new = max(1, round(value * factor)) if isinstance(value, int) else value * factor
            if isinstance(value, float) and value == 0.0:
                new = 1.0
            try:
                moved = outputs(replace_at(owner, path, new)) != reference
            except HeliographError:
                moved = True
            if moved:
                break
        if not moved:
            dead.append(path)
    assert not dead, "\n".join(dead)


def test_another_core_gets_its_clusters_and_its_buffer():
    """Wider arrays have a buffer in proportion to their rate, and cores in clusters fill the budget."""
    system = build_system("photonic_packet", accelerators=8)
    wide = system.with_(rows=64, columns=64)
    for one in (wide, system.with_(symbol_rate_hz="5 GHz"), system.with_core(load_core("crossbar"))):
        unit = one.photonic
        assert unit.cores % unit.core.cluster == 0
        assert unit.sram_bytes == pytest.approx(proportionate_buffer_bytes(unit.core, unit.cores))
    assert wide.with_(sram_bytes="3 MB").photonic.sram_bytes == 3e6
    assert system.with_(sram_bytes="3 MB").with_(rows=64).photonic.sram_bytes == 3e6


def test_two_systems_have_every_parameter():
    every = {name: set(numeric_leaves(_turning(name))) for name in SYSTEMS}
    assert set.union(*every.values()) == every["photonic_ocs"] | every["gpu_packet"]


def test_memory_reported_is_that_of_the_fullest_stage():
    plan = plan_for(MODEL, PLAN, accelerators=N, memory_bytes=math.inf)
    totals = [sum(memory_by_kind(MODEL, plan, stage).values()) for stage in range(plan.axes.pp)]
    assert sum(run(system("gpu_packet")).memory_bytes.values()) == pytest.approx(max(totals))


def test_a_plan_reads_back_from_its_text():
    plan = plan_for(MODEL, PLAN + ",recompute=full,zero=0", accelerators=N, memory_bytes=math.inf)
    assert plan_for(MODEL, plan_text(plan), accelerators=N, memory_bytes=math.inf) == plan


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("photonic_pocket", {}, "did you mean 'photonic_packet'"),
        ("gpu_packet", {"gpu": "h10"}, "did you mean 'h100'"),
        ("gpu_packet", {"basis": "powr"}, "did you mean 'power'"),
        ("gpu_packet", {"accelerators": 0}, "at least 1"),
        ("photonic_ocs", {"assignments": ("laser.wall_plug_eficiency=1",)}, "wall_plug_efficiency"),
        ("photonic_ocs", {"assignments": ("laser.wall_plug_efficiency=-1",)}, "at most 1; got -1"),
        ("photonic_ocs", {"assignments": ("laser_power_w=nan",)}, "laser_power_w"),
        ("photonic_ocs", {"assignments": ("laser_power_w",)}, "laser_power_w"),
        ("nowhere/mine.toml", {}, "mine.toml"),
    ],
)
def test_bad_names_and_values_get_one_sentence(name, options, match):
    with pytest.raises(ParameterError, match=match) as caught:
        build_system(name, **options)
    assert "\n" not in str(caught.value)


def test_too_little_light_is_an_error_that_names_the_core():
    with pytest.raises(Exception, match="crossbar") as caught:
        system("photonic_packet:crossbar", "laser_power_w=1e-9")
    assert type(caught.value).__name__ == "LinkError"


def test_a_model_that_does_not_fit_says_by_how_much():
    big = load_model("llama-3-70b")
    plan = plan_for(big, "tp=2,pp=2,dp=8,global_batch=16", accelerators=N, memory_bytes=math.inf)
    with pytest.raises(WorkloadError, match=r"GiB"):
        run_step(system("gpu_packet"), big, plan)


def test_a_wrong_number_before_a_wrong_key_is_told_with_its_own_line_only(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "photonic_packet"\n[core]\nlaser_power_w = "30 mJ"\ncolums = 3\n')
    with pytest.raises(
        ParameterError, match=r"^mine\.toml:3: core\.laser_power_w: .* unit 'mJ' does not fit"
    ):
        build_system(str(path), accelerators=N)


def test_a_toml_file_is_a_system(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "photonic_ocs:ring_bank"\nbasis = "area"\n[photonic.core]\nsymbol_rate_hz = "10 GHz"\n'
    )
    one = build_system(str(path), accelerators=N)
    assert one.name == "mine"
    assert one.basis == "area"
    assert one.photonic.core.symbol_rate_hz == 1e10


def test_a_file_changes_numbers_of_a_gpu_that_it_may_name(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "gpu_packet"\n[gpu.memory]\ncapacity_bytes = "141 GB"\n')
    mine = build_system(str(path), accelerators=N)
    assert (mine.gpu.name, mine.gpu.memory.capacity_bytes) == ("h100", 141e9)
    path.write_text('base = "gpu_packet"\n[gpu]\npart = "b200"\n[gpu.chip]\ntdp_w = "700 W"\n')
    mine = build_system(str(path), accelerators=N)
    assert (mine.gpu.name, mine.gpu.chip.tdp_w) == ("b200", 700.0)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "empty"),
        ("[photonic]\ncores = 8\n", "base"),
        ('name = "x"\nbass = "gpu_packet"\n', "mine.toml:2: no key 'bass' .*did you mean 'base'"),
        ('base = "gpu_packet"\n[fabric]\nlines = 3\n', "lines"),
        ('base = "gpu_packet"\n[fabric]\noversubscription = true\n', "oversubscription"),
        ('base = "gpu_packet"\nbase = "gpu_ocs"\n', "mine.toml"),
    ],
)
def test_a_broken_toml_file_gets_one_sentence(tmp_path, text, match):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=match):
        build_system(str(path), accelerators=N)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'base = "photonic_oc"\n',
            "mine.toml:1: base: no system 'photonic_oc'; did you mean 'photonic_ocs'?",
        ),
        ('base = "photonic_ocs"\ngpu = "h2000"\n', "mine.toml:2: gpu: .* no accelerator 'h2000'"),
        (
            'base = "photonic_ocs"\n\nbasis = "volume"\n',
            "mine.toml:3: basis: no basis 'volume'; known bases: area, count, power",
        ),
        ('base = "photonic_ocs"\ncore = "crosbar"\n', "mine.toml:2: core: no core 'crosbar'"),
        (
            'base = "photonic_ocs"\n# light\n[photonic.core]\nsymbol_rate = 1e10\n',
            "mine.toml:4: no parameter 'photonic.core.symbol_rate'",
        ),
        (
            'base = "photonic_ocs:crossbar"\nphotonic.core.symbol_rate_hz = "10 mW"\n',
            "mine.toml:2: photonic.core.symbol_rate_hz: unit 'mW' does not fit",
        ),
        (
            'base = "photonic_ocs:crossbar"\n[photonic.core]\nsymbol_rate_hz = -1.0\n',
            "mine.toml:3: photonic.core.symbol_rate_hz: Crossbar .* must be above 0",
        ),
        (
            'base = "photonic_ocs:crossbar"\n[ photonic.core . laser ]\npart = "adc_survey_8b"\n',
            "mine.toml:3: photonic.core.laser: it does not take the adc",
        ),
        (
            'base = "gpu_packet"\nfabric = "fattree"\n',
            "mine.toml:2: fabric: no fabric 'fattree'; did you mean",
        ),
        ('base = "gpu_packet"\n[fabric]\nkind = "tours"\n', "mine.toml:3: fabric.kind: no fabric 'tours'"),
        (
            'base = "photonic_ocs:crossbar"\n[photonic.core]\nrows = "many"\n',
            "mine.toml:3: photonic.core.rows must be a number, with or without a unit; got 'many'",
        ),
        ('base = "photonic_ocs"\ngpu = "h100"\ngpu = "h200"\n', "mine.toml:3: key 'gpu' stands twice"),
        ('base = "photonic_ocs"\n[set]\nlaser_power_w = "5 mW"\n', "mine.toml:2: parameters stand at"),
        (
            'base = "gpu_packet"\n[gpu]\npart = "h1000"\n',
            "mine.toml:3: gpu: gpus.csv has no accelerator 'h1000'; did you mean 'h100'",
        ),
        (
            'base = "gpu_packet"\n[gpu.chip]\ntdp = 3\n',
            "mine.toml:3: no parameter 'gpu.chip.tdp'; did you mean 'gpu.chip.tdp_w'",
        ),
        ('base = "gpu_packet"\n[fabric]\nlines = [3]\n', "mine.toml:3: key 'fabric.lines' must be a number"),
    ],
)
def test_an_error_of_a_file_names_its_line_and_key(tmp_path, text, said):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=f"^{said}") as caught:
        build_system(str(path), accelerators=N)
    assert "\n" not in str(caught.value)


def test_a_core_is_chosen_by_option_by_name_and_in_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "photonic_packet"\ncore = "ring_bank"\n')
    chosen = [
        system("photonic_packet", core="ring_bank"),
        system("photonic_packet:ring_bank"),
        system(str(path)),
    ]
    assert len({one.photonic for one in chosen}) == 1
    assert [one.name for one in chosen] == ["photonic_packet", "photonic_packet:ring_bank", "mine"]


@pytest.mark.parametrize(
    ("name", "core", "message"),
    [
        ("photonic_packet", "crosbar", "did you mean 'crossbar'"),
        ("gpu_packet", "crosbar", "did you mean 'crossbar'"),
        ("photonic_packet:crosbar", "crossbar", "did you mean 'crossbar'"),
        ("gpu_packet:crossbar", "crossbar", "gpu_packet has no photonic core"),
    ],
)
def test_a_core_that_is_not_there_is_an_error(name, core, message):
    with pytest.raises(ParameterError, match=message):
        system(name, core=core)


@pytest.mark.slow
def test_uneven_exchanges_of_many_experts_turn_in_the_loop():
    # 64 ranks of experts have circuits for four peers at a time.
    plan = "pp=4,dp=64,ep=64,global_batch=64,sequence_length=512,expert_affinity=3"
    system = build_system("gpu_ocs", accelerators=256)
    runs = StepRuns(step_graph(load_model("deepseek-v3"), parse_plan(plan)))
    trace = runs.run(system.node(), system.fabric.with_policy(CircuitPolicy.PER_AXIS))
    assert not runs.why_reference
    assert trace.reconfigurations > 400
