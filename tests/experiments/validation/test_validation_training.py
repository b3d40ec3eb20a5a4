import dataclasses

import pytest

from electronic.gpu import load_gpu
from experiments.validation import driver
from experiments.validation.machines import (
    accelerator_name,
    attention_of,
    mixture_of,
    plan_of,
    system_of,
    with_ends_counted,
)
from experiments.validation.rows import Outcome, Record, SkipError
from experiments.validation.training import (
    CAST,
    MEMORY_SHARE,
    constant_s,
    forecast,
    measured_s,
    ranking,
    ranking_text,
    refused_text,
    run_of,
)
from experiments.validation.training import outcome as outcome_of
from heliograph.simulation import run_step
from heliograph.systems import build_system
from simulator.errors import SuspectWarning
from workloads.models.architecture import TransformerConfig
from workloads.models.config import load_model
from workloads.plan.parts import Attention, ExpertExchange, Precision, Recompute
from workloads.plan.plan import Plan, parse_plan

GPT3 = {
    "id": "gpt3",
    "source": "Narayanan et al. 2104.04473",
    "system": "A100-80GB SXM",
    "n_accelerators": "1024",
    "gpus_per_node": "8",
    "intra_node_bw": "300",
    "inter_node_bw_per_gpu": "25",
    "model_name": "GPT-3 175B",
    "layers": "96",
    "hidden": "12288",
    "heads": "96",
    "kv_heads": "96",
    "ffn_hidden": "49152",
    "ffn_gated": "n",
    "vocab": "51200",
    "seq_len": "2048",
    "global_batch_sequences": "1536",
    "micro_batch": "1",
    "tp": "8",
    "pp": "16",
    "dp": "8",
    "cp": "1",
    "ep": "1",
    "vpp": "1",
    "zero_or_fsdp": "0",
    "sequence_parallel": "n",
    "recompute": "full",
    "precision": "fp16",
    "iteration_time_s": "32",
    "notes": "no FlashAttention",
}
SMALL = GPT3 | {
    "n_accelerators": "8",
    "layers": "4",
    "hidden": "1024",
    "heads": "8",
    "kv_heads": "8",
    "ffn_hidden": "4096",
    "global_batch_sequences": "16",
    "tp": "2",
    "pp": "2",
    "dp": "2",
    "iteration_time_s": "0.1",
}


def record(**changes):
    return Record("rows.csv:2", GPT3 | changes)


def outcome(**changes):
    return outcome_of(Record("rows.csv:2", SMALL | changes))


def test_the_constant_is_that_worked_out_by_hand():
    # 96 B L s h^2 (1 + s/6h + V/16Lh) of 2104.04473, over 1024 x 312 TFLOP/s x 0.5, times 1 + 15/192.
    system, config, plan = run_of(record())
    batch, layers, s, h, vocabulary = 1536, 96, 2048, 12288, 51200
    flops = 96 * batch * layers * s * h**2 * (1 + s / (6 * h) + vocabulary / (16 * layers * h))
    assert flops == pytest.approx(4.511e18, rel=1e-3)
    by_hand = flops / (1024 * 312e12 * 0.5) * (1 + 15 / 192)
    assert constant_s(system.gpu, config, plan) == pytest.approx(by_hand, rel=2e-3)


def test_the_constant_drops_a_quarter_without_recomputation_and_its_bubble_with_chunks():
    system, config, plan = run_of(record())
    full = constant_s(system.gpu, config, plan)
    none = constant_s(system.gpu, config, plan.with_(recompute=Recompute.NONE))
    assert none / full == pytest.approx(0.75, abs=0.01)
    chunked = constant_s(system.gpu, config, plan.with_(vpp=3))
    assert chunked / full == pytest.approx((1 + 5 / 192) / (1 + 15 / 192))


