"""What a step pays between its kernels: the host, sends that block, gathers that are not fetched ahead."""

from dataclasses import dataclass, replace

import pytest

from simulator.engine.simulation import Simulation
from simulator.interfaces import Cost
from simulator.operators import Collective, CollectiveKind, Elementwise, MatMul
from simulator.results import ISSUE, Stream
from tests.workloads.ideal import EVEN, NODE, PLAN, Star, Unit, ideal_s, run, sent, sequences
from workloads.layers.transformer import backward_head, forward_head, forward_layer
from workloads.models.architecture import Norm, Positions
from workloads.plan.parts import Attention, Graphs
from workloads.step.memory import head_bytes
from workloads.step.step import build_step

HOST_S = 2e-6
SLOW = 1e9


@dataclass(frozen=True, kw_only=True)
class Issued(Unit):
    """A unit whose operators take the host a while."""

    host_s: float = HOST_S

    def cost(self, operator):
        return replace_host(super().cost(operator), self.host_s)


def replace_host(cost, host_s):
    return Cost(time_s=cost.time_s, bound=cost.bound, host_s=host_s)


def issued(plan, host_s, *, fuse=True):
    graph = build_step(EVEN, plan)
    node = replace(NODE, units=(Issued(host_s=host_s),))
    return graph, Simulation(graph, node, Star(endpoints=plan.axes.ranks), fuse=fuse).run()


def test_a_host_that_is_fast_enough_costs_nothing():
    _, trace = issued(PLAN, 1e-12)
    assert trace.makespan_s == pytest.approx(run(EVEN, PLAN).makespan_s, rel=1e-9)
    assert not any(ISSUE in span.parts_s for span in trace.spans)


def test_a_slow_host_sets_the_time_by_operators():
    """Kernels are issued ahead: a run of operators takes the longer of host and accelerator, not both."""
    slow = 1e-3
    graph, trace = issued(PLAN, slow)
    count = sum(
        times
        for task in sequences(graph)
        for one, times in task.operator.items
        if not isinstance(one, Collective)
    )
    updates = sum(1 for task in graph.tasks) - len(sequences(graph))
    assert trace.makespan_s == pytest.approx(count * slow, rel=1e-2)
    assert updates >= 1
    waited = sum(span.parts_s.get(ISSUE, 0.0) for span in trace.spans)
    assert waited == pytest.approx(trace.makespan_s - ideal_s(EVEN, PLAN), rel=2e-2)


def test_the_host_issues_collectives_too():
    plan = PLAN.with_(tp=4)
    slow = 1e-3
    graph = build_step(EVEN, plan)
    node = replace(NODE, units=(Issued(host_s=slow),), collective_issue_s=slow)
    trace = Simulation(graph, node, Star(endpoints=4)).run()
    count = sum(times for task in sequences(graph) for _, times in task.operator.items)
    assert any(isinstance(one, Collective) for task in sequences(graph) for one, _ in task.operator.items)
    assert trace.makespan_s == pytest.approx(count * slow, rel=1e-2)


def test_what_a_host_replays_it_need_not_issue():
    """Of EVEN's forward block the graph of attention takes all but its norm; a fast host gains nothing."""
    slow = 1e-3
    plain, router, attention = (
        issued(PLAN.with_(graphs=one), slow)[1].makespan_s
        for one in (Graphs.NONE, Graphs.ROUTER, Graphs.ATTENTION)
    )
    assert router == plain > attention
    captured = sum(
        count for one, count in forward_layer(EVEN, PLAN.with_(graphs=Graphs.ATTENTION).share) if one.replayed
    )
    assert 0 < captured < sum(count for _, count in forward_layer(EVEN, PLAN.share))
    fast = issued(PLAN.with_(graphs=Graphs.ATTENTION), 1e-12)[1].makespan_s
    assert fast == pytest.approx(run(EVEN, PLAN).makespan_s, rel=1e-9)


def test_kernels_of_one_operator_are_further_launches():
    """Without fusion a norm is six kernels; the host issues one operator and launches five more."""
    rms = replace(EVEN, norm=Norm.RMS, positions=Positions.ROTARY)
    counts = {}
    for fused in (True, False):
        items = forward_layer(rms, PLAN.with_(fused=fused).share)
        work = [one for one, _ in items if isinstance(one, Elementwise)]
        counts[fused] = sum(one.issued for one in work), sum(one.kernels for one in work)
    assert counts[True][0] == counts[False][0]
    assert counts[True][1] == 0 < counts[False][1]


