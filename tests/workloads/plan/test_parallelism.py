"""Plans: their text, the rules they keep, and the plan for somebody who names none."""

import dataclasses
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import WorkloadError
from workloads.models.architecture import Recurrence, State
from workloads.models.config import load_model
from workloads.pipeline.schedule import SCHEDULES, stage_layers
from workloads.plan.parts import Attention, Place, Precision, Recompute
from workloads.plan.plan import (
    KEYS,
    PARTS,
    Plan,
    default_sequence_length,
    parse_plan,
    plan_text,
)
from workloads.plan.rules import RULES, check
from workloads.step.memory import check_fits, default_plan, fullest_stage, memory_by_kind
from workloads.step.sharding import part_parameters, stage_parts, whole_stage

LLAMA = load_model("llama-3-8b")


def test_text_becomes_a_plan():
    plan = parse_plan("tp=8, pp=4,dp=2,micro_batch=1,global_batch=64,recompute=full,sequence_parallel=false,")
    assert plan == Plan.of(
        tp=8, pp=4, dp=2, global_batch=64, recompute=Recompute.FULL, sequence_parallel=False
    )


def test_long_names_are_understood():
    assert parse_plan("tensor=2,pipeline=3,data=4,sequence=128") == parse_plan(
        "tp=2,pp=3,dp=4,sequence_length=128"
    )


def test_every_field_of_every_part_has_one_key():
    fields = [(part, item.name) for part, kind in PARTS.items() for item in dataclasses.fields(kind)]
    assert sorted(KEYS.values()) == sorted(fields)
    assert len(KEYS) == len(fields) == 66


values = st.fixed_dictionaries(
    {},
    optional={
        "tp": st.integers(1, 9),
        "vpp": st.integers(1, 3),
        "zero": st.integers(1, 3),
        "precision": st.sampled_from(Precision),
        "recompute": st.sampled_from(Recompute),
        "weight_density": st.floats(0.01, 1.0),
        "attention": st.sampled_from(Attention),
        "attention_keys": st.integers(0, 4096),
        "expert_imbalance": st.floats(0.0, 9.0),
        "optimizer_place": st.sampled_from([Place.DEVICE, Place.HOST, Place.NVME]),
    },
)


@given(values=values)
def test_a_plan_is_read_back_from_its_text(values):
    plan = Plan.of(**values)
    assert parse_plan(plan_text(plan)) == plan
    assert {key: plan.value(key) for key in values} == values
    assert {key: plan.record()[key] for key in values} == values
    assert list(plan.record()) == ["type", *KEYS]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_plan_is_read_back_with_every_schedule(name):
    plan = parse_plan(f"schedule={name}")
    assert plan.schedule.kind is SCHEDULES[name]
    assert parse_plan(plan_text(plan)) == plan == pickle.loads(pickle.dumps(plan))


def test_a_text_tells_its_accelerators():
    assert parse_plan("tp=8,pp=4,dp=2,cp=2,ep=2").axes.ranks == 128
    assert parse_plan("micro_batch=2").axes.ranks == 1
    with pytest.raises(WorkloadError, match="unknown key"):
        parse_plan("tpp=2")


def test_every_rule_can_say_what_is_wrong():
    """A text's fields are those of a model and a plan; one of all families has all."""
    retro = load_model("retro-425m")
    sizes = {item.name: getattr(retro, item.name) for item in dataclasses.fields(retro)}
    states = Recurrence(kind=State.SSD, heads=8)
    every = SimpleNamespace(
        **sizes
        | {"hidden": 100, "dense_ffn_hidden": 64, "context_width": retro.context_width, "recurrence": states}
    )
    plan = Plan.of(weight_density=0.5, tp=3)
    said = [str(rule.error(plan, every)) for rule in RULES]
    said += [str(rule.error(getattr(plan, name))) for name in PARTS for rule in PARTS[name].RULES]
    assert len(said) > 60
    for sentence in said:
        assert not set("{}") & set(sentence)
        assert sentence.isprintable()