@pytest.mark.parametrize(
    ("gpu", "precision", "ratio"),
    [
        ("h100", Precision.FP8, 2.0),
        ("gb300", Precision.MXFP8, 2.0),
        ("gb300", Precision.NVFP4, 6.0),  # 15 PFLOP/s dense over 2.5 of bf16 (GB300 NVL72 datasheet)
        ("tpu-v5p", Precision.INT8, 2.0),
        ("trainium2", Precision.FP8, 1299 / 667),  # TFLOP/s (AWS Trainium2 architecture)
        ("a100", Precision.FP8, 1.0),  # no units for fp8
        ("a100", Precision.FP32, 0.5),  # tf32
    ],
)
def test_the_constant_knows_the_peak_of_each_precision(gpu, precision, ratio):
    _, config, plan = run_of(record())
    chip = load_gpu(gpu)
    plain, cast = (constant_s(chip, config, plan.with_(precision=one)) for one in (Precision.BF16, precision))
    assert plain / cast == pytest.approx(ratio, rel=2e-3)


def test_a_published_time_goes_before_a_derived_one_and_that_before_a_rate():
    cells = {"derived_iteration_time_s": "31", "tokens_per_s_per_gpu": "96"}
    assert measured_s(record(**cells)) == 32.0
    assert measured_s(record(iteration_time_s="", **cells)) == 31.0
    rated = record(iteration_time_s="", tokens_per_s_per_gpu="96")
    assert measured_s(rated) == pytest.approx(1536 * 2048 / (96 * 1024))
    assert rated.assumed == ["step time from tokens per second"]


def test_a_plan_takes_what_the_row_says():
    plan = plan_of(record(vpp="3", zero_or_fsdp="FSDP full (3)", precision="amp_bf16"), 1024)
    assert (plan.axes.tp, plan.axes.pp, plan.axes.dp, plan.schedule.vpp, plan.sharding.zero) == (
        8,
        16,
        8,
        3,
        3,
    )
    assert plan.precision.kind is Precision.BF16
    assert plan.recompute.kind is Recompute.FULL
    assert not plan.axes.sequence_parallel


@pytest.mark.parametrize(
    ("text", "stage", "reshards"),
    [
        ("0", 0, True),
        ("1", 1, True),
        ("3", 3, True),
        ("FSDP2 full (3)", 3, True),
        ("3 (FSDP+DP, JAX/PAX)", 3, True),
        ("FSDP grad_op (2)", 3, False),
        ("FSDP 64", 3, True),
        ("", 1, True),
    ],
)
def test_sharding_is_read_from_words(text, stage, reshards):
    plan = plan_of(record(zero_or_fsdp=text), 1024)
    assert (plan.sharding.zero, plan.sharding.reshard) == (stage, reshards)


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        *(("fp8-cs (fp8-mx)", "fp8"), ("fp8-mx", "mxfp8"), ("mxfp8", "mxfp8")),
        *(("amp_bf16", "bf16"), ("fp16", "fp16"), ("", "bf16")),
    ],
)
def test_precision_is_read_from_words(text, precision):
    assert plan_of(record(precision=text), 1024).precision.kind == precision


def test_gradients_are_summed_in_fp16_by_fp16_runs_only():
    assert plan_of(record(precision="fp16"), 1024).precision.grad_bytes == 2
    assert plan_of(record(precision="bf16"), 1024).precision.grad_bytes == 4
    pure = record(precision="bf16", notes="mixed_precision PURE")
    assert plan_of(pure, 1024).precision.grad_bytes == 2


