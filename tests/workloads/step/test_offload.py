"""Optimizer and parameters on the host or its disks: what moves, what stays, what it takes."""

import math
from dataclasses import replace
from functools import partial

import pytest

from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.node import Chassis, Host, HostLink, Memory, Processors, Storage
from simulator.operators import HostWork, Lane, Phase, Sequence, StepGraph, Task, Transfer
from simulator.results import HOST, Stream, summarise
from tests.bounds import alone_s, critical_path_s, serial_sum_s
from tests.workloads.ideal import EVEN, NODE, PLAN, Star, ideal_s, product_flops
from workloads.models.architecture import TransformerConfig
from workloads.plan.parts import Place, Recompute
from workloads.plan.plan import Plan, parse_plan
from workloads.plan.rules import check
from workloads.step.memory import check_fits, check_host_fits, host_bytes, memory_by_kind
from workloads.step.step import build_step

PSI = EVEN.parameters
UPDATE_BYTES = (12 + 2) + (12 + 2)
"""Bytes per parameter that Adam reads (states, gradient) and writes (states, parameter) on the host."""
OFFLOAD = PLAN.with_(global_batch=1, zero=2, grad_bytes=2, optimizer_place=Place.HOST)
INFINITY = OFFLOAD.with_(zero=3, parameter_place=Place.HOST)


def a_host(accelerators=1, link=1e30, ddr=1e30, disk=1e30, capacity=1e15):
    return Host(
        processors=Processors(
            accelerators=accelerators, simd_flop_per_s=1e30, active_w=0.0, idle_w=0.0, busy_share=0.0
        ),
        ddr=Memory(
            capacity_bytes=capacity,
            bandwidth_bytes_per_s=ddr,
            efficiency=1.0,
            energy_j_per_byte=0.0,
            static_w=0.0,
        ),
        link=HostLink(
            bandwidth_bytes_per_s=link,
            efficiency=1.0,
            total_bytes_per_s=1e30,
            latency_s=0.0,
            energy_j_per_bit=0.0,
        ),
        storage=Storage(
            capacity_bytes=capacity,
            read_bytes_per_s=disk,
            write_bytes_per_s=disk,
            energy_j_per_byte=0.0,
            static_w=0.0,
        ),
        chassis=Chassis(fan_share=0.0, supply_efficiency=1.0, price_usd=0.0),
    )


def simulation(plan, host=None, port=1e30, config=EVEN):
    node = replace(NODE, host=host or a_host())
    return Simulation(build_step(config, plan), node, Star(endpoints=plan.axes.ranks, port=port))


def moved(plan, lane):
    """Return the bytes that each rank moves along a lane, as the engine counts them."""
    return simulation(plan).run().host_bytes.get(lane, 0.0) / plan.axes.ranks


def states(config, plan):
    kinds = memory_by_kind(config, plan, 0)
    return kinds["weights"] + kinds["gradients"] + kinds["optimizer"]


# ZeRO-Offload


def test_a_step_moves_4_bytes_per_parameter_over_the_link():
    """2 Psi of fp16 gradients down, 2 Psi of fp16 parameters up (arXiv:2101.06840, section 3.2)."""
    assert moved(OFFLOAD, Lane.TO_HOST) == pytest.approx(2 * PSI)
    assert moved(OFFLOAD, Lane.FROM_HOST) == pytest.approx(2 * PSI)
    assert set(simulation(OFFLOAD).run().host_bytes) == {"to_host", "from_host"}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_share_the_links_traffic_and_the_hosts_memory(ranks):
    """Each rank moves and updates its share: the node's traffic stays the same (arXiv:2101.06840, 4.2)."""
    plan = OFFLOAD.with_(dp=ranks, global_batch=ranks)
    assert moved(plan, Lane.TO_HOST) == pytest.approx(2 * PSI / ranks)
    assert moved(plan, Lane.FROM_HOST) == pytest.approx(2 * PSI / ranks)
    kept = host_bytes(EVEN, plan, 0)[Place.HOST]
    assert ranks * math.fsum(kept.values()) == pytest.approx((12 + 2) * PSI)