def test_an_unknown_key_is_refused():
    with pytest.raises(WorkloadError, match=r"plan: unknown key 'tpp'; did you mean '[td]p'"):
        Plan.of(tpp=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor_depth=2", r"tensor_depth \(2\) must be 1 with tensor_grid=1d"),
        ("schedule=gpipe,vpp=2", r"vpp \(2\) needs schedule=1f1b, not gpipe"),
        ("parameter_place=host", "needs parameters that are given up after every pass; try zero=3"),
        ("zero=0,optimizer_place=host", "needs an optimizer that ranks share, not zero=0; try zero=2"),
        ("delay=2", r"delay \(2\) needs exchange=parameter_server"),
        ("capacity_factor=1e4", "must be 0 .no capacity. or at most 1000; try 1.25"),
        ("weight_density=0", r"weight_density \(0.0\) must be above 0 and at most 1"),
        ("weight_sparsity=2:4,precision=fp32", "needs a master copy to prune from"),
    ],
)
def test_what_one_part_cannot_be_is_refused_when_it_is_made(text, message):
    with pytest.raises(WorkloadError, match=message):
        parse_plan(text)


def test_silence_keeps_the_base():
    base = Plan.of(tp=4, attention=Attention.FULL)
    assert parse_plan("pp=2", base=base) == base.with_(pp=2)
    assert parse_plan("", base=base) == base


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp", "'tp' must read key=value"),
        ("tp=", "'tp=' must read key=value"),
        ("tp=8 dp=8", "'tp=8 dp=8' must be one key=value; put a comma between two"),
        ("tpp=8", "unknown key 'tpp'; did you mean '[td]p'"),
        ("micro_bach=8", "unknown key 'micro_bach'; did you mean 'micro_batch'"),
        ("tensor_model_parallel_size=8", "unknown key 'tensor_model_parallel_size'; write tp "),
        ("--pipeline-model-parallel-size=8", "unknown key '--pipeline-model-parallel-size'; write pp "),
        ("local_batch_size=2", "unknown key 'local_batch_size'; write micro_batch"),
        ("fsdp=true", "unknown key 'fsdp'; write zero=3"),
        ("tp=2,tp=4", "'tp' stands twice"),
        ("tp=2,tensor=4", "'tp' stands twice"),
        ("tp=two", "tp must be a whole number; got 'two'"),
        ("tp=2.0", "tp must be a whole number; got '2.0'"),
        ("tp=1e3", "tp must be a whole number; got '1e3'"),
        ("tp=²", "tp must be a whole number"),
        ("tp=nan", "tp must be a whole number"),
        ("tp=0", "tp must be a whole number of at least 1; got 0"),
        ("tp=-2", "tp must be a whole number of at least 1; got -2"),
        ("zero=4", r"zero \(4\) must be 0, 1, 2 or 3"),
        ("grad_bytes=3", r"grad_bytes \(3\) must be 2 or 4"),
        ("recompute=some", "recompute must be one of none, selective, full; got 'some'"),
        ("sequence_parallel=yes", "sequence_parallel must be true or false; got 'yes'"),
    ],
)
def test_bad_text_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        parse_plan(text)


@pytest.mark.parametrize("value", [True, 2.0, "2", None])
def test_plan_takes_whole_numbers_only(value):
    with pytest.raises(WorkloadError, match="plan: tp must be a whole number"):
        Plan.of(tp=value)


def test_plan_takes_known_choices_only():
    with pytest.raises(WorkloadError, match=r"must be of type Attention, no text \(parse_plan reads text\)"):
        Plan.of(attention="flash")
    with pytest.raises(WorkloadError, match="attention must be one of full, flash, flash_unmasked; got 3"):
        Plan.of(attention=3)