@pytest.mark.parametrize(
    ("changes", "attention"),
    [
        ({"notes": "no FlashAttention; baseline"}, Attention.FULL),
        ({"notes": "FlashAttention"}, Attention.FLASH),
        ({"notes": "", "source": "Someone 2104.04473"}, Attention.FULL),
        ({"notes": "", "source": "Someone 2407.21783"}, Attention.FLASH),
        ({"notes": "Megatron-DeepSpeed", "source": "vTrain (MICRO24)"}, Attention.FULL),
        ({"notes": "", "source": "no date", "system": "H100-80GB SXM"}, Attention.FLASH),
        ({"notes": "", "source": "no date"}, Attention.FULL),
    ],
)
def test_the_attention_kernel_follows_the_words_the_year_and_the_accelerator(changes, attention):
    row = record(**changes)
    assert attention_of(row) is attention
    assert bool(row.assumed) is ("Flash" not in changes["notes"])


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({"source": "Someone 2104.04473"}, False),
        ({"source": "vTrain (MICRO24)", "notes": "Megatron-DeepSpeed"}, False),
        ({"source": "Someone 2104.04473", "sequence_parallel": "y"}, True),
        ({"source": "Someone 2407.21783"}, True),
        ({"source": "no date"}, True),
    ],
)
def test_tensor_ranks_share_sequences_where_the_code_is_young_enough(changes, shared):
    row = record(**{"tp": "8", "sequence_parallel": "", "notes": ""} | changes)
    assert plan_of(row, 1024).axes.sequence_parallel is shared
    assert any("sequence parallel" in one for one in row.assumed) is ("sequence_parallel" not in changes)


def test_embedding_and_head_count_as_blocks_only_where_blocks_then_fill_the_stages():
    plan = Plan.of(pp=12)
    assert with_ends_counted(record(), plan, 70).schedule.embedding_as_layers
    assert not with_ends_counted(record(), plan, 72).schedule.embedding_as_layers
    assert not with_ends_counted(record(), plan, 75).schedule.embedding_as_layers
    assert with_ends_counted(record(), Plan.of(pp=8, vpp=8), 126).schedule.embedding_as_layers


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100-80GB SXM (Jean Zay)", "a100"),
        ("GB200 NVL72", "gb200"),
        ("TPU v4", "tpu-v4"),
        ("H200", "h200"),
        ("Ironwood", "tpu-v7"),
        ("AWS Trn2", "trainium2"),
        ("Intel Gaudi 3", "gaudi3"),
        ("Trillium", "tpu-v6e"),
        ("RTX 4090", "rtx-4090"),
    ],
)
def test_published_names_find_their_accelerator(text, name):
    assert accelerator_name(text) == name


def test_the_name_with_most_words_wins_and_a_variant_is_never_taken_for_the_usual_one():
    known = ("a100", "a100-40gb", "h100")
    assert accelerator_name("A100-40GB SXM", known) == "a100-40gb"
    with pytest.raises(SkipError, match="pcie variant"):
        accelerator_name("A100 PCIe", known)
    with pytest.raises(SkipError, match="not in the table"):
        accelerator_name("Abacus 3000", known)


def test_a_cluster_has_the_bandwidths_power_and_memory_of_its_row():
    row = record(system="H100-96GB HBM2e SXM (500W)", inter_node_bw_per_gpu="12.5", notes="memory 2.4TB/s")
    system = system_of(row)
    assert system.gpu.chip.tdp_w == 500.0
    assert system.gpu.memory.bandwidth_bytes_per_s == pytest.approx(2.4e12)
    assert system.fabric.scale_up.bandwidth_bytes_per_s == pytest.approx(300e9)
    assert system.fabric.nic.bandwidth_bytes_per_s == pytest.approx(12.5e9)
    assert system.fabric.scale_up.size == 8


def test_a_domain_that_does_not_divide_the_cluster_shrinks_and_says_so():
    row = record(system="GB200 NVL72", gpus_per_node="72", n_accelerators="128")
    assert system_of(row).fabric.scale_up.size == 64
    assert any("domains of 64" in one for one in row.assumed)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"system": "Abacus 3000"}, "not in the table"),
        ({"hidden": ""}, "no hidden"),
        ({"heads": ""}, "no heads"),
        ({"recompute": "offload qkv"}, "not modelled"),
        ({"precision": "mxfp4"}, "not modelled"),
        ({"provenance": "recalled"}, "recalled"),
        ({"iteration_time_s": ""}, "neither a step time"),
        ({"model_name": "Secret 8x7B"}, "mixture of experts"),
        ({"tp": "3"}, "does not divide"),
        ({"layers": "four"}, "no number"),
    ],
)
def test_a_row_that_cannot_be_run_is_skipped_with_its_reason(changes, reason):
    found = outcome(**changes)
    assert found.predicted is None
    assert reason in found.skipped


