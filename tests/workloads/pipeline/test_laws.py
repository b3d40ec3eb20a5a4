"""Plans run in the engine on an ideal machine, where the textbook's laws hold to the last digit."""

from dataclasses import replace

import pytest

from simulator.errors import WorkloadError
from simulator.operators import Collective
from tests.workloads.ideal import EVEN, PLAN, ideal_s, product_flops, run, sent, sequences
from workloads.models.config import load_model
from workloads.pipeline import schedules
from workloads.pipeline.schedule import PassTimes, Pipeline, balanced_layers, play
from workloads.plan.plan import Plan, parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.step import build_step

# Interleaved 1F1B


@pytest.mark.parametrize(("pp", "vpp", "microbatches"), [(2, 2, 4), (4, 2, 8), (4, 4, 4), (2, 8, 16)])
def test_interleaving_divides_the_bubble_by_the_chunks(pp, vpp, microbatches):
    """(p-1)/(v m) of the ideal time (arXiv:2104.04473, section 2.2.2)."""
    plan = PLAN.with_(pp=pp, vpp=vpp, global_batch=microbatches)
    took = run(EVEN, plan).makespan_s
    assert took / ideal_s(EVEN, plan) - 1 == pytest.approx((pp - 1) / (vpp * microbatches), rel=1e-2)


@pytest.mark.parametrize("stages", [2, 3, 5, 8])
@pytest.mark.parametrize("chunks", [2, 3])
def test_any_number_of_microbatches_interleaves_without_further_waiting(stages, chunks):
    """(p-1)/v passes idle as with whole groups; fewer microbatches than stages follow each other by 1/v."""
    for microbatches in range(1, 3 * stages):
        pipeline = Pipeline(
            schedule=schedules.ONE_FORWARD_ONE_BACKWARD, stages=stages, microbatches=microbatches, vpp=chunks
        )
        took = max(one.end for one in play(pipeline, PassTimes(forward=1, inputs=1, weights=1)))
        idle = (stages - 1) / chunks
        ideal = microbatches + idle if microbatches >= stages else stages + (microbatches - 1) / chunks
        assert took == pytest.approx(3 * ideal)
        ahead = 2 * (stages - 1) + (chunks - 1) * -(-microbatches // max(1, microbatches // stages))
        assert pipeline.kept(0, (1.0,) * chunks) <= min(ahead + 1, microbatches * chunks)


def test_stages_that_hold_the_embedding_or_the_head_alone_lose_no_work():
    """Llama 3's 126 blocks on 16 stages of 8 chunks (arXiv:2407.21783, section 3.3.2), here 14 on 4 of 4."""
    config = replace(EVEN, layers=14)
    plan = PLAN.with_(pp=4, vpp=4, embedding_as_layers=True)
    check(config, plan)
    step = build_step(config, plan)
    assert product_flops(step) == step.model_flops
    held = [memory_by_kind(config, plan, stage)["weights"] for stage in range(4)]
    assert held[0] < held[1] == held[2] > held[3]
    assert run(config, plan).makespan_s < run(config, plan.with_(vpp=1)).makespan_s


def test_interleaving_sends_v_times_as_much_between_stages():
    plan = PLAN.with_(pp=4)
    message = 2 * plan.share.tokens * EVEN.hidden
    plain = run(EVEN, plan).network_bytes["pp"]
    assert plain == 2 * (4 - 1) * plan.microbatches * message
    for vpp in (2, 4):
        sends = run(EVEN, plan.with_(vpp=vpp)).network_bytes["pp"]
        assert sends == 2 * (4 * vpp - 1) * plan.microbatches * message


@pytest.mark.parametrize(("pp", "vpp"), [(4, 2), (8, 2), (4, 4)])
def test_interleaving_keeps_p_minus_1_over_pv_more(pp, vpp):
    """Korthikanti et al., arXiv:2205.05198, section 4.2.3."""
    plan = PLAN.with_(pp=pp, global_batch=4 * pp)
    plain = memory_by_kind(EVEN, plan, 0)["activations"]
    more = memory_by_kind(EVEN, plan.with_(vpp=vpp), 0)["activations"]
    assert more / plain == pytest.approx(1 + (pp - 1) / (pp * vpp), rel=1e-12)


def test_interleaving_loses_no_work_and_no_parameter():
    uneven = replace(EVEN, layers=13, vocabulary=512)
    plan = PLAN.with_(pp=2, vpp=3, dp=2, tp=2)
    step = build_step(uneven, plan)
    assert product_flops(step) == step.model_flops
    held = [memory_by_kind(uneven, plan.with_(tp=1), stage)["weights"] for stage in range(2)]
    assert sum(held) == 2 * uneven.parameters
    gradients = [
        t.operator
        for t in step.tasks
        if isinstance(t.operator, Collective) and t.operator.name == "gradients"
    ]
    whole = build_step(uneven, plan.with_(vpp=1))
    assert sum(g.payload_bytes for g in gradients) == sum(
        t.operator.payload_bytes
        for t in whole.tasks
        if isinstance(t.operator, Collective) and t.operator.name == "gradients"
    )
    assert run(uneven, plan).makespan_s > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vpp=2", r"vpp \(2\) must be 1 without pipeline stages"),
        ("vpp=2,pp=2,schedule=gpipe", "needs schedule=1f1b, not gpipe"),
        ("vpp=9,pp=2", r"pipeline x vpp \(2 x 9\) must be at most layers \(16\); try vpp of 8 or less"),
        (
            "vpp=10,pp=2,embedding_as_layers=true",
            r"at most layers, embedding and head \(18\); try vpp of 9 or less",
        ),
    ],
)
def test_impossible_interleaving_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(EVEN, parse_plan(text, base=PLAN))