@pytest.mark.parametrize("ranks", [1, 4])
def test_states_on_the_device_fall_from_16_to_2_bytes(ranks):
    """16 Psi to 2 Psi: parameters alone (arXiv:2101.06840, table 1); the rest stands on the host."""
    plan = OFFLOAD.with_(dp=ranks, global_batch=ranks)
    assert states(EVEN, OFFLOAD.with_(zero=1, optimizer_place=Place.DEVICE)) == 16 * PSI
    assert states(EVEN, plan) == 2 * PSI
    assert states(EVEN, plan.with_(zero=3, parameter_place=Place.HOST)) == 0
    bucket = memory_by_kind(EVEN, plan, 0)["buffers"]
    plain = memory_by_kind(EVEN, plan.with_(zero=1, optimizer_place=Place.DEVICE), 0)["buffers"]
    ends = EVEN.embedding_parameters + EVEN.head_parameters
    assert bucket - plain == 2 * (2 * EVEN.layer_parameters + ends)


def test_13_billion_fit_one_v100_of_32_gb():
    """13 B on one GPU of 32 GB, ten times what fits without (arXiv:2101.06840, abstract): GPT of 40 blocks of
    5120, batch of one."""
    shape = {"heads": 40, "kv_heads": 40, "head_dim": 128, "ffn_hidden": 4 * 5120, "position_rows": 1024}
    config = TransformerConfig(
        name="gpt-13b", layers=40, hidden=5120, vocabulary=50257, max_sequence=1024, **shape
    )
    plan = Plan.of(
        sequence_length=1024,
        grad_bytes=2,
        zero=2,
        recompute=Recompute.FULL,
        optimizer_place=Place.HOST,
    )
    assert 12.8e9 < config.parameters < 13.3e9
    check_fits(config, plan, 32e9)
    with pytest.raises(WorkloadError, match="does not fit"):
        check_fits(config, plan.with_(optimizer_place=Place.DEVICE), 32e9)
    with pytest.raises(WorkloadError, match="does not fit"):
        check_fits(replace(config, layers=60), plan, 32e9)
    small = replace(config, layers=4)
    assert 1.4e9 < small.parameters < 1.9e9
    check_fits(small, plan.with_(optimizer_place=Place.DEVICE), 32e9)
    # ZeRO-Infinity needs room for two blocks, not for the model.
    fetched = plan.with_(zero=3, parameter_place=Place.HOST)
    check_fits(replace(config, layers=400), fetched, 32e9)


def test_gradients_leave_behind_the_backward_pass_and_parameters_behind_the_update():
    """Copies hide but for the last gradients down and the last part's parameters up (section 4.1)."""
    compute = ideal_s(EVEN, OFFLOAD)
    parts = OFFLOAD.traffic.grad_buckets
    down = compute * 2 / 3 / 2
    link = 2 * PSI / down
    update = 3 * down
    host = a_host(link=link, ddr=UPDATE_BYTES * PSI / update)
    took = simulation(OFFLOAD, host).run().makespan_s
    assert took == pytest.approx(compute + down / parts + update + down / parts, rel=2e-3)


def test_a_slow_link_sets_the_time():
    compute = ideal_s(EVEN, OFFLOAD)
    one_way = 20 * compute
    took = simulation(OFFLOAD, a_host(link=2 * PSI / one_way)).run().makespan_s
    assert 2 * one_way < took < 2 * one_way + compute


def test_a_delayed_update_hides_behind_the_next_steps_passes():
    """max(passes, update) instead of their sum, then the parameters (arXiv:2101.06840, section 5.2)."""
    compute = ideal_s(EVEN, OFFLOAD)
    for update in (0.5 * compute, 2 * compute):
        host = a_host(link=2 * PSI / (0.1 * compute), ddr=UPDATE_BYTES * PSI / update)
        plain = simulation(OFFLOAD, host).run().makespan_s
        delayed = simulation(OFFLOAD.with_(delayed_update=True), host).run().makespan_s
        assert plain == pytest.approx(compute + update + 2 * 0.1 * compute / 4, rel=2e-3)
        hidden = max(compute + 0.1 * compute, update + 0.1 * compute / 4)
        assert delayed == pytest.approx(hidden, rel=2e-2)
    late = host_bytes(EVEN, OFFLOAD.with_(delayed_update=True), 0)[Place.HOST]
    assert late["gradients"] == 2 * host_bytes(EVEN, OFFLOAD, 0)[Place.HOST]["gradients"]