def test_torchtitan_repeats_every_second_product():
    row = record(source="torchtitan benchmarks", recompute="selective")
    recompute = plan_of(row, 1024).recompute
    assert (recompute.kind, recompute.recompute_share) == (Recompute.FULL, 0.5)
    assert plan_of(record(recompute="selective"), 1024).recompute.kind is Recompute.SELECTIVE


def test_tpus_stand_on_a_torus_and_take_a_batch_at_once():
    row = record(
        system="TPU v5p",
        n_accelerators="1536",
        gpus_per_node="",
        tp="8",
        pp="1",
        dp="192",
        vpp="",
        micro_batch="",
        global_batch_sequences="3072",
        precision="int8",
        notes="torus 8x12x16",
    )
    fabric = system_of(row).fabric
    assert fabric.shape == (12, 16, 8)  # tensor-parallel ranks along the side that they fill
    assert fabric.link.bandwidth_bytes_per_s == pytest.approx(100e9)
    plan = plan_of(row, 1536)
    assert (plan.batch.micro_batch, plan.precision.kind) == (16, Precision.INT8)
    bare = record(system="TPU v4", n_accelerators="64", notes="")
    system_of(bare)
    assert "a torus of 4 x 4 x 4" in bare.assumed
    flat = record(system="TPU v6e", n_accelerators="256", notes="")
    assert sorted(system_of(flat).fabric.shape) == [1, 16, 16]  # four links a chip
    named = record(system="TPU v5e", n_accelerators="128", notes="torus 8x16", tp="1")
    assert system_of(named).fabric.shape == (1, 8, 16)


def test_a_row_that_can_be_run_has_a_time_a_constant_and_its_assumptions():
    found = outcome(vpp="", kv_heads="", dp="")
    assert found.skipped is None
    assert found.predicted > 0.0
    assert found.constant > 0.0
    assert {"kv_heads = heads = 8", "dp 2", "vpp 1 (stages not interleaved)"} <= set(found.assumed)


def test_a_mixture_of_experts_is_completed_from_the_shipped_model_of_its_name():
    moe = {"model_name": "Mixtral 8x7B", "hidden": "", "heads": "", "kv_heads": "", "layers": ""}
    found = outcome(**moe, ffn_hidden="", ffn_gated="", ep="2")
    assert found.skipped is None
    assert any("mixtral-8x7b" in one for one in found.assumed)


def moe(name, **changes):
    blank = dict.fromkeys(
        ("hidden", "heads", "kv_heads", "layers", "ffn_hidden", "ffn_gated", "params_B"), ""
    )
    return record(**blank | {"model_name": name, "ep": "2", "vpp": ""} | changes)


@pytest.mark.parametrize(
    ("name", "shipped", "layers", "dense"),
    [
        ("Qwen3_30B_a3B", "qwen3-30b-a3b", 48, 0),
        ("GPT OSS 120B", "gpt-oss-120b", 36, 0),
        ("DeepSeekV3 (w/o MTP)", "deepseek-v3", 61, 3),
        ("DeepSeekV3 (w/ MTP)", "deepseek-v3", 61, 3),
        ("DeepSeekV3-4L", "deepseek-v3", 4, 1),
        ("DeepSeekV2-4L", "deepseek-v2", 4, 1),
    ],
)
def test_the_whole_shipped_model_stands_for_a_mixture_of_its_name(name, shipped, layers, dense):
    found = mixture_of(moe(name), dropout=False)
    more = int("w/ MTP" in name)  # shipped with a module that predicts a further token
    expected = dataclasses.replace(
        load_model(shipped), layers=layers, dense_layers=dense, predicted_tokens=more
    )
    assert found == expected


