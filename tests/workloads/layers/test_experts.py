"""Mixtures of experts as plans: capacity, drops, exchanges and the busiest rank, measured from the engine."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.operators import Collective, MatMul, Phase, Skew, geometric_loads
from simulator.results import summarise
from tests.workloads.ideal import EVEN, NODE, PLAN, RATE, Star, product_flops, run, sent, sequences
from workloads.layers.parts import capacity, dropped_share, rank_imbalance, rank_loads
from workloads.layers.transformer import backward_layer, forward_layer
from workloads.plan.parts import ExpertExchange
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.step import build_step

ROUTED = replace(EVEN, layers=2, experts=16, experts_per_token=2)
SPREAD = PLAN.with_(dp=8, ep=8)


@dataclass(frozen=True, kw_only=True)
class StarOfNodes(Star):
    """A switch that joins nodes of four."""

    node_size: int = 4


def expert_flops(config, plan):
    """Return the operations of one rank's experts in a step."""
    return sum(
        one.flops * count
        for task in sequences(build_step(config, plan))
        for one, count in task.operator.items
        if isinstance(one, MatMul) and one.name in {"mlp.up", "mlp.down"}
    )


# Capacity of GShard and Switch


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25, 2.0])
def test_all_to_alls_carry_the_capacity(factor):
    """Two all-to-alls forward and two backward of k cf T h elements, (n-1)/n to others (arXiv:2006.16668,
    section 2.2; arXiv:2101.03961, section 2.2)."""
    plan = SPREAD.with_(capacity_factor=factor)
    elements = 2 * factor * plan.share.tokens * ROUTED.hidden
    expected = 4 * ROUTED.layers * plan.microbatches * 2 * elements * 7 / 8
    assert sent(ROUTED, plan, "ep") == pytest.approx(expected)


def test_capacity_is_rounded_up():
    """C = ceil(k T / E x cf) (arXiv:2101.03961, equation 3): 64 tokens, 2 of 16 experts, 1.3: 10.4."""
    assert capacity(ROUTED, SPREAD.with_(capacity_factor=1.3).share) == 11
    assert capacity(replace(ROUTED, experts_per_token=1), SPREAD.with_(capacity_factor=1.3).share) == 6
    assert capacity(ROUTED, SPREAD.share) == 0


def test_expert_work_grows_with_the_capacity_factor():
    exact = expert_flops(ROUTED, SPREAD)
    for factor in (0.5, 1.0, 2.0):
        assert expert_flops(ROUTED, SPREAD.with_(capacity_factor=factor)) == factor * exact
    slower = run(ROUTED, SPREAD.with_(capacity_factor=2.0)).makespan_s - run(ROUTED, SPREAD).makespan_s
    assert slower == pytest.approx(exact / RATE)


def test_capacity_of_one_is_the_exact_size_of_an_even_router():
    """FastMoE's exact sizes (arXiv:2103.13262) and GShard's places agree when every expert gets the mean."""
    for port in (1e30, 1e9):
        exact, padded = (run(ROUTED, SPREAD.with_(capacity_factor=f), port=port) for f in (0.0, 1.0))
        assert exact.makespan_s == padded.makespan_s
        assert exact.network_bytes == padded.network_bytes


def test_places_are_kept_for_the_backward_pass():
    """Copies of tokens and experts' activations are kept by the place, filled or not."""
    kept = [
        memory_by_kind(ROUTED, SPREAD.with_(capacity_factor=f), 0)["activations"]
        for f in (0.0, 1.0, 2.0, 3.0)
    ]
    assert kept[0] == kept[1]
    assert kept[3] - kept[2] == pytest.approx(kept[2] - kept[1])
    places = 2 * SPREAD.share.tokens * (2 * ROUTED.hidden + 2 * ROUTED.ffn_hidden) * 2 * ROUTED.layers
    assert kept[2] - kept[1] == pytest.approx(places)


def test_blocks_without_experts_know_no_capacity():
    config = replace(ROUTED, dense_layers=1, dense_ffn_hidden=128)
    kept = [
        memory_by_kind(config, SPREAD.with_(capacity_factor=factor), 0)["activations"]
        - memory_by_kind(ROUTED, SPREAD.with_(capacity_factor=factor), 0)["activations"] / 2
        for factor in (1.0, 2.0)
    ]
    assert kept[0] == pytest.approx(kept[1])
    uneven = SPREAD.with_(expert_imbalance=2.0)
    assert memory_by_kind(config, uneven, 0)["activations"] > 0.0