def test_ranks_of_a_host_share_its_memory_and_its_links():
    plan = OFFLOAD.with_(dp=8, global_batch=8)
    host = a_host(ddr=1e6)
    shared = a_host(accelerators=8, ddr=1e6)
    work = HostWork(name="adam", phase=Phase.UPDATE, flops=0.0, read_bytes=3e6, written_bytes=1e6)
    assert host.cost(work).time_s == 4.0
    assert shared.cost(work).time_s == 8 * 4.0
    narrow = replace(shared, link=replace(shared.link, bandwidth_bytes_per_s=4e6, total_bytes_per_s=8e6))
    up = Transfer(name="parameters", phase=Phase.UPDATE, lane=Lane.FROM_HOST, moved_bytes=8e6)
    assert narrow.cost(up).time_s == 8.0
    assert replace(narrow, processors=host.processors).cost(up).time_s == 2.0
    disk = replace(shared, storage=replace(shared.storage, read_bytes_per_s=4e6, write_bytes_per_s=2e6))
    for lane, seconds in ((Lane.FROM_STORAGE, 8 * 2.0), (Lane.TO_STORAGE, 8 * 4.0)):
        assert disk.cost(replace(up, lane=lane)).time_s == seconds
    assert simulation(plan, shared).run().makespan_s > simulation(plan, host).run().makespan_s


def test_microbatches_add_up_on_the_host_when_gradients_are_shared():
    """With zero=1 gradients add up on the device and go down once; with 2 those of every microbatch do."""
    plan = OFFLOAD.with_(global_batch=4)
    assert moved(plan, Lane.TO_HOST) == pytest.approx(4 * 2 * PSI)
    assert moved(plan, Lane.FROM_HOST) == pytest.approx(2 * PSI)
    added = [t.operator for t in build_step(EVEN, plan).tasks if t.operator.name == "gradients.add"]
    assert math.fsum(one.read_bytes for one in added) == pytest.approx(3 * 2 * 2 * PSI)
    once = plan.with_(zero=1)
    assert moved(once, Lane.TO_HOST) == pytest.approx(2 * PSI)
    assert states(EVEN, once) == (2 + 2) * PSI


# ZeRO-Infinity


@pytest.mark.parametrize("ranks", [1, 4])
def test_parameters_on_the_host_come_up_for_every_pass(ranks):
    """2 Psi over the ranks forward and again backward, and none up after the update (arXiv:2104.07857)."""
    plan = INFINITY.with_(dp=ranks, global_batch=3 * ranks)
    assert moved(plan, Lane.FROM_HOST) == pytest.approx(3 * 2 * 2 * PSI / ranks)
    assert moved(plan, Lane.TO_HOST) == pytest.approx(3 * 2 * PSI / ranks)
    kept = host_bytes(EVEN, plan, 0)
    assert ranks * math.fsum(kept[Place.HOST].values()) == pytest.approx((12 + 2 + 2) * PSI)


def test_states_on_disk_are_read_and_written_once_a_step():
    """12 Psi each way for Adam (arXiv:2104.07857, section 4.1), and with parameters there 2 Psi a pass."""
    plan = OFFLOAD.with_(optimizer_place=Place.NVME)
    assert moved(plan, Lane.FROM_STORAGE) == pytest.approx(12 * PSI)
    assert moved(plan, Lane.TO_STORAGE) == pytest.approx(12 * PSI)
    both = INFINITY.with_(optimizer_place=Place.NVME, parameter_place=Place.NVME, global_batch=2)
    assert moved(both, Lane.FROM_STORAGE) == pytest.approx((12 + 2 * 2 * 2) * PSI)
    assert moved(both, Lane.TO_STORAGE) == pytest.approx((12 + 2) * PSI)
    kept = host_bytes(EVEN, both, 0)
    assert math.fsum(kept[Place.NVME].values()) == pytest.approx((12 + 2) * PSI)
    assert math.fsum(kept[Place.HOST].values()) < (2 + 6) * PSI


def test_reads_updates_and_writes_of_parts_overlap():
    """The update takes the disk's time once for reads and writes together, ends apart (section 6.3)."""
    plan = OFFLOAD.with_(optimizer_place=Place.NVME, grad_buckets=16)
    disk = 1e6
    took = simulation(plan, a_host(disk=disk)).run().makespan_s
    one_way = 12 * PSI / disk
    assert one_way < took < 1.2 * one_way + ideal_s(EVEN, plan)


