"""Sharding in groups and ZeRO++: what a step sends, where, and what a rank keeps."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.interfaces import LinkGraph
from simulator.layout import RankLayout
from simulator.operators import Collective, CollectiveKind, Elementwise
from tests.workloads.ideal import EVEN, NODE, PLAN, Star, ideal_s, product_flops, run, sent, sequences
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.sharding import INT4_BYTES, INT8_BYTES
from workloads.step.step import build_step

ONCE = PLAN.with_(dp=16, global_batch=16, zero=3, grad_bytes=2)
"""One microbatch on sixteen data-parallel ranks."""


@dataclass(frozen=True, kw_only=True)
class Nodes(Star):
    """Ports between nodes that are slow beside those within; a byte between nodes takes a joule, to count."""

    node_size: int = 4

    def graph(self, circuits):
        inside = np.full(2 * self.endpoints, 1e30)
        between = np.full(2 * self.endpoints, self.port)
        capacity = np.concatenate([inside, between])
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=np.zeros(capacity.size))

    def crossing(self, flows):
        return flows.sources // self.node_size != flows.destinations // self.node_size

    def route(self, circuits, flows):
        start = np.where(self.crossing(flows), 2 * self.endpoints, 0)
        return np.stack([start + flows.sources, start + self.endpoints + flows.destinations], axis=1)

    def transfer_energy_j(self, flows):
        return float(self.crossing(flows).sum() * flows.size_bytes)


def between_nodes(config, plan):
    """Return the bytes that a node sends to others, counted by the engine."""
    fabric = Nodes(endpoints=plan.axes.ranks, port=1e9)
    trace = Simulation(build_step(config, plan), NODE, fabric).run()
    return trace.network_energy_j / (plan.axes.ranks / fabric.node_size)


def states(plan):
    kinds = memory_by_kind(EVEN, plan, 0)
    return kinds["weights"] + kinds["gradients"] + kinds["optimizer"]


# Groups of ranks (MiCS, hybrid FSDP)


def test_inner_and_outer_groups_cut_the_data_parallel_axis():
    layout = RankLayout(tp=2, dp=4, pp=2, inner=2)
    assert layout.groups("inner", 1).tolist() == [[8, 10], [9, 11], [12, 14], [13, 15]]
    assert layout.groups("outer", 1).tolist() == [[8, 12], [9, 13], [10, 14], [11, 15]]
    with pytest.raises(WorkloadError, match=r"inner \(3\) must divide cp x dp \(4\)"):
        RankLayout(dp=4, inner=3)


@pytest.mark.parametrize("group", [2, 4, 8])
def test_shard_groups_gather_inside_and_sum_across_once(group):
    """Gathers and reduce-scatters of all parameters within a group of p, and one all-reduce of 1/p of the
    gradients across the n/p groups (MiCS, arXiv:2205.00119, sections 3.2 and 3.4)."""
    plan = ONCE.with_(shard_group=group, global_batch=3 * 16)
    whole, groups = 2 * EVEN.parameters, 16 // group
    assert sent(EVEN, plan, "inner") == pytest.approx(3 * 3 * whole * (group - 1) / group, rel=1e-9)
    assert sent(EVEN, plan, "outer") == pytest.approx(2 * whole / group * (groups - 1) / groups, rel=1e-9)
    assert set(run(EVEN, plan).network_bytes) == {"inner", "outer"}


def test_a_group_of_all_ranks_is_plain_zero_3():
    plain, grouped = run(EVEN, ONCE, port=1e9), run(EVEN, ONCE.with_(shard_group=16), port=1e9)
    assert grouped.makespan_s == plain.makespan_s
    assert grouped.network_bytes["inner"] == plain.network_bytes["dp"]


def test_a_group_in_a_node_keeps_gathers_off_the_links_between_nodes():
    """2 (n/p - 1)/(n/p) of the gradients a node, instead of 3 times all parameters (arXiv:2205.00119)."""
    whole, nodes = 2 * EVEN.parameters, 4
    plain = between_nodes(EVEN, ONCE)
    grouped = between_nodes(EVEN, ONCE.with_(shard_group=4))
    assert plain == pytest.approx(3 * whole * (nodes - 1) / nodes, rel=1e-9)
    assert grouped == pytest.approx(2 * whole * (nodes - 1) / nodes, rel=1e-9)
    many = ONCE.with_(global_batch=8 * 16)
    assert between_nodes(EVEN, many.with_(shard_group=4)) == grouped
    assert between_nodes(EVEN, many) == pytest.approx(8 * plain, rel=1e-9)


@pytest.mark.parametrize(("zero", "bytes_each"), [(1, 2 + 2 + 12 / 4), (2, 2 + 14 / 4), (3, 16 / 4)])
def test_a_group_shares_what_all_ranks_would(zero, bytes_each):
    """ZeRO's table 1 (arXiv:1910.02054) with the ranks of a group for those of all."""
    assert states(ONCE.with_(zero=zero, shard_group=4)) == EVEN.parameters * bytes_each
    assert states(ONCE.with_(zero=zero, shard_group=4, dp=64, global_batch=64)) == (
        EVEN.parameters * bytes_each
    )