# Drops


def test_even_router_drops_what_exceeds_its_places():
    assert dropped_share(ROUTED, SPREAD.with_(capacity_factor=1.0).share) == pytest.approx(0.0, abs=1e-12)
    assert dropped_share(ROUTED, SPREAD.with_(capacity_factor=0.5).share) == pytest.approx(0.5)
    assert dropped_share(ROUTED, SPREAD.share) == 0.0


def test_router_that_sends_all_to_one_expert_drops_all_but_its_places():
    """k = 1, E experts, everything to one: 1 - cf / E is dropped (arXiv:2101.03961, section 2.2)."""
    config = replace(ROUTED, experts_per_token=1)
    plan = SPREAD.with_(capacity_factor=2.0, expert_imbalance=16.0)
    assert dropped_share(config, plan.share) == pytest.approx(1 - 2 / 16)


def test_places_enough_for_the_busiest_drop_nothing_and_fewer_drop_more():
    plan = SPREAD.with_(expert_imbalance=3.0)
    shares = [dropped_share(ROUTED, plan.with_(capacity_factor=f).share) for f in (3.0, 2.0, 1.5, 1.0, 0.5)]
    assert shares[0] == pytest.approx(0.0, abs=1e-12)
    assert shares == sorted(shares)
    assert shares[1] > 0.0


def test_dropped_share_is_a_metric_of_the_step():
    plan = SPREAD.with_(capacity_factor=1.0, expert_imbalance=2.0)
    graph = build_step(ROUTED, plan)
    metrics = summarise(run(ROUTED, plan), graph, NODE, Star(endpoints=8))
    above = sum(max(0.0, load - 1.0) for load in geometric_loads(16, 2.0))
    assert metrics.dropped_share == pytest.approx(above / 16)
    assert run(ROUTED, plan).makespan_s == run(ROUTED, plan.with_(expert_imbalance=1.0)).makespan_s


# The busiest rank


@pytest.mark.parametrize(("count", "imbalance"), [(2, 1.5), (16, 1.0), (16, 3.7), (256, 40.0), (8, 8.0)])
def test_loads_have_the_stated_peak_and_mean(count, imbalance):
    loads = geometric_loads(count, imbalance)
    assert loads[0] == pytest.approx(imbalance)
    assert math.fsum(loads) == pytest.approx(count)
    assert list(loads) == sorted(loads, reverse=True)


def test_without_capacity_the_busiest_rank_sets_the_time():
    """One expert a rank: a step takes its experts' time x the imbalance (arXiv:2103.13262)."""
    config = replace(ROUTED, experts=8)
    plan = SPREAD.with_(expert_imbalance=2.0)
    assert rank_imbalance(config, plan.share) == pytest.approx(2.0)
    slower = run(config, plan).makespan_s - run(config, SPREAD).makespan_s
    assert slower == pytest.approx(expert_flops(config, SPREAD) / RATE, rel=1e-6)
    assert sent(config, plan, "ep") == pytest.approx(sent(config, SPREAD, "ep"))


def exchanges(plan):
    return [
        one
        for task in sequences(build_step(ROUTED, plan))
        for one, _ in task.operator.items
        if isinstance(one, Collective) and one.axis == "ep"
    ]


def test_what_is_sent_comes_back_turned_round_in_both_passes():
    """Dispatch loads the busy ranks' receivers, combine their senders; gradients go the other way each."""
    for plan in (SPREAD.with_(expert_imbalance=2.0), SPREAD.with_(expert_affinity=3.0)):
        found = exchanges(plan)
        assert {one.name for one in found} == {"mlp.dispatch", "mlp.combine"}
        for one in found:
            forward = one.phase is Phase.FORWARD
            assert one.skew.returns is (forward == (one.name == "mlp.combine"))
    assert {one.skew for one in exchanges(SPREAD)} == {None}
    assert {one.skew for one in exchanges(SPREAD.with_(expert_imbalance=2.0, capacity_factor=1.0))} == {None}