def test_fetches_hide_behind_passes_on_a_fast_link():
    plan = INFINITY.with_(global_batch=4)
    compute = ideal_s(EVEN, plan)
    link = 4 * 3 * 2 * PSI / (compute / 2)
    took = simulation(plan, a_host(link=link)).run().makespan_s
    block = 2 * EVEN.layer_parameters / link
    assert compute < took < compute + 8 * block


@pytest.mark.parametrize(("ranks", "ahead"), [(1, 2), (4, 3)])
def test_fetches_wait_for_the_pass_that_frees_their_room(ranks, ahead):
    """One piece ahead of its use alone, of its gather with others; a read from disk one more."""
    nvme = {"optimizer_place": Place.NVME, "parameter_place": Place.NVME}
    step = build_step(EVEN, INFINITY.with_(dp=ranks, global_batch=ranks, **nvme))
    order = [t.id for t in sorted(step.tasks, key=lambda t: t.priority) if isinstance(t.operator, Sequence)]
    fetches = [t for t in step.tasks if isinstance(t.operator, Transfer) and t.operator.name == "parameters"]
    ups = [t for t in fetches if t.operator.lane is Lane.FROM_HOST]
    reads = [t for t in fetches if t.operator.lane is Lane.FROM_STORAGE]
    assert len(ups) == len(reads) == len(order)
    for index, (up, read) in enumerate(zip(ups, reads, strict=True)):
        freed = [order.index(other) for other in up.after if other in order]
        assert freed == ([index - ahead] if index >= ahead else [])
        assert [order.index(other) for other in read.after] == ([index - ahead - 1] if index > ahead else [])
        assert read.id in up.after


# Everything off the device


@pytest.mark.parametrize(
    "text",
    [
        "zero=1,pp=4,tp=2,dp=2",
        "zero=1,pp=2,vpp=2,dp=2,schedule=1f1b",
        "zero=1,pp=2,dp=2,schedule=zero_bubble",
        "zero=2,tp=2,dp=4,delayed_update=true",
        "zero=3,tp=2,dp=4",
        "zero=3,tp=2,dp=4,parameter_place=host",
        "zero=3,dp=4,cp=2,parameter_place=host,micro_batch=2",
        "zero=3,dp=2,pp=2,parameter_place=nvme,optimizer_place=nvme",
        "zero=3,parameter_place=nvme,optimizer_place=nvme,precision=fp16,optimizer=adam_8bit",
        "zero=2,dp=4,ep=4",
    ],
)
def test_compositions_run_between_their_bounds(text):
    base = PLAN.with_(optimizer_place=Place.HOST)
    plan = parse_plan(f"{text},global_batch=16", base=base)
    config = replace(
        EVEN, vocabulary=512, **({"experts": 8, "experts_per_token": 2} if plan.axes.ep > 1 else {})
    )
    one = simulation(plan, a_host(link=1e9, ddr=1e10, disk=1e9), port=1e9, config=config)
    assert product_flops(one.graph) == one.graph.model_flops
    took = one.run().makespan_s
    assert critical_path_s(one.graph, partial(alone_s, one)) <= took * (1 + 1e-9)
    assert took <= serial_sum_s(one.graph, partial(alone_s, one))


def test_energy_and_time_of_the_host_are_charged():
    host = a_host(accelerators=2, link=1e6, ddr=1e7)
    host = replace(
        host,
        processors=replace(host.processors, active_w=100.0, idle_w=40.0),
        ddr=replace(host.ddr, energy_j_per_byte=1.0, static_w=20.0),
        link=replace(host.link, energy_j_per_bit=1.0),
        storage=replace(host.storage, static_w=10.0),
    )
    one = simulation(OFFLOAD, host)
    trace = one.run()
    metrics = summarise(trace, one.graph, one.node, one.fabric)
    energy = metrics.energy_by_component_j
    assert energy["host link"] == pytest.approx(4 * PSI * 8)
    assert energy["host memory"] == pytest.approx((4 + UPDATE_BYTES) * PSI)
    assert energy["host processors"] == pytest.approx(100.0 / 2 * UPDATE_BYTES * PSI * 2 / 1e7)
    assert energy["host static"] == pytest.approx((40.0 + 20.0 + 10.0) / 2 * trace.makespan_s)
    assert math.fsum(energy.values()) == pytest.approx(metrics.energy_j)
    times = metrics.time_by_category_s
    assert math.fsum(times.values()) == pytest.approx(metrics.step_time_s)
    assert times[HOST] == pytest.approx(trace.makespan_s - ideal_s(EVEN, OFFLOAD), rel=1e-6)
    assert {span.name for span in trace.of(0, Stream.HOST)} == {
        "to_host gradients",
        "processors adam",
        "from_host parameters",
    }