# Split backward passes


@pytest.mark.parametrize(("pp", "microbatches"), [(2, 4), (4, 8), (8, 8)])
def test_zero_bubble_is_a_third_of_1f1b(pp, microbatches):
    """(p-1)(F + B - W) instead of (p-1)(F + B + W), all equal here (arXiv:2401.10241, table 2)."""
    flat = replace(EVEN, heads=1, kv_heads=1, head_dim=1)
    plan = PLAN.with_(pp=pp, global_batch=microbatches, sequence_length=8)
    ideal = ideal_s(flat, plan)
    plain, split = (
        run(flat, plan.with_(schedule=kind)).makespan_s / ideal - 1
        for kind in (schedules.ONE_FORWARD_ONE_BACKWARD, schedules.ZERO_BUBBLE)
    )
    assert plain == pytest.approx((pp - 1) / microbatches, rel=5e-3)
    assert split == pytest.approx((pp - 1) / microbatches / 3, rel=5e-3)


@pytest.mark.parametrize(("pp", "microbatches"), [(2, 4), (4, 8), (8, 16), (8, 20)])
def test_dualpipe_halves_the_zero_bubble(pp, microbatches):
    """(p/2-1)(F + B - W), B and W the halves of the backward pass (arXiv:2412.19437, table 2)."""
    flat = replace(EVEN, heads=1, kv_heads=1, head_dim=1)
    plan = PLAN.with_(pp=pp, global_batch=microbatches, sequence_length=8, schedule=schedules.DUALPIPE)
    bubble = run(flat, plan).makespan_s / ideal_s(flat, plan) - 1
    assert bubble == pytest.approx((pp / 2 - 1) / microbatches / 3, rel=5e-3, abs=2e-3)


def test_split_passes_lose_no_work():
    for schedule in (schedules.ZERO_BUBBLE, schedules.DUALPIPE):
        for zero in (0, 1, 2, 3):
            plan = PLAN.with_(pp=4, dp=2, tp=2, schedule=schedule, zero=zero)
            step = build_step(replace(EVEN, vocabulary=512), plan)
            assert product_flops(step) == step.model_flops


def test_zero_bubble_keeps_as_much_everywhere_as_1f1b_on_its_first_stage():
    plan = PLAN.with_(pp=4, schedule=schedules.ZERO_BUBBLE)
    plain = plan.with_(schedule=schedules.ONE_FORWARD_ONE_BACKWARD)
    first = memory_by_kind(EVEN, plain, 0)["activations"]
    assert {memory_by_kind(EVEN, plan, stage)["activations"] for stage in range(4)} == {first}
    assert schedules.ZERO_BUBBLE.in_flight(4, 2, 0) == 2


def test_dualpipe_keeps_two_copies_and_one_microbatch_more_than_stages():
    plan = PLAN.with_(pp=4, schedule=schedules.DUALPIPE)
    plain = plan.with_(schedule=schedules.ONE_FORWARD_ONE_BACKWARD)
    for stage in range(4):
        two, one = memory_by_kind(EVEN, plan, stage), memory_by_kind(EVEN, plain, 0)
        assert two["activations"] == one["activations"] / 4 * (4 + 1)
    whole = sum(memory_by_kind(EVEN, plan, stage)["weights"] for stage in range(4))
    assert whole == 2 * 2 * EVEN.parameters
    kept = sum(memory_by_kind(EVEN, plan, stage)["optimizer"] for stage in range(4))
    assert kept == 12 * EVEN.parameters