def test_the_graph_of_a_router_leaves_a_mixture_less_to_issue():
    mixture = replace(EVEN, experts=4, experts_per_token=2)
    plans = [PLAN.with_(graphs=one) for one in (Graphs.NONE, Graphs.ROUTER, Graphs.ATTENTION)]
    counts = [sum(one.replayed for one, _ in forward_layer(mixture, plan.share)) for plan in plans]
    assert counts == sorted(counts)
    assert counts[:2] == [0, 2]


@pytest.mark.parametrize("plan", [PLAN, PLAN.with_(tp=4), PLAN.with_(tp=2, dp=2, zero=3)])
def test_fused_and_single_events_wait_for_the_host_alike(plan):
    fused, single = (issued(plan, 1e-4, fuse=fuse)[1].makespan_s for fuse in (True, False))
    assert fused == pytest.approx(single, rel=1e-9)


def test_blocking_sends_stand_between_the_passes():
    """Megatron-LM waits for its sends: nothing of a stage runs while its output is on the way."""
    plan = PLAN.with_(pp=4, global_batch=8)
    blocking = plan.with_(overlap_sends=False)
    free, blocked = (run(EVEN, one, port=SLOW) for one in (plan, blocking))
    assert blocked.makespan_s > free.makespan_s
    work = [span for span in blocked.spans if span.stream is Stream.COMPUTE and span.microbatch >= 0]
    for send in (span for span in blocked.spans if span.stream is Stream.NETWORK and span.peer_class >= 0):
        others = [one for one in work if one.rank_class == send.rank_class]
        assert all(one.end_s <= send.start_s + 1e-15 or one.start_s >= send.end_s - 1e-15 for one in others)


def test_blocking_sends_cost_nothing_on_a_fast_network():
    plan = PLAN.with_(pp=4, overlap_sends=False)
    assert run(EVEN, plan).makespan_s == pytest.approx(run(EVEN, plan.with_(overlap_sends=True)).makespan_s)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_ranks_send_a_share_each(sequence_parallel):
    """2 b s h / t bytes a boundary and rank, each way (scatter and gather, arXiv:2104.04473, section 4.1)."""
    plan = PLAN.with_(tp=4, pp=2, sequence_parallel=sequence_parallel)
    stream = 2 * plan.share.tokens * EVEN.hidden
    both_ways = 2 * plan.microbatches * stream / plan.axes.tp
    assert sent(EVEN, plan, "pp") * plan.axes.pp == pytest.approx(both_ways)


def test_whole_activations_are_gathered_where_ranks_need_them():
    """Without sequence parallelism the receiver's ranks gather what each got a share of (section 4.1)."""
    step = build_step(EVEN, PLAN.with_(tp=4, pp=2, sequence_parallel=False))
    gathers = [
        task.operator
        for task in step.tasks
        if isinstance(task.operator, Collective) and task.operator.kind is CollectiveKind.ALL_GATHER
    ]
    assert len(gathers) == 2 * PLAN.microbatches
    assert {one.axis for one in gathers} == {"tp"}


def test_parameters_are_gathered_block_by_block():
    """Every block's parameters travel in a collective of their own (FSDP); few tasks stand for them."""
    step = build_step(EVEN, PLAN.with_(dp=4, zero=3, global_batch=4))
    forward = [
        task
        for task in step.tasks
        if isinstance(task.operator, Collective) and task.operator.kind is CollectiveKind.ALL_GATHER
    ]
    assert sum(task.multiplicity for task in forward) == 2 * EVEN.layers
    assert len(forward) < 2 * EVEN.layers


def test_without_prefetch_nothing_is_computed_while_parameters_travel():
    """DeepSpeed's first ZeRO-3 gathered matrices when they were used, and the work waited."""
    plan = PLAN.with_(dp=4, zero=3, global_batch=4)
    ahead, waiting = (run(EVEN, plan.with_(prefetch=flag), port=SLOW) for flag in (True, False))
    assert waiting.makespan_s > 1.05 * ahead.makespan_s
    work = [one for one in waiting.spans if one.stream is Stream.COMPUTE and one.microbatch >= 0]
    gathers = [one for one in waiting.spans if one.stream is Stream.NETWORK and "parameters" in one.name]
    assert gathers
    for gather in gathers:
        assert not any(
            one.start_s < gather.end_s - 1e-15 and gather.start_s < one.end_s - 1e-15 for one in work
        )