def test_nothing_of_the_host_shows_where_nothing_moves_to_it():
    trace = simulation(PLAN.with_(dp=2)).run()
    assert not trace.host_bytes
    assert not trace.of(0, Stream.HOST)
    threads = [event for event in trace.perfetto_events() if event["name"] == "thread_name"]
    assert {event["args"]["name"] for event in threads} == {"compute", "network", "circuits"}
    assert not [t for t in build_step(EVEN, PLAN).tasks if isinstance(t.operator, Transfer | HostWork)]


def test_an_accelerator_without_a_host_refuses_the_plan():
    with pytest.raises(WorkloadError, match="needs a host for 'gradients', and 'node' has none described"):
        Simulation(build_step(EVEN, OFFLOAD), NODE, Star(endpoints=1))


def test_work_of_the_host_is_no_part_of_a_run():
    runs = [t.operator for t in build_step(EVEN, INFINITY).tasks if isinstance(t.operator, Sequence)]
    assert not any(isinstance(one, Transfer | HostWork) for run in runs for one, _ in run.items)
    up = Transfer(name="parameters", phase=Phase.UPDATE, lane=Lane.FROM_HOST, moved_bytes=1.0)
    run = Sequence(name="run", phase=Phase.UPDATE, items=((up, 1),))
    graph = StepGraph(tasks=(Task(id=0, rank_class=0, operator=run),), layout=PLAN.layout, tokens=1)
    node = replace(NODE, host=a_host())
    with pytest.raises(TypeError, match="'parameters' runs on the host, in a task of its own"):
        Simulation(graph, node, Star(endpoints=1), fuse=False).run()
    with pytest.raises(WorkloadError, match="no unit of 'node'"):
        Simulation(graph, node, Star(endpoints=1)).run()


def test_what_does_not_fit_the_host_is_refused():
    check_host_fits(EVEN, OFFLOAD, a_host(capacity=14 * PSI))
    with pytest.raises(WorkloadError, match=r"does not fit the host's memory: 1 ranks need .*nvme"):
        check_host_fits(EVEN, OFFLOAD, a_host(capacity=14 * PSI - 1))
    with pytest.raises(WorkloadError, match="2 ranks need"):
        check_host_fits(EVEN, OFFLOAD, a_host(accelerators=2, capacity=27 * PSI))
    nvme = OFFLOAD.with_(optimizer_place=Place.NVME)
    with pytest.raises(WorkloadError, match="does not fit the host's disks"):
        check_host_fits(EVEN, nvme, a_host(capacity=11 * PSI))
    with pytest.raises(WorkloadError, match="needs a host, and none is described"):
        check_host_fits(EVEN, OFFLOAD, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer_place=host,zero=0", "not zero=0; try zero=2"),
        ("optimizer_place=host,precision=fp8", "try precision=bf16"),
        ("optimizer_place=host,schedule=dualpipe,pp=2", "another schedule than dualpipe"),
        ("optimizer_place=host,zero=3,dp=4,shard_group=2", "leave shard_group out"),
        ("optimizer_place=host,zero=3,dp=4,quantised_weights=true", "optimizer on the device"),
        ("parameter_place=host", "try zero=3,reshard=true"),
        ("parameter_place=host,zero=3,reshard=false", "try zero=3,reshard=true"),
        ("parameter_place=host,zero=3", "try optimizer_place=host"),
        ("parameter_place=nvme,zero=3,optimizer_place=host", "try optimizer_place=nvme"),
        ("delayed_update=true", "try optimizer_place=host"),
        (
            "delayed_update=true,zero=3,optimizer_place=host,parameter_place=host",
            "try parameter_place=device",
        ),
        ("optimizer_place=disk", "optimizer_place must be one of device, host, nvme"),
    ],
)
def test_impossible_places_are_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(EVEN, parse_plan(text, base=PLAN))