def test_sums_across_groups_run_beside_those_inside():
    """The next part's sum inside a group does not wait for the last part's sum across (hybrid FSDP)."""
    step = build_step(EVEN, ONCE.with_(shard_group=4))
    across = {
        task.id
        for task in step.tasks
        if isinstance(task.operator, Collective) and task.operator.axis == "outer"
    }
    assert across
    waits = [task for task in step.tasks if across & set(task.after)]
    assert [type(task.operator) for task in waits] == [Elementwise]


# ZeRO++

NODE_OF_4 = {"local_group": 4}
ZERO_PLUS_PLUS = {
    "plain": ({}, 3.0),
    "qwZ": ({"quantised_weights": True}, 1 + 2 * INT8_BYTES / 2),
    "hpZ": ({"secondary_copy": True} | NODE_OF_4, 2.0),
    "qgZ": ({"quantised_gradients": True} | NODE_OF_4, 2 + INT4_BYTES / 2),
    "all": (
        {"quantised_weights": True, "secondary_copy": True, "quantised_gradients": True} | NODE_OF_4,
        INT8_BYTES / 2 + INT4_BYTES / 2,
    ),
}


@pytest.mark.parametrize("kind", ZERO_PLUS_PLUS)
def test_zero_plus_plus_sends_a_quarter_between_nodes(kind):
    """3 M to 0.75 M: forward gather 1 to 0.5, backward gather 1 to 0 (0.5 without hpZ), gradients 1 to 0.25
    (arXiv:2306.10209, table 1 and section 3); scales of blocks add a thousandth."""
    changes, volumes = ZERO_PLUS_PLUS[kind]
    whole, nodes = 2 * EVEN.parameters, 4
    found = between_nodes(EVEN, ONCE.with_(**changes))
    assert found == pytest.approx(volumes * whole * (nodes - 1) / nodes, rel=1e-9)


def test_the_whole_of_zero_plus_plus_is_a_fourfold_saving():
    """arXiv:2306.10209, abstract: communication volume reduced by 4x."""
    plain = between_nodes(EVEN, ONCE)
    every = between_nodes(EVEN, ONCE.with_(**ZERO_PLUS_PLUS["all"][0]))
    assert plain / every == pytest.approx(4.0, rel=3e-3)


def test_two_hops_send_less_between_nodes_than_one_by_the_ranks_of_a_node():
    """One all-to-all of all ranks: N M / Z across a node's border, two hops: M / Z (arXiv:2306.10209,
    section 3.3)."""
    quantised = ONCE.with_(quantised_gradients=True)
    gathers = 2 * 2 * EVEN.parameters * 3 / 4
    one = between_nodes(EVEN, quantised) - gathers
    two = between_nodes(EVEN, quantised.with_(local_group=4)) - gathers
    # Of a rank's 15 messages 12 leave the node, against 3 of 3 in the second hop of a quarter as much.
    assert one / two == pytest.approx((4 * 12 / 16) / (3 / 4), rel=1e-6)


def test_zero_plus_plus_is_faster_on_slow_links_between_nodes():
    plan = ONCE.with_(sequence_length=16)

    def took(changes):
        fabric = Nodes(endpoints=16, port=1e6)
        return Simulation(build_step(EVEN, plan.with_(**changes)), NODE, fabric).run().makespan_s

    times = {kind: took(changes) for kind, (changes, _) in ZERO_PLUS_PLUS.items()}
    assert max(times[kind] for kind in ("qwZ", "hpZ", "qgZ")) < times["plain"]
    assert times["plain"] / times["all"] == pytest.approx(4.0, rel=0.15)
    assert times["all"] == min(times.values())