def test_blocks_go_by_patterns_in_turn_and_the_way_back_through_them_backward():
    """Four blocks in two stages of two, three patterns: each pass meets its blocks' own, there and back."""
    config = replace(ROUTED, layers=4)
    plan = SPREAD.with_(pp=2, grad_buckets=1, expert_affinity=3.0, expert_patterns=3)
    met = {}
    for task in sequences(build_step(config, plan)):
        found = [one for one, _ in task.operator.items if isinstance(one, Collective) and one.axis == "ep"]
        met[task.rank_class, found[0].phase] = [one.skew.pattern for one in found]
    assert met == {
        (0, Phase.FORWARD): [0, 0, 1, 1],
        (0, Phase.GRAD_INPUT): [1, 1, 0, 0],
        (1, Phase.FORWARD): [2, 2, 0, 0],
        (1, Phase.GRAD_INPUT): [0, 0, 2, 2],
    }


def test_patterns_send_the_same_bytes_to_others():
    every = Skew(loads=geometric_loads(8, 2.0), affinity=3.0, patterns=7).every
    assert len({one.matrix().tobytes() for one in every}) == 7
    favourites = [(one.matrix() / one.matrix().sum(axis=0))[0].argmax() for one in every]
    assert len(set(favourites)) == 7
    for one in every:
        matrix = one.matrix()
        assert matrix.sum(axis=1) == pytest.approx(np.full(8, 8.0))
        assert sorted(matrix.sum(axis=0)) == pytest.approx(sorted(8 * load for load in one.loads))
    with pytest.raises(WorkloadError, match="8 members have 1 to 7 patterns"):
        Skew(loads=(1.0,) * 8, patterns=8)


def test_a_switch_is_slowed_by_the_busiest_receiver_and_not_by_preferences():
    """Every byte of the busiest rank passes its one port: an exchange takes its load times as long."""
    config = replace(ROUTED, experts=8)

    def talked_s(**how):
        graph = build_step(config, SPREAD.with_(**how))
        slow, fast = (
            Simulation(graph, NODE, Star(endpoints=8, port=port)).run().makespan_s for port in (1e6, 1e30)
        )
        return slow - fast

    even_s = talked_s()
    exchanged_s = sent(config, SPREAD, "ep") / 1e6
    assert talked_s(expert_imbalance=2.0) - even_s == pytest.approx(exchanged_s, rel=1e-3)
    assert talked_s(expert_affinity=3.0) == pytest.approx(even_s, rel=1e-9)


def test_ranks_loads_are_those_of_their_experts_and_stand_apart():
    plan = SPREAD.with_(expert_imbalance=4.0)
    loads = rank_loads(ROUTED, plan.share)
    assert sum(loads) == pytest.approx(8.0)
    assert max(loads) == loads[0] == pytest.approx(rank_imbalance(ROUTED, plan.share))
    assert sorted(loads, reverse=True)[1] != loads[1]