@pytest.mark.parametrize(
    ("model", "text", "message"),
    [
        ("gpt2", "tp=8", r"tensor \(8\) must divide heads \(12\); try 1, 2, 3, 4, 6 or 12"),
        ("palm-540b", "tp=32", r"tensor \(32\) must divide heads \(48\)"),
        ("llama-3-8b", "tp=8,sequence=6", r"tensor \(8\) must be at most the tokens of a microbatch \(6\)"),
        ("llama-3-8b", "recompute_projections=true", "needs latent attention, which llama-3-8b has not"),
        ("llama-3-8b", "pp=33", r"pipeline \(33\) must be at most layers \(32\)"),
        ("llama-3-8b", "cp=3", r"context \(3\) must divide sequence_length \(2048\)"),
        ("llama-3-8b", "ep=2,dp=2,global_batch=2", r"expert \(2\) must be 1: llama-3-8b has no experts"),
        ("mixtral-8x7b", "ep=3,dp=3,global_batch=3", r"expert \(3\) must divide experts \(8\)"),
        ("mixtral-8x7b", "ep=8,dp=4,global_batch=4", r"expert \(8\) must divide data \(4\); try 1, 2 or 4$"),
        ("mixtral-8x7b", "ep=8,dp=4,tp=2,global_batch=4", "try 1, 2 or 4, or whole_experts=true$"),
        ("llama-3-8b", "dp=3,micro_batch=2,global_batch=8", r"global_batch \(8\) .* = 6\); try 6 or 12"),
        ("llama-3-8b", "dp=16,global_batch=8", r"global_batch \(8\) must be a multiple .* try 16$"),
        ("gpt2", "sequence=2048", r"sequence_length \(2048\) must be at most 1024"),
    ],
)
def test_plan_that_does_not_fit_the_model_is_refused(model, text, message):
    with pytest.raises(WorkloadError, match=message):
        check(load_model(model), parse_plan(text))


def test_plan_must_take_all_accelerators():
    plan = parse_plan("tp=2,pp=2,dp=2,global_batch=2")
    check(LLAMA, plan, accelerators=8)
    with pytest.raises(WorkloadError, match=r"2 x 2 x 2 x 1 = 8 accelerators, but there are 16; try dp=4"):
        check(LLAMA, plan, accelerators=16)
    with pytest.raises(WorkloadError, match="4 does not divide 10"):
        check(LLAMA, plan, accelerators=10)


def test_sequence_length_defaults_to_the_models_own_up_to_8192():
    assert default_sequence_length(load_model("gpt2")) == 1024
    assert default_sequence_length(load_model("llama-3.1-405b")) == 8192


def test_vocabulary_is_padded_as_megatron_does():
    assert Plan.of(tp=8).axes.padded_vocabulary(load_model("gpt3-175b")) == 51200
    assert Plan.of(tp=1, vocabulary_multiple=1).axes.padded_vocabulary(load_model("gpt2")) == 50257


def test_llama_405b_on_16_stages_spares_the_first_and_the_last():
    assert stage_layers(126, 16) == (7, *(8,) * 14, 7)


@given(layers=st.integers(1, 200), pp=st.integers(1, 200))
def test_stages_share_all_blocks_evenly(layers, pp):
    if pp > layers:
        with pytest.raises(WorkloadError, match="must be from 1 to layers"):
            stage_layers(layers, pp)
        return
    stages = stage_layers(layers, pp)
    assert sum(stages) == layers
    assert max(stages) - min(stages) <= 1
    assert stages[-1] == min(stages)


@pytest.mark.parametrize("name", ["llama-3-8b", "bloom-176b", "mixtral-8x7b", "gpt2"])
def test_shards_add_up_to_the_model(name):
    config = load_model(name)
    plan = Plan.of(pp=1, vocabulary_multiple=1)
    assert part_parameters(config, plan, whole_stage(config, plan, 0)).total == config.parameters


def test_experts_are_shared_over_expert_parallel_ranks():
    config = load_model("mixtral-8x7b")
    alone = Plan.of(vocabulary_multiple=1)
    shared = Plan.of(vocabulary_multiple=1, ep=8, dp=8, global_batch=8)
    one, eight = (part_parameters(config, plan, whole_stage(config, plan, 0)) for plan in (alone, shared))
    assert one.expert == 8 * eight.expert
    assert one.dense == eight.dense