def test_the_secondary_copy_takes_2_bytes_over_the_ranks_of_a_node():
    """2 Psi / G bytes a rank (arXiv:2306.10209, section 3.2)."""
    for group in (2, 4, 8):
        copied = states(ONCE.with_(secondary_copy=True, local_group=group))
        assert copied - states(ONCE) == 2 * EVEN.parameters / group


def test_only_the_backward_pass_gathers_the_secondary_copy():
    """The copy is what the forward pass has gathered: no forward gather can use it (section 3.2)."""
    step = build_step(EVEN, ONCE.with_(secondary_copy=True, local_group=4))
    tasks = {task.id: task for task in step.tasks}
    for task in sequences(step):
        gathers = [
            tasks[other].operator for other in task.after if isinstance(tasks[other].operator, Collective)
        ]
        assert {one.axis for one in gathers} == {"dp" if task.operator.name == "forward" else "inner"}


def test_quantised_gathers_hide_but_for_the_first():
    """A share is packed behind the pass that frees the memory, so its gather has a whole pass to hide in."""
    plan = ONCE.with_(quantised_weights=True)
    compute = ideal_s(EVEN, plan)
    block = 2 * EVEN.layer_parameters * 15 / 16
    port = 3 * EVEN.layers * block / (compute / 8)
    exposed = run(EVEN, plan, port=port).makespan_s - compute
    assert block / 2 / port < exposed < 2 * block / port


def kernels(plan):
    """Return bytes moved by the kernels of ZeRO++ on one rank, by name."""
    step = build_step(EVEN, plan)
    found = {}
    single = [task.operator for task in step.tasks if isinstance(task.operator, Elementwise)]
    inside = [
        one for task in sequences(step) for one, _ in task.operator.items if isinstance(one, Elementwise)
    ]
    for one in (*single, *inside):
        if one.name.startswith(("weights.", "gradients.")):
            read, written = found.get(one.name, (0.0, 0.0))
            found[one.name] = (read + one.read_bytes, written + one.written_bytes)
    return found


def test_kernels_of_zero_plus_plus_move_every_value_once():
    plan = ONCE.with_(**ZERO_PLUS_PLUS["all"][0])
    moved, psi = kernels(plan), EVEN.parameters
    eight, four = INT8_BYTES, INT4_BYTES
    assert moved["weights.quantise"] == pytest.approx((2 * psi / 16, eight * psi / 16))
    assert moved["weights.dequantise"] == pytest.approx((eight * psi, 2 * psi))
    assert moved["weights.secondary_copy"] == pytest.approx((2 * psi / 4, 2 * psi / 4))
    assert moved["gradients.quantise"] == pytest.approx((2 * psi + four * psi, four * (psi + psi / 4)))
    assert moved["gradients.dequantise"] == pytest.approx((four * psi / 4, 2 * psi / 16))
    without = kernels(plan.with_(secondary_copy=False, local_group=0))
    assert without["weights.dequantise"] == pytest.approx((2 * eight * psi, 2 * 2 * psi))
    assert kernels(ONCE) == {}


def test_kernels_wait_for_their_exchange_and_the_update_for_all_of_them():
    plan = ONCE.with_(global_batch=32, quantised_gradients=True, local_group=4)
    step = build_step(EVEN, plan)
    tasks = {task.id: task for task in step.tasks}
    ends = [task for task in step.tasks if task.operator.name == "gradients.dequantise"]
    (update,) = [task for task in step.tasks if task.operator.name == "adam"]
    assert {task.id for task in ends} <= set(update.after)
    hops = [tasks[task.after[0]].operator for task in ends]
    assert {(one.kind, one.axis) for one in hops} == {(CollectiveKind.ALL_TO_ALL, "outer")}
    assert not any(
        task.operator.kind is CollectiveKind.REDUCE_SCATTER
        for task in step.tasks
        if isinstance(task.operator, Collective)
    )


def test_on_a_fast_network_zero_plus_plus_hides():
    plan = ONCE.with_(**ZERO_PLUS_PLUS["all"][0])
    assert run(EVEN, plan).makespan_s == pytest.approx(ideal_s(EVEN, plan), rel=1e-6)


# Compositions