def test_more_experts_on_a_rank_even_out_its_load():
    config = replace(ROUTED, experts=64)
    found = [rank_imbalance(config, SPREAD.with_(ep=ep, expert_imbalance=4.0).share) for ep in (1, 2, 8, 64)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(1.0)
    assert found[-1] == pytest.approx(4.0)


# FastMoE


def test_counts_are_told_before_tokens_are_sent():
    """E counts a rank before every dispatch, forward only (arXiv:2103.13262)."""
    plan = SPREAD.with_(exchange_counts=True)
    extra = sent(ROUTED, plan, "ep") - sent(ROUTED, SPREAD, "ep")
    assert extra == pytest.approx(ROUTED.layers * plan.microbatches * 16 * 8 * 7 / 8)
    names = [one.name for one, _ in sequences(build_step(ROUTED, plan))[0].operator.items]
    assert names[names.index("mlp.counts") + 1 : names.index("mlp.up")] == ["mlp.dispatch", "mlp.sort"]


def test_clamps_pass_over_both_branches_and_join_them_again():
    """Forward both branches are read and written twice; backward the clamps read gradient and input and
    write, the joining reads and writes: 8 and 10 times the activation's output, half as wide as they are."""
    plan = SPREAD.with_(recompute_activation=True)
    gated = replace(ROUTED, gated=True)
    for layer, passes in ((forward_layer, 8), (backward_layer, 10)):
        items = layer(replace(gated, clamped=True), SPREAD.share)
        added = [one for one, _ in items if one.name in {"mlp.clamp", "mlp.clamped"}]
        [activated] = [one for one, _ in forward_layer(gated, SPREAD.share) if one.name == "mlp.activation"]
        assert sum(one.read_bytes + one.written_bytes for one in added) == passes * activated.written_bytes
        assert set(items) - set(added_to(items, added)) == set(layer(gated, SPREAD.share))
    again = [one.name for one, _ in backward_layer(replace(gated, clamped=True), plan.share)]
    assert again.count("mlp.clamp") == again.count("mlp.clamped") == 2


def added_to(items, added):
    return [item for item in items if item[0] in added]


def test_biases_of_experts_take_kernels_for_each():
    """Two for each of a rank's two experts forward, six backward (two products, two sums and two casts)."""
    biased = replace(ROUTED, mlp_bias=True)
    for layer, kernels in ((forward_layer, 4), (backward_layer, 12)):
        [added] = [one for one, _ in layer(biased, SPREAD.share) if one.name == "mlp.expert_bias"]
        assert added.kernels == kernels


def test_biases_of_experts_pass_over_their_results_seven_times():
    """A weighted bias is a product, a sum, a joining and a cast in single precision."""
    plain, biased = (forward_layer(replace(ROUTED, mlp_bias=bias), SPREAD.share) for bias in (False, True))
    [added] = set(biased) - set(plain)
    results = 2 * SPREAD.share.routed_tokens * ROUTED.experts_per_token * ROUTED.hidden
    assert added[0].name == "mlp.expert_bias"
    assert added[0].read_bytes == added[0].written_bytes == 7 * results
    dense = (forward_layer(replace(EVEN, mlp_bias=bias), SPREAD.with_(ep=1).share) for bias in (False, True))
    assert next(dense) == next(dense)


def test_a_rank_with_one_expert_need_not_sort():
    """Chunks of ranks are sorted by expert and back where there are several (arXiv:2201.05596)."""
    moved = 2 * 2 * SPREAD.share.tokens * ROUTED.hidden
    sorts = [one for one, _ in forward_layer(ROUTED, SPREAD.share) if one.name == "mlp.sort"]
    assert [one.read_bytes for one in sorts] == [one.written_bytes for one in sorts] == [moved, moved]
    for plan, config in ((SPREAD.with_(ep=1), ROUTED), (SPREAD, replace(ROUTED, experts=8))):
        assert not [one for one, _ in forward_layer(config, plan.share) if one.name == "mlp.sort"]


def test_gate_is_summed_over_all_ranks_and_experts_over_their_copies():
    """arXiv:2103.13262: gates are synchronised over the world, experts over their replicas."""
    step = build_step(ROUTED, SPREAD.with_(dp=16, ep=8))
    sums = [
        t.operator
        for t in step.tasks
        if isinstance(t.operator, Collective) and t.operator.name == "gradients"
    ]
    by_axis = {one.axis: sum(o.payload_bytes for o in sums if o.axis == one.axis) / 4 for one in sums}
    experts = ROUTED.layers * ROUTED.expert_matrices * ROUTED.experts / 8
    assert {(one.axis, one.size) for one in sums} == {("dp", 16), ("edp", 2)}
    assert by_axis["edp"] == experts
    rest = ROUTED.parameters - ROUTED.layers * ROUTED.expert_matrices * ROUTED.experts
    assert by_axis["dp"] == rest


# Two levels


def wire(plan):
    """Return what a rank puts on the wire in one exchange, over nodes of four, in units of its payload."""
    graph = build_step(ROUTED, plan)
    trace = Simulation(graph, NODE, StarOfNodes(endpoints=8)).run()
    payload = 2 * 2 * plan.share.tokens * ROUTED.hidden
    exchanges = 4 * ROUTED.layers * plan.microbatches
    return trace.network_bytes["ep"] / 8 / exchanges / payload, trace.algorithms["ep all_to_all"]


def test_exchange_in_two_levels_runs_in_the_engine():
    """3/4 inside the node and 1/2 across (HetuMoE, arXiv:2203.14685); a token once per node: a node with 8 of
    16 experts is missed by both of a token's copies with chance (8 x 7) / (16 x 15)."""
    share, name = wire(SPREAD.with_(expert_exchange=ExpertExchange.HIERARCHICAL))
    assert (share, name) == (pytest.approx(3 / 4 + 1 / 2), "hierarchical")
    share, name = wire(SPREAD.with_(expert_exchange=ExpertExchange.ONCE_PER_NODE))
    visited = 2 * (1 - 8 * 7 / (16 * 15))
    assert (share, name) == (pytest.approx(3 / 4 + visited / 2 / 2), "hierarchical")
    assert wire(SPREAD) == (pytest.approx(7 / 8), "direct")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expert_exchange=hierarchical,ep=1", "expert_exchange=hierarchical needs expert ranks"),
        ("capacity_factor=-1", r"capacity_factor \(-1\) must be 0"),
        ("capacity_factor=nan", r"capacity_factor \(nan\) must be 0"),
        ("capacity_factor=much", "capacity_factor must be a number; got 'much'"),
        ("expert_imbalance=9", r"expert_imbalance \(9\) must be from 1 .* try 2"),
        ("expert_affinity=4", r"expert_affinity \(4\) must be from 1 .*\(3.5\); try 2"),
        ("expert_affinity=nan", r"expert_affinity \(nan\) must be from 1"),
        ("expert_affinity=2,capacity_factor=1", r"leave capacity_factor \(1\) out"),
        ("expert_affinity=2,ep=1", r"expert_affinity \(2\) must be from 1"),
        ("expert_patterns=2", "of an even router are all the same"),
        ("expert_patterns=8,expert_affinity=2", r"expert_patterns \(8\) must be at most .* \(7\); try 2"),
        ("exchange_counts=true,capacity_factor=1", "leave capacity_factor"),
        ("exchange_counts=true,ep=1", r"raise ep \(1\)"),
    ],
)
def test_impossible_routing_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(ROUTED, parse_plan(text, base=SPREAD))