def test_dualpipe_sums_its_two_copies():
    plan = PLAN.with_(pp=4, schedule=schedules.DUALPIPE)
    step = build_step(EVEN, plan)
    sends = [t.operator for t in step.tasks if isinstance(t.operator, Collective)]
    sums = [one for one in sends if one.name == "gradients"]
    assert sorted(one.shift for one in sums) == [-3, -1, 1, 3]
    assert sum(one.payload_bytes for one in sums) == 4 * EVEN.parameters
    assert sum(one.payload_bytes for one in sends if one.name == "parameters") == 2 * EVEN.parameters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schedule=dualpipe,pp=3", r"pipeline \(3\) must be even with schedule=dualpipe; try 4"),
        (
            "schedule=dualpipe,pp=8,global_batch=12",
            r"microbatches \(12\) must be even",
        ),
        ("schedule=zerobubble", "schedule must be one of 1f1b, gpipe, zero_bubble, dualpipe"),
    ],
)
def test_impossible_split_schedule_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(EVEN, parse_plan(text, base=PLAN))


# Shares of blocks


def test_embedding_and_head_count_as_blocks_for_bloom():
    """BLOOM on 12 stages: 5, 6, ..., 6, 5 (bigscience chronicles)."""
    assert balanced_layers(70, 12) == (5, *(6,) * 10, 5)
    assert balanced_layers(16, 4) == (3, 5, 5, 3)
    assert balanced_layers(16, 1) == (16,)


@pytest.mark.parametrize(("pp", "vpp", "layers"), [(4, 1, 16), (2, 4, 16), (16, 1, 16), (4, 2, 9)])
def test_counting_embeddings_loses_no_work(pp, vpp, layers):
    for zero in (1, 3):
        plan = PLAN.with_(pp=pp, vpp=vpp, dp=1 if zero == 1 else 2, global_batch=32, zero=zero)
        plan = plan.with_(embedding_as_layers=True)
        config = replace(EVEN, layers=layers)
        step = build_step(config, plan)
        assert product_flops(step) == step.model_flops
        assert run(config, plan).makespan_s > 0
        assert sum(memory_by_kind(config, plan, stage)["optimizer"] for stage in range(pp)) > 0


# ZeRO and FSDP


def test_states_of_7_5_billion_on_64_ranks_are_those_of_the_paper():
    """ZeRO, arXiv:1910.02054, figure 1: 120, 31.4, 16.6 and 1.9 GB with two-byte gradients."""
    config = load_model("llama-3-8b")
    plan = Plan.of(dp=64, global_batch=64, grad_bytes=2, vocabulary_multiple=1)
    for zero, gigabytes in ((0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)):
        states = state_bytes(config, plan.with_(zero=zero, stored_shards=zero == 3))
        assert states / config.parameters * 7.5 == pytest.approx(gigabytes, abs=0.05)


def state_bytes(config, plan):
    return sum(memory_by_kind(config, plan, 0)[kind] for kind in ("weights", "gradients", "optimizer"))


@pytest.mark.parametrize(
    ("text", "alone", "stored"),
    [
        ("precision=bf16", 16, 18),
        ("precision=bf16,grad_bytes=2", 16, 16),  # what was summed in two bytes is kept in four
        ("precision=fp8", 16, 18),
        ("precision=fp8,fp8_params=true", 16, 17),
        ("precision=bf16,master_bytes=2", 14, 14),  # stored weights are their own masters
        ("precision=fp32", 16, 16),
    ],
)
def test_shards_are_the_optimizers_copies_alone_unless_they_are_stored_too(text, alone, stored):
    """PyTorch's FSDP and DeepSpeed: master 4, moments 8, gradient 4 bytes, and a shard as it is stored."""
    plan = parse_plan(text, base=PLAN.with_(dp=8, global_batch=8, zero=3))
    found = [state_bytes(EVEN, plan.with_(stored_shards=stores)) for stores in (False, True)]
    each = EVEN.parameters / 8
    assert found == pytest.approx([alone * each, stored * each], rel=1e-12)
    kept = plan.with_(reshard=False)
    assert state_bytes(EVEN, kept) == pytest.approx(found[0] + plan.precision.held_bytes * EVEN.parameters)
    lone = [memory_by_kind(EVEN, plan.with_(dp=1, stored_shards=one), 0)["buffers"] for one in (False, True)]
    in_use = 2 * EVEN.layer_parameters + EVEN.embedding_parameters + EVEN.head_parameters
    casts = plan.precision.held_bytes if plan.precision.keeps_master else 0
    assert lone[0] - lone[1] == pytest.approx(casts * in_use)