def test_a_size_after_the_name_of_a_mixture_may_stand_or_not():
    assert mixture_of(moe("Grok-1 314B", params_B="314"), dropout=False) == load_model("grok-1")


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("Nemotron_3_Nano", {}, "no model of its name ships"),
        ("Qwen3_30B_a3B", {"layers": "40"}, "layers \\(40\\) is not that of the shipped model"),
    ],
)
def test_a_mixture_that_differs_from_its_shipped_model_is_skipped(name, changes, reason):
    with pytest.raises(SkipError, match=reason):
        mixture_of(moe(name, **changes), dropout=False)


def test_dropped_tokens_are_a_capacity_of_one():
    plan = plan_of(moe("Qwen3_235B_a22B (tokendrop)"), 1024)
    assert plan.experts.capacity_factor == 1.0
    assert plan_of(moe("Qwen3_235B_a22B"), 1024).experts.capacity_factor == 0.0


def test_the_way_to_the_experts_is_read_from_the_notes():
    plan = plan_of(moe("Qwen3_30B_a3B", notes="DeepEP and expert exchanges overlapped"), 1024)
    assert (plan.experts.expert_exchange, plan.traffic.overlap_experts) == (
        ExpertExchange.ONCE_PER_NODE,
        True,
    )
    row = moe("Qwen3_30B_a3B", notes="")
    plan = plan_of(row, 1024)
    assert (plan.experts.expert_exchange, plan.traffic.overlap_experts) == (ExpertExchange.DIRECT, False)
    assert {"tokens sent to every expert's rank", "expert exchanges not overlapped"} <= set(row.assumed)


def test_layers_that_are_not_given_follow_from_the_parameters():
    row = record(layers="", params_B="174.6")
    assert run_of(row)[1].layers == 96
    assert any("96 layers" in one for one in row.assumed)


@pytest.mark.parametrize("more", ["vpp=1", "vpp=2", "schedule=zb_h2", "schedule=zb_h2,steps=4"])
def test_a_long_pipeline_is_continued_within_half_a_percent(more):
    config = TransformerConfig(
        name="gpt",
        layers=16,
        hidden=2048,
        heads=16,
        kv_heads=16,
        head_dim=128,
        ffn_hidden=8192,
        vocabulary=50257,
        max_sequence=1024,
    )
    plan = parse_plan(f"tp=4,pp=4,dp=2,global_batch=200,sequence_length=1024,zero=1,{more}")
    system = build_system("gpu_packet", accelerators=32, gpu="a100")
    whole_s = run_step(system, config, plan).metrics.step_time_s
    continued = forecast(system, config, plan)
    assert continued.step_time_s != whole_s  # so the short way was taken
    assert continued.step_time_s == pytest.approx(whole_s, rel=5e-3)
    assert sum(continued.parts_s.values()) == pytest.approx(continued.step_time_s, rel=1e-6)


LARGE = GPT3 | {
    "recompute": "",
    "tp": "1",
    "pp": "1",
    "dp": "128",
    "n_accelerators": "128",
    "system": "H100-80GB SXM",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"zero_or_fsdp": "FSDP full (3)", "global_batch_sequences": "256", "micro_batch": "2"},
            Recompute.FULL,
        ),
        (
            {"zero_or_fsdp": "FSDP full (3)", "global_batch_sequences": "256", "recompute": "none"},
            Recompute.NONE,
        ),
        (
            {"tp": "8", "pp": "16", "dp": "1", "zero_or_fsdp": "1", "global_batch_sequences": "16"},
            Recompute.NONE,
        ),
    ],
)
def test_what_a_row_leaves_out_is_recomputed_only_if_memory_asks_for_it(changes, expected):
    record = Record("rows.csv:2", LARGE | {"notes": "flash"} | changes)
    assert run_of(record)[2].recompute.kind is expected
    said = any("recomputation" in one for one in record.assumed)
    assert said is ("recompute" not in changes)


def test_hybrid_sharding_shares_within_groups():
    row = LARGE | {"n_accelerators": "512", "dp": "512", "global_batch_sequences": "512", "notes": "flash"}
    shared = [
        run_of(Record("rows.csv:2", row | {"zero_or_fsdp": text}))[2].sharding.shard_group
        for text in ("3 (FSDP+DP, JAX)", "3")
    ]
    assert shared == [128, 0]