def test_capacity_needs_experts():
    with pytest.raises(WorkloadError, match="needs experts, and even has none"):
        check(EVEN, PLAN.with_(capacity_factor=1.0))


# Whole experts on tensor ranks


def test_whole_experts_take_tensor_ranks_into_their_groups():
    """Expert tensor parallelism of 1 (Megatron-LM): expert groups span tensor, context and data ranks; each
    rank sends its share of the tokens, and nothing of the experts is gathered or summed over tensor ranks."""
    cut = PLAN.with_(tp=2, dp=4, ep=4)
    whole = cut.with_(ep=8, whole_experts=True)
    assert product_flops(build_step(ROUTED, whole)) == product_flops(build_step(ROUTED, cut))
    elements = 2 * whole.share.tokens / 2 * ROUTED.hidden
    expected = 4 * ROUTED.layers * whole.microbatches * 2 * elements * 7 / 8
    assert sent(ROUTED, whole, "ep") == pytest.approx(expected)
    saved = sent(ROUTED, cut, "tp") - sent(ROUTED, whole, "tp")
    # Copies of tokens no longer gathered before and summed after experts, forward and backward.
    assert saved == pytest.approx(
        4 * ROUTED.layers * whole.microbatches * 2 * 2 * whole.share.tokens * 64 / 2
    )


def test_whole_experts_are_held_and_summed_by_their_replicas():
    whole = PLAN.with_(tp=2, dp=8, ep=8, whole_experts=True)
    step = build_step(ROUTED, whole)
    every = [t.operator for t in step.tasks if isinstance(t.operator, Collective)]
    sums = [one for one in every if one.axis == "edp" and one.name == "gradients"]
    assert {one.size for one in sums} == {2}
    assert sum(one.payload_bytes for one in sums) / 4 == ROUTED.layers * ROUTED.expert_matrices * 16 / 8
    groups = {axis: step.layout.groups(axis, 0) for axis in ("ep", "edp")}
    assert groups["ep"].tolist() == [list(range(8)), list(range(8, 16))]
    assert groups["edp"].tolist() == [[rank, rank + 8] for rank in range(8)]
    one, two = (memory_by_kind(ROUTED, whole.with_(zero=zero), 0)["optimizer"] for zero in (1, 0))
    assert one < two / 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("whole_experts=true", r"raise tp \(1\)"),
        ("whole_experts=true,tp=2,sequence_parallel=false", "sequence_parallel=true"),
        ("whole_experts=true,tp=2,dp=4,ep=16", r"expert \(16\) must divide tensor x data \(8\)"),
    ],
)
def test_impossible_whole_experts_are_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(ROUTED, parse_plan(text, base=SPREAD))