def test_zero_3_sends_half_as_much_again():
    """2 parameters' worth of elements a step up to stage 2, 3 in stage 3 (arXiv:1910.02054, section 7)."""
    plan = PLAN.with_(dp=8, global_batch=8, grad_bytes=2)
    whole = 2 * EVEN.parameters * 7 / 8
    for zero, volumes in ((0, 2), (1, 2), (2, 2), (3, 3)):
        assert sent(EVEN, plan.with_(zero=zero), "dp") == pytest.approx(volumes * whole, rel=1e-9)
    kept = plan.with_(zero=3, reshard=False)
    assert sent(EVEN, kept, "dp") == pytest.approx(2 * whole, rel=1e-9)


def test_sharded_gradients_are_summed_for_every_microbatch():
    plan = PLAN.with_(dp=4, global_batch=16, grad_bytes=2)
    one = 2 * EVEN.parameters * 3 / 4
    assert sent(EVEN, plan.with_(zero=1), "dp") == pytest.approx((1 + 1) * one, rel=1e-9)
    assert sent(EVEN, plan.with_(zero=2), "dp") == pytest.approx((1 + 4) * one, rel=1e-9)
    assert sent(EVEN, plan.with_(zero=3), "dp") == pytest.approx((2 + 1) * 4 * one, rel=1e-9)


def test_fsdp_hides_its_traffic_but_for_the_first_gather_and_the_last_sum():
    plan = PLAN.with_(dp=4, global_batch=4, zero=3, grad_bytes=2)
    compute = ideal_s(EVEN, plan)
    block = 2 * EVEN.layer_parameters * 3 / 4
    port = 3 * EVEN.layers * block / (compute / 8)
    took = run(EVEN, plan, port=port).makespan_s
    exposed = took - compute
    assert 2 * block / port < exposed < 3 * block / port


def test_fsdp_on_a_slow_network_takes_the_networks_time():
    plan = PLAN.with_(dp=4, global_batch=4, zero=3, grad_bytes=2)
    compute = ideal_s(EVEN, plan)
    port = 3 * 2 * EVEN.parameters * 3 / 4 / (10 * compute)
    assert 10 < run(EVEN, plan, port=port).makespan_s / compute * (1 + 1e-9) < 11


def test_gather_runs_one_piece_ahead_of_compute():
    step = build_step(EVEN, PLAN.with_(dp=4, global_batch=4, zero=3))
    order = [t.id for t in sorted(sequences(step), key=lambda t: t.priority)]
    place = {identifier: index for index, identifier in enumerate(order)}
    gathers = [
        t for t in step.tasks if isinstance(t.operator, Collective) and t.operator.name == "parameters"
    ]
    for gather in gathers:
        (user,) = [t for t in sequences(step) if gather.id in t.after]
        waited = [place[identifier] for identifier in gather.after]
        assert not waited or waited == [place[user.id] - 2]


def test_sharding_over_stages_too_keeps_the_work_and_runs():
    for zero in (2, 3):
        for reshard in (True, False):
            plan = PLAN.with_(pp=2, vpp=2, dp=2, zero=zero, reshard=reshard)
            step = build_step(EVEN, plan)
            assert product_flops(step) == step.model_flops
            assert run(EVEN, plan).makespan_s > 0


def test_sharded_parameters_need_room_for_two_blocks_in_use():
    plan = PLAN.with_(dp=8, global_batch=8, grad_bytes=2)
    one, two, three = (memory_by_kind(EVEN, plan.with_(zero=zero), 0) for zero in (1, 2, 3))
    ends = EVEN.embedding_parameters + EVEN.head_parameters
    in_use = 2 * EVEN.layer_parameters + ends
    assert two["buffers"] - one["buffers"] == 2 * in_use
    assert three["buffers"] - one["buffers"] == 2 * 2 * in_use
    kept = memory_by_kind(EVEN, plan.with_(zero=3, reshard=False), 0)
    assert kept["weights"] - three["weights"] == 2 * EVEN.parameters


def test_there_is_no_fourth_stage():
    with pytest.raises(WorkloadError, match=r"zero \(4\) must be 0, 1, 2 or 3"):
        parse_plan("zero=4")