def test_omni_path_carries_what_nccl_reaches_on_it():
    plain, slow = (
        system_of(Record("rows.csv:2", GPT3 | {"system": name})) for name in ("A100", "A100 Omni-Path")
    )
    ratio = slow.fabric.nic.bandwidth_bytes_per_s / plain.fabric.nic.bandwidth_bytes_per_s
    assert ratio == pytest.approx(42 * 2 * 31 / 32 / 400, abs=0.01)


def test_old_code_waits_for_its_sends_and_gathers():
    old, new = (
        plan_of(Record("rows.csv:2", GPT3 | {"notes": notes}), 1024) for notes in ("no flash", "flash")
    )
    assert (old.traffic.overlap_sends, old.traffic.prefetch) == (False, False)
    assert (new.traffic.overlap_sends, new.traffic.prefetch) == (True, True)


def planned(training, *steps):
    """Rows of one training: pairs of measured and predicted step times."""
    return [
        Outcome(
            id="",
            source="",
            unit="s",
            measured=one,
            predicted=other,
            constant=1.0,
            extra={"training": training},
        )
        for one, other in steps
    ]


def test_ranking_by_hand():
    # a: three pairs right; b: 1.0 against all wrong, 2.0 and 2.04 too near each other, and right against 3.0.
    rows = [
        *planned("a", (1.0, 5.0), (1.5, 6.0), (3.0, 7.0)),
        *planned("b", (1.0, 9.0), (2.0, 3.0), (2.04, 3.5), (3.0, 4.0)),
        *planned("too few", (1.0, 2.0), (2.0, 1.0)),
    ]
    found = ranking(rows, lambda one: one.predicted)
    assert (found.trainings, found.plans, found.pairs, found.fastest) == (2, 7, 8, 1)
    assert found.ordered == pytest.approx(5 / 8)
    assert (found.mean_loss, found.worst_loss) == pytest.approx((0.5, 1.0))


def test_a_constant_that_tells_no_plans_apart_orders_no_pair():
    rows = planned("a", (1.0, 1.0), (2.0, 2.0), (4.0, 4.0))
    assert ranking(rows, lambda one: one.constant).ordered == 0.0
    assert "3 pairs whose steps differ by 5% or more, 100% come out in the right order (0%)" in ranking_text(
        rows
    )


def test_single_plans_are_not_ranked():
    rows = planned("a", (1.0, 1.0)) + planned("b", (1.0, 1.0))
    assert ranking(rows, lambda one: one.predicted) is None
    assert ranking_text(rows) == ""


def test_rows_alike_but_for_their_plan_are_one_training():
    first, other = outcome(), outcome(tp="1", dp="4", micro_batch="2")
    assert first.extra["training"] == other.extra["training"]
    assert outcome(layers="8").extra["training"] != first.extra["training"]


def test_plans_that_ran_and_that_memory_refuses_are_counted():
    shares = ((0.9, False), (1.2, False), (1.5, True))
    rows = [
        Outcome(id="", source="", unit="s", predicted=1.0, extra={MEMORY_SHARE: share, CAST: cast})
        for share, cast in shares
    ]
    told = "2 of 3 plans that ran would be refused (1 of 2 in 16 bits, 1 of 1 in 8 or 4)"
    assert told in refused_text(rows)
    assert "needs 1.50 of what there is" in refused_text(rows)
    assert not refused_text([Outcome(id="", source="", unit="s", skipped="no layers")])
    assert 0.0 < outcome().extra[MEMORY_SHARE]


def test_a_column_that_is_misspelt_is_told(tmp_path):
    table = (driver.REFERENCE / "training.csv").read_text().splitlines()[:4]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([table[0].replace("recompute", "recompte"), *table[1:]]))
    with pytest.warns(SuspectWarning, match="column 'recompte' is not read; did you mean 'recompute'"):
        driver.validate("training", data=path)