@pytest.mark.parametrize(
    "text",
    [
        "zero=1,pp=4,tp=2,dp=2",
        "zero=1,pp=2,vpp=2,tp=2,dp=2",
        "zero=3,tp=4,dp=4",
        "zero=2,tp=2,dp=8",
        "zero=3,tp=2,dp=8,shard_group=4",
        "zero=3,tp=2,dp=8,local_group=4,secondary_copy=true,quantised_weights=true,quantised_gradients=true",
        "zero=3,cp=2,dp=8,shard_group=8",
        "zero=3,cp=2,dp=8,local_group=4,secondary_copy=true,quantised_gradients=true",
        "zero=3,pp=2,dp=8,shard_group=4",
        "zero=3,pp=2,dp=8,local_group=4,secondary_copy=true,quantised_gradients=true",
        "zero=2,pp=2,dp=8,shard_group=2,schedule=zero_bubble",
        "zero=1,pp=2,dp=8,shard_group=2,schedule=gpipe",
    ],
)
def test_compositions_run_and_lose_no_work(text):
    plan = parse_plan(f"{text},global_batch=32", base=PLAN)
    config = replace(EVEN, vocabulary=512)
    step = build_step(config, plan)
    assert product_flops(step) == step.model_flops
    assert run(config, plan, port=1e9).makespan_s > ideal_s(config, plan)


def test_sharing_gradients_beside_stages_costs_a_sum_for_every_microbatch():
    """Why DeepSpeed's pipeline refuses ZeRO 2 and 3: gradients must be kept until the last microbatch there
    (DeepSpeed documentation, pipeline parallelism), or be summed for each, as here."""
    plan = PLAN.with_(pp=2, dp=4, global_batch=32, grad_bytes=2)
    once = 2 * EVEN.parameters / 2 * 3 / 4
    for zero, sums, gathers in ((0, 2, 0), (1, 1, 1), (2, 8, 1), (3, 8, 16)):
        found = sent(EVEN, plan.with_(zero=zero), "dp")
        assert found == pytest.approx((sums + gathers) * once, rel=1e-3)
    kept = sent(EVEN, plan.with_(zero=3, reshard=False), "dp")
    assert kept == pytest.approx((8 + 1) * once, rel=1e-3)


def test_tensor_ranks_divide_what_zero_plus_plus_sends():
    plan = ONCE.with_(**ZERO_PLUS_PLUS["all"][0])
    one = sent(EVEN, plan, "outer")
    two = sent(EVEN, plan.with_(tp=2), "outer")
    halved = one * memory_by_kind(EVEN, plan.with_(tp=2), 0)["weights"]
    assert two == pytest.approx(halved / memory_by_kind(EVEN, plan, 0)["weights"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shard_group=3,zero=3", r"shard_group \(3\) must divide data \(16\); try 1, 2, 4, 8 or 16"),
        ("shard_group=4,zero=0", r"shard_group \(4\) needs something to share .* zero is 0; try zero=3"),
        ("shard_group=1,zero=3", "leave shard_group out"),
        ("shard_group=4,local_group=4,secondary_copy=true,zero=3", "leave one out"),
        ("quantised_weights=true,zero=2", "quantised_weights needs .* try zero=3,reshard=true"),
        ("quantised_gradients=true,zero=1", "stage 3"),
        ("secondary_copy=true,zero=3,reshard=false,local_group=4", "try zero=3,reshard=true"),
        ("secondary_copy=true,zero=3", "try local_group=8"),
        ("local_group=4,zero=3", "add one"),
        (
            "secondary_copy=true,zero=3,local_group=16",
            r"local_group \(16\) must divide data \(16\)",
        ),
        ("secondary_copy=true,zero=3,local_group=5", r"try 1, 2, 4, 8 or 16"),
        ("quantised_weights=true,zero=3,dp=1", "needs several data-parallel ranks"),
        ("schedule=dualpipe,pp=2,shard_group=4,global_batch=64", "another schedule than dualpipe"),
        ("shard_group=-1", "shard_group must be a whole number of at least 0"),
    ],
)
def test_impossible_sharding_is_refused(text, message):
    base = PLAN.with_(dp=16, global_batch=16)
    with pytest.raises(WorkloadError, match=message):
        check(EVEN, parse_plan(text, base=base))


def test_experts_are_not_shared_in_groups():
    experts = replace(EVEN, experts=8, experts_per_token=2)
    for key in ("shard_group=4", "quantised_weights=true"):
        with pytest.raises(WorkloadError, match="needs expert=1, not 8"):
            check(experts, parse_plan(f"{key},zero=3,ep=8", base=PLAN.with_(dp=16)))