def test_parts_of_a_stage_are_the_stage():
    config = load_model("llama-3.1-405b")
    plan = Plan.of(tp=8, pp=16, grad_buckets=3)
    for stage in range(16):
        parts = stage_parts(config, plan, stage)
        assert len(parts) == 3
        held = [part_parameters(config, plan, part).total for part in parts]
        assert sum(held) == part_parameters(config, plan, whole_stage(config, plan, stage)).total


def test_default_plan_of_llama_405b_fits_and_is_deterministic():
    config = load_model("llama-3.1-405b")
    plan = default_plan(config, accelerators=1024, memory_bytes=80e9, global_batch=512)
    check(config, plan, accelerators=1024)
    check_fits(config, plan, 80e9)
    assert plan == default_plan(config, accelerators=1024, memory_bytes=80e9, global_batch=512)
    assert plan.axes.tp == 8
    assert plan.batch.sequence_length == 8192
    assert (plan.axes.pp - 1) / plan.microbatches < 0.3


def test_default_plan_uses_no_more_ranks_per_copy_than_memory_demands():
    roomy = default_plan(LLAMA, accelerators=64, memory_bytes=400e9, global_batch=512)
    tight = default_plan(LLAMA, accelerators=64, memory_bytes=60e9, global_batch=512)
    assert roomy.axes.tp * roomy.axes.pp == 1
    assert tight.axes.tp * tight.axes.pp > 1
    needed = sum(memory_by_kind(LLAMA, tight, fullest_stage(LLAMA, tight)).values())
    assert needed < 60e9


def test_tensor_ranks_that_are_proposed_keep_every_rule():
    config = dataclasses.replace(LLAMA, heads=24, kv_heads=6, ffn_hidden=8192)
    for wrong, rule in ((3, "ffn_hidden"), (4, "kv_heads"), (5, "heads")):
        with pytest.raises(WorkloadError, match=rf"must divide {rule} \(\d+\); try 1 or 2$"):
            check(config, Plan.of(tp=wrong, sequence_length=8192))
    check(config, Plan.of(tp=2, sequence_length=8192))


def test_default_plan_shares_experts_within_a_node():
    mixture = load_model("mixtral-8x7b")
    plan = default_plan(mixture, accelerators=48, memory_bytes=80e9, global_batch=24)
    assert (plan.axes.tp, plan.axes.ep, plan.axes.dp) == (2, 8, 24)
    check(mixture, plan, accelerators=48)
    check_fits(mixture, plan, 80e9)


@pytest.mark.parametrize("accelerators", [3, 5, 7])
def test_default_plan_of_an_odd_node_shares_parameters_and_has_no_pipeline(accelerators):
    plan = default_plan(LLAMA, accelerators=accelerators, memory_bytes=80e9, global_batch=accelerators)
    assert (plan.axes.dp, plan.axes.pp, plan.sharding.zero) == (accelerators, 1, 3)
    check_fits(LLAMA, plan, 80e9)


def test_default_plan_of_a_model_too_large_says_so():
    with pytest.raises(WorkloadError, match="does not fit 8 accelerators: the leanest plan needs"):
        default_plan(load_model("llama-3.1-405b"), accelerators=8, memory_bytes=80e9, global_batch=64)


def test_default_plan_without_common_divisor_says_so():
    with pytest.raises(WorkloadError, match="no plan shares llama-3-8b and a global_batch of 8 over 61"):
        default_plan(LLAMA, accelerators=61, memory_bytes=80e9, global_batch=8)
    with pytest.raises(WorkloadError, match="above zero"):
        default_plan(LLAMA, accelerators=0, memory_bytes=80e9, global_batch=8)


@pytest.mark.parametrize("wrong", [{"tp": 8}, None, 8])
def test_a_plan_that_is_no_text_is_refused(wrong):
    with pytest.raises(WorkloadError, match="a plan must be text such as tp=8,dp=8; got"):
        parse_plan(wrong)