def test_the_loss_reads_and_writes_single_precision():
    """A cast (2 read, 4 written) and a softmax that reads twice (8) and writes once (4) for every logit."""
    config = replace(EVEN, vocabulary=1000)
    step = build_step(config, PLAN)
    loss = next(
        one
        for task in sequences(step)
        for one, _ in task.operator.items
        if one.name == "head.loss" and not isinstance(one, MatMul | Collective)
    )
    logits = PLAN.share.tokens * PLAN.axes.padded_vocabulary(config)
    assert loss.read_bytes == 10 * logits
    assert loss.written_bytes == 8 * logits


def test_a_fused_loss_leaves_its_gradient_where_the_logits_were():
    """Two reads and one write of two bytes a logit, nothing backward, and no copy of four bytes in memory."""
    config = replace(EVEN, vocabulary=1000)
    plan = PLAN.with_(fused_loss=True)
    logits = plan.share.tokens * plan.axes.padded_vocabulary(config)
    losses = [
        one
        for one, _ in (*forward_head(config, plan.share), *backward_head(config, plan.share))
        if one.name == "head.loss" and not isinstance(one, MatMul | Collective)
    ]
    assert [(one.read_bytes, one.written_bytes) for one in losses] == [(4 * logits, 2 * logits)]
    assert head_bytes(config, PLAN) - head_bytes(config, plan) == 4 * logits


def test_losses_that_are_only_logged_are_read_forward_and_never_backward():
    """Each is cast, read twice and written once in single precision; the loss that is trained on stays."""
    config = replace(EVEN, vocabulary=1000)
    plan = PLAN.with_(fused_loss=True, logged_losses=2)
    logits = plan.share.tokens * plan.axes.padded_vocabulary(config)
    forward = [one for one, _ in forward_head(config, plan.share) if one.name == "head.logged_loss"]
    assert [(one.read_bytes, one.written_bytes) for one in forward] == [(10 * logits, 8 * logits)] * 2
    assert not [one for one, _ in backward_head(config, plan.share) if one.name == "head.logged_loss"]
    assert plan.with_(logged_losses=0) == PLAN.with_(fused_loss=True)


def traffic_by_name(config, plan):
    found = {}
    for one, times in forward_layer(config, plan.share):
        if not isinstance(one, MatMul | Collective):
            moved = one.read_bytes + one.written_bytes
            found[one.name] = found.get(one.name, 0.0) + times * moved
    return found


def test_kernels_that_are_not_fused_pass_their_tensors_on_through_memory():
    """Scale, mask and softmax take 3 x (2 + 2) a s bytes a score instead of 4; the work stays the same."""
    config = replace(EVEN, norm=Norm.RMS, positions=Positions.ROTARY, gated=True, dropout=True)
    plan = PLAN.with_(attention=Attention.FULL)
    fused, apart = (traffic_by_name(config, plan.with_(fused=flag)) for flag in (True, False))
    assert set(fused) == set(apart)
    ratios = {name: apart[name] / fused[name] for name in fused}
    # Fused and apart, in tensors moved: 2 and 6; 2 + 1 and 2 + 3; 3.5 and 2.5 + 3. In single precision
    # rotation goes by 3 + 4 + 3, an RMS norm by 3 + 4 + 2 + 4 + 3 + 2.
    assert ratios["attention.softmax"] == pytest.approx(3)
    assert ratios["mlp.activation"] == pytest.approx(5 / 3)
    assert ratios["attention.rotary"] == pytest.approx(10 / 2)
    assert ratios["mlp.norm"] == pytest.approx(18 / 2)
    assert ratios["mlp.residual"] == pytest.approx(5.5 / 3.5)
    work = [
        sum(one.flops * times for one, times in forward_layer(config, plan.with_(fused=flag).share))
        for flag in (True, False)
    ]
    assert work[0] == pytest.approx(work[1])


def test_a_flash_kernel_stays_fused():
    plan = PLAN.with_(attention=Attention.FLASH, fused=False)
    assert traffic_by_name(EVEN, plan)["attention.softmax"] == 0.0
