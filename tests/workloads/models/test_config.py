"""Reading config.json: sizes, and parameter counts against those published."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.errors import WorkloadError
from tests.workloads.models.llama_config import LLAMA
from workloads.layers.transformer import forward_layer, model_flops
from workloads.models.architecture import Activation
from workloads.models.config import MODELS, from_hugging_face, load_model, shipped_models
from workloads.plan.plan import Plan

PUBLISHED = {
    "llama-3.1-405b": 405_853_388_800,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "gpt2": 124_439_808,
    "mixtral-8x7b": 46_702_792_704,
    "bloom-176b": 176_247_271_424,
    # 671 billion, without the blocks of multi-token prediction (arXiv:2412.19437, section 4.2).
    "deepseek-v3": 671_026_419_200,
    # 236 billion (arXiv:2405.04434, abstract).
    "deepseek-v2": 235_741_434_880,
    # 15.7 billion (arXiv:2405.04434, appendix B); 57.4 billion, gates of shared experts left out
    # (arXiv:2407.10671, table 1); 106 billion, no multi-token prediction (arXiv:2508.06471, table 1).
    "deepseek-v2-lite": 15_706_484_224,
    "qwen2-57b-a14b": 57_408_558_592,
    "glm-4.5-air": 106_852_251_264,
    # 1.04 trillion as published, rounded up (arXiv:2507.20534, table 2).
    "kimi-k2": 1_026_408_232_448,
    # 30.5 and 235 billion (arXiv:2505.09388, table 2).
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    # 116.83 and 20.91 billion (arXiv:2508.10925, table 1).
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    # 140.6 billion (model card).
    "mixtral-8x22b": 140_620_634_112,
    # 314 billion (xAI, open release of Grok-1); by its code half a percent more.
    "grok-1": 315_684_820_992,
    # 540.35 billion (arXiv:2204.02311, table 1); counted by hand with h = 18432.
    "palm-540b": 118 * (2 * 18432 * 12288 + 2 * 18432 * 256 + 3 * 18432 * 73728 + 18432) + 256001 * 18432,
    # Counted by hand: 105 (12 h^2 + 13 h) + (50257 + 2048) h + 2 h with h = 20480.
    "mt-nlg-530b": 105 * (12 * 20480**2 + 13 * 20480) + 52305 * 20480 + 2 * 20480,
    # Counted by hand: 96 (12 h^2 + 13 h) + (50257 + 2048) h + 2 h with h = 12288.
    "gpt3-175b": 174_604_259_328,
    # 7532 and 425 million without embeddings (arXiv:2112.04426, table 1): blocks of 13 h^2, norms, readings
    # of 3 h^2 + 2 * 896 h and a norm, the encoder, 128,000 rows for tokens, logits and the encoder's tokens.
    "retro-7.5b": 32 * (13 * 4096**2 + 2 * 4096)
    + 9 * (3 * 4096**2 + 2 * 896 * 4096 + 4096)
    + 2 * (5 * 896 * 1024 + 2 * 896 * 3584)
    + (3 * 896 + 2 * 4096) * 1024
    + 6 * 896
    + 4096
    + 128_000 * (2 * 4096 + 896),
    "retro-425m": 12 * (13 * 1536**2 + 2 * 1536)
    + 3 * (3 * 1536**2 + 2 * 896 * 1536 + 1536)
    + 2 * (5 * 896 * 1024 + 2 * 896 * 3584)
    + (3 * 896 + 2 * 1536) * 1024
    + 6 * 896
    + 1536
    + 128_000 * (2 * 1536 + 896),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameters_are_those_published(name):
    assert load_model(name).parameters == PUBLISHED[name]


def test_every_shipped_model_has_a_published_count():
    retrieving = {"retro-425m", "retro-7.5b"}  # held to their table in test_retrieval
    assert set(shipped_models()) == set(PUBLISHED) | retrieving


SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
)


@pytest.mark.parametrize(
    ("kind", "sizes", "vocabulary", "more", "published"),
    [
        ("granite", (4096, 40, 32, 8, 12800), 49155, {"tie_word_embeddings": True}, 8_170_848_256),
        ("starcoder2", (4608, 32, 36, 4, 18432), 49152, {}, 7_173_923_840),
        ("stablelm", (2048, 24, 32, 32, 5632), 100_352, {"use_qkv_bias": True}, 1_644_515_328),
        ("cohere", (8192, 40, 64, 64, 22528), 256_000, {}, 34_980_831_232),
        ("smollm3", (2048, 36, 16, 4, 11008), 128_256, {}, 3_075_098_624),
    ],
)
def test_other_families_have_the_parameters_of_their_model_cards(kind, sizes, vocabulary, more, published):
    config = dict(zip(SIZES, sizes, strict=True)) | {"model_type": kind, "vocab_size": vocabulary}
    assert from_hugging_face(config | {"max_position_embeddings": 4096} | more).parameters == published


def test_mixtral_visits_12_9_billion_parameters_per_token():
    assert load_model("mixtral-8x7b").active_parameters == 12_879_925_248


def test_deepseek_v3_visits_37_billion_parameters_per_token():
    """37 billion (arXiv:2412.19437, section 4.2): the embedding's rows are looked up, not multiplied with."""
    config = load_model("deepseek-v3")
    assert (config.active_parameters - config.embedding_parameters) / 1e9 == pytest.approx(37, abs=0.5)


@pytest.mark.parametrize(
    ("name", "total", "active", "tolerance"),
    [
        # arXiv:2505.09388, table 2; the active counts include the embedding.
        ("qwen3-30b-a3b", 30.5, 3.3, 0.06),
        ("qwen3-235b-a22b", 235, 22, 0.2),
        # arXiv:2508.10925, table 1; without the embedding, which is looked up.
        ("gpt-oss-120b", 116.83, 5.13, 0.01),
        ("gpt-oss-20b", 20.91, 3.61, 0.01),
        # arXiv:2507.20534, table 2: 1.04 trillion and 32.6 billion.
        ("kimi-k2", 1040, 32.6, 15),
        ("deepseek-v2", 236, 21, 0.5),
        # xAI's open release of Grok-1: 314 billion.
        ("grok-1", 314, None, 2),
    ],
)
def test_mixtures_have_the_published_counts(name, total, active, tolerance):
    config = load_model(name)
    assert config.parameters / 1e9 == pytest.approx(total, abs=tolerance)
    looked_up = config.embedding_parameters if name.startswith("gpt-oss") else 0
    if active is not None:
        assert (config.active_parameters - looked_up) / 1e9 == pytest.approx(active, abs=min(tolerance, 0.5))


def test_gpt_oss_clamps_its_gates_and_no_other_does():
    assert [name for name in shipped_models() if load_model(name).clamped] == ["gpt-oss-120b", "gpt-oss-20b"]


def test_palm_has_540_billion_parameters():
    assert load_model("palm-540b").parameters / 1e9 == pytest.approx(540.35, abs=0.01)


def test_dense_model_visits_all_its_parameters():
    config = load_model("llama-3-8b")
    assert config.active_parameters == config.parameters


def test_other_families_count_as_published():
    neox = {
        "model_type": "gpt_neox",
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_attention_heads": 64,
        "num_hidden_layers": 44,
        "max_position_embeddings": 2048,
        "vocab_size": 50432,
    }
    assert from_hugging_face(neox).parameters == 20_554_567_680
    assert from_hugging_face(neox).two_norms  # side by side unless the file says otherwise
    after = from_hugging_face(neox | {"use_parallel_residual": False})
    assert (after.parallel, after.two_norms, after.parameters) == (False, False, 20_554_567_680)
    opt = {
        "model_type": "opt",
        "hidden_size": 768,
        "ffn_dim": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "max_position_embeddings": 2048,
        "vocab_size": 50272,
        "word_embed_proj_dim": 768,
    }
    assert from_hugging_face(opt).parameters == 125_239_296
    qwen = LLAMA | {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "num_hidden_layers": 28,
        "vocab_size": 152064,
    }
    assert from_hugging_face(qwen).parameters == 7_615_616_512
    mistral = LLAMA | {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
    }
    assert from_hugging_face(mistral).parameters == 7_241_732_096


GEMMA_3 = {
    "model_type": "gemma3_text",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "num_hidden_layers": 26,
    "head_dim": 256,
    "max_position_embeddings": 32768,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262_144,
}

GEMMA_2 = {
    "model_type": "gemma2",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 26,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "sliding_window": 4096,
    "vocab_size": 256_000,
}


@pytest.mark.parametrize(
    ("values", "published"),
    [
        # arXiv:2403.08295, table 2, without embeddings.
        (
            GEMMA_2
            | {"model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576}
            | {"num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 28}
            | {"sliding_window": None},
            7_751_248_896,
        ),
        (
            GEMMA_2
            | {"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384}
            | {"num_key_value_heads": 1, "num_hidden_layers": 18, "sliding_window": None},
            1_981_884_416,
        ),
        # arXiv:2408.00118, table 2, without embeddings.
        (GEMMA_2, 2_024_517_888),
        (
            GEMMA_2
            | {"hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16}
            | {"num_key_value_heads": 8, "num_hidden_layers": 42},
            8_324_201_984,
        ),
        (
            GEMMA_2
            | {"hidden_size": 4608, "intermediate_size": 36864, "num_attention_heads": 32}
            | {"num_key_value_heads": 16, "num_hidden_layers": 46, "head_dim": 128},
            26_047_480_320,
        ),
    ],
)
def test_gemma_has_the_published_parameters_without_embeddings(values, published):
    config = from_hugging_face(values)
    assert config.parameters - config.embedding_parameters == published
    assert config.activation is Activation.GELU


def test_gemma_3_has_the_published_parameters():
    """698 million besides 302 million of the embedding (arXiv:2503.19786, table 1)."""
    config = from_hugging_face(GEMMA_3)
    assert (config.parameters - config.embedding_parameters) / 1e6 == pytest.approx(698, abs=0.5)
    assert config.embedding_parameters / 1e6 == pytest.approx(302, abs=0.5)


def test_falcon_shares_one_key_head_and_one_norm():
    """Counted by hand: 32 blocks of 9 h^2 + (h + 2 * 64) h + 2 h, h = 4544, and a tied embedding of 65,024
    rows; 6.9 billion of the model named 7B (arXiv:2311.16867, table 16, by its sizes)."""
    values = {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_attention_heads": 71,
        "num_hidden_layers": 32,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
        "vocab_size": 65024,
    }
    assert from_hugging_face(values).parameters == 6_921_720_704
    assert from_hugging_face(values | {"multi_query": False}).kv_heads == 71
    new = values | {"new_decoder_architecture": True, "num_kv_heads": 71}
    norms = [from_hugging_face(new | {"num_ln_in_parallel_attn": count}).block_norms for count in (2, 1)]
    assert norms == [4 * 4544, 2 * 4544]
    with pytest.raises(WorkloadError, match="config:alibi must be false"):
        from_hugging_face(values | {"alibi": True})


def test_phi_3_counts_fused_products_like_separate_ones():
    """3.8 billion (arXiv:2404.14219, abstract)."""
    values = LLAMA | {
        "model_type": "phi3",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "num_hidden_layers": 32,
        "sliding_window": 2047,
        "vocab_size": 32064,
    }
    config = from_hugging_face(values)
    assert config.parameters == 3_821_079_552
    assert (config.window, config.window_every) == (2047, 1)


FAMILIES = [json.loads(line) for line in (Path(__file__).parent / "families.jsonl").read_text().splitlines()]
"""Sizes of published models, and the parameters that their own code makes of them (transformers 5.24).

Those that are named as their `model_type` have the sizes that the library takes without a file.
"""


@pytest.mark.parametrize("model", FAMILIES, ids=[one["name"] for one in FAMILIES])
def test_parameters_are_those_that_the_published_code_makes(model):
    found = from_hugging_face(model["config"])
    assert found.parameters == pytest.approx(1e9 * model["billions"], rel=1e-4)
    assert model_flops(found, Plan.of(sequence_length=16, global_batch=1, pp=1).share) > 0


@pytest.mark.parametrize("kind", ["zamba2", "rwkv7", "recurrent_gemma", "bailing_hybrid"])
def test_recurrent_blocks_among_others_are_refused_in_one_sentence(kind):
    with pytest.raises(WorkloadError, match="state space, a convolution or linear attention"):
        from_hugging_face({"model_type": kind, "hidden_size": 64})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "nemotron-h-8b",
            {"hybrid_override_pattern": "MX" * 26},
            "layer_types must list kinds of blocks of 'nem",
        ),
        ("nemotron-h-8b", {"num_hidden_layers": 51}, "num_hidden_layers must be the length of every list"),
        ("nemotron-h-8b", {"mamba_num_heads": "many"}, "mamba_num_heads must be a whole number"),
        ("nemotron-h-8b", {"n_groups": 7}, r"recurrence: key_heads \(7\) must divide heads \(128\)"),
        ("nemotron-3-nano-30b-a3b", {"moe_latent_size": "wide"}, "moe_latent_size must be a whole number"),
        ("gemma-4-31b", {"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input must be 0: other"),
        (
            "gemma-4-31b",
            {"layer_types": ["linear_attention"] * 60},
            "must list kinds of blocks of 'gemma4_text'",
        ),
        ("qwen3-next-80b-a3b", {"full_attention_interval": "4"}, "full_attention_interval must be a whole"),
        ("bamba-9b", {"attn_layer_indices": "9"}, "attn_layer_indices must be a list of whole numbers"),
        ("jamba-v0.1", {"mlp_layer_types": ["sparse", "other"]}, "mlp_layer_types must list dense or sparse"),
        ("laguna", {"num_attention_heads_per_layer": [48]}, "must be the length of every list of blocks"),
    ],
)
def test_blocks_of_several_kinds_are_checked_by_key(name, change, message):
    values = next(one["config"] for one in FAMILIES if one["name"] == name)
    with pytest.raises(WorkloadError, match=message):
        from_hugging_face(values | change)


def test_kinds_of_blocks_are_read_in_any_published_form():
    """Of Nemotron-H as its pattern and as the library saves it, of MiniMax as its numbers and as names."""
    nemotron = next(one["config"] for one in FAMILIES if one["name"] == "nemotron-h-8b")
    kinds = {"M": "mamba", "*": "attention", "-": "mlp"}
    pattern = nemotron["hybrid_override_pattern"]
    without = {key: value for key, value in nemotron.items() if key != "hybrid_override_pattern"}
    listed = without | {"layers_block_type": [kinds[one] for one in pattern], "n_routed_experts": 8}
    assert from_hugging_face(listed) == from_hugging_face(nemotron)
    minimax = next(one["config"] for one in FAMILIES if one["name"] == "minimax-text-01")
    numbers = {key: value for key, value in minimax.items() if key != "layer_types"}
    numbers |= {"model_type": "minimax_text_01", "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10}
    assert from_hugging_face(numbers, name="minimax") == from_hugging_face(minimax, name="minimax")
    gemma = from_hugging_face(next(one["config"] for one in FAMILIES if one["name"] == "gemma-4-31b"))
    narrow, wide = gemma.shapes
    assert (narrow.window, narrow.head_dim, narrow.kv_heads, narrow.tied_values) == (1024, 256, 16, False)
    assert (wide.window, wide.head_dim, wide.kv_heads, wide.tied_values) == (0, 512, 4, True)


def test_recurrent_blocks_show_by_their_keys_and_near_relatives_are_no_family():
    with pytest.raises(WorkloadError, match="state space"):
        from_hugging_face({"model_type": "novel", "mamba_d_state": 64})
    with pytest.raises(WorkloadError, match="chooses keys by an indexer of its own, which is not modelled"):
        from_hugging_face({"model_type": "deepseek_v32"})


def test_kinds_of_feed_forward_parts_say_which_blocks_are_dense():
    values = next(one["config"] for one in FAMILIES if one["name"] == "hy_v3")
    kinds = ["dense"] * 3 + ["sparse"] * 77
    assert from_hugging_face(values | {"mlp_layer_types": kinds}).dense_layers == 3
    with pytest.raises(WorkloadError, match="mlp_layer_types must name dense for first blocks and sparse"):
        from_hugging_face(values | {"mlp_layer_types": kinds[::-1]})
    with pytest.raises(WorkloadError, match=r"first_k_dense_replace must equal .* \(3\); got 1"):
        from_hugging_face(values | {"mlp_layer_types": kinds, "first_k_dense_replace": 1})


def test_a_window_as_long_as_the_sequence_is_none():
    mixtral = next(one["config"] for one in FAMILIES if one["config"]["model_type"] == "phimoe")
    longest = mixtral["max_position_embeddings"]
    assert from_hugging_face(mixtral | {"sliding_window": longest}).window == 0
    with pytest.raises(WorkloadError, match="sliding_window must be absent"):
        from_hugging_face(mixtral | {"sliding_window": longest - 1})


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "num_mtp_modules"])
def test_modules_that_predict_further_tokens_are_trained_and_not_counted(key):
    without, found = (from_hugging_face(LLAMA | {key: count}) for count in (0, 2))
    assert (without.predicted_tokens, found.predicted_tokens) == (0, 2)
    assert from_hugging_face(LLAMA | {key: 2, "use_mtp": False}) == without
    assert found.parameters == without.parameters
    h, plan = found.hidden, Plan.of(sequence_length=16, global_batch=1)
    assert found.prediction_parameters == 2 * (found.layer_parameters + 2 * h * h + 3 * h)
    more = model_flops(found, plan.share) - model_flops(without, plan.share)
    block = model_flops(replace(without, layers=without.layers + 1), plan.share) - model_flops(
        without, plan.share
    )
    assert more == 2 * (block + 6 * 16 * (2 * h * h + found.vocabulary * h))


def test_dense_blocks_among_those_with_experts_are_refused():
    scout = next(one["config"] for one in FAMILIES if one["name"] == "llama-4-scout")
    with pytest.raises(WorkloadError, match="interleave_moe_layer_step must be 1"):
        from_hugging_face(scout | {"interleave_moe_layer_step": 2})


def test_models_that_are_no_decoders_are_told_apart():
    with pytest.raises(WorkloadError, match=r"'t5' is not a decoder \(encoder and decoder\)"):
        from_hugging_face(LLAMA | {"model_type": "t5"})
    with pytest.raises(WorkloadError, match=r"under 'text_config' \(gemma3_text\) as a file"):
        from_hugging_face({"model_type": "gemma3", "text_config": GEMMA_3})


def test_functions_between_products_cost_what_their_formulas_hold():
    """A ReLU is one comparison, a SiLU five operations and one more with a gate."""
    opt = {
        "model_type": "opt",
        "num_key_value_heads": None,
        "ffn_dim": 128,
        "activation_function": "relu",
    }
    assert from_hugging_face(LLAMA | opt).activation is Activation.RELU
    each = {}
    for name in ("relu", "silu", "gelu_new"):
        config = from_hugging_face(LLAMA | {"hidden_act": name})
        plan = Plan.of(global_batch=1, sequence_length=64)
        item = next(one for one, _ in forward_layer(config, plan.share) if one.name == "mlp.activation")
        each[name] = item.flops / (64 * config.ffn_hidden)
    assert each == {"relu": 2, "silu": 6, "gelu_new": 9}
    with pytest.raises(WorkloadError, match=r"hidden_act must be one of gelu, .*; got 'mish'"):
        from_hugging_face(LLAMA | {"hidden_act": "mish"})


def test_missing_key_value_heads_mean_one_per_head():
    values = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert from_hugging_face(values).kv_heads == 8


@pytest.mark.parametrize(
    ("family", "width"),
    [("llama", 64), ("qwen3", 128), ("ernie4_5", 128), ("glm4", 128), ("seed_oss", 128), ("gemma", 256)],
)
def test_heads_are_as_wide_as_the_library_makes_them_where_a_file_is_silent(family, width):
    """Defaults of huggingface/transformers, `configuration_*.py`; without one hidden over heads."""
    file = {key: value for key, value in LLAMA.items() if key != "head_dim"} | {"model_type": family}
    config = from_hugging_face(file | {"hidden_size": 2048, "num_attention_heads": 32})
    assert config.head_dim == width


def test_head_dim_of_its_own_need_not_divide_the_hidden_size():
    config = from_hugging_face(LLAMA | {"hidden_size": 100, "head_dim": 16})
    assert config.query_width == 128


@pytest.mark.parametrize(
    ("name", "saved", "left_out"),
    [
        (
            "llama-4-scout",
            {"layer_types": (["chunked_attention"] * 3 + ["full_attention"]) * 12},
            (),
        ),
        ("qwen1.5-moe-a2.7b", {"sliding_window": 0, "layer_types": ["full_attention"] * 24}, ()),
        ("qwen3-30b-a3b", {"num_local_experts": 128}, ("num_experts",)),
    ],
)
def test_files_that_the_library_saved_anew_have_the_shape_of_those_published(name, saved, left_out):
    """What `save_pretrained` of transformers 5.24 writes instead of the keys that were published."""
    shipped = {name: json.loads((MODELS / f"{name}.json").read_text()) for name in shipped_models()}
    values = (shipped | {one["name"]: one["config"] for one in FAMILIES})[name]
    again = {key: value for key, value in (values | saved).items() if key not in left_out}
    assert from_hugging_face(again) == from_hugging_face(values)


def test_counts_of_experts_by_two_names_must_agree():
    values = json.loads((MODELS / "qwen3-30b-a3b.json").read_text())
    with pytest.raises(WorkloadError, match=r"num_local_experts must equal 'num_experts' \(128\)"):
        from_hugging_face(values | {"num_local_experts": 64})


def test_gpt_j_drops_nothing_unless_its_file_says_so():
    """`GPTJConfig` of transformers; GPT-2's own default is a tenth."""
    values = {"model_type": "gptj", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128}
    assert not from_hugging_face(values | {"vocab_size": 100}).dropout
    assert from_hugging_face(values | {"vocab_size": 100, "resid_pdrop": 0.1}).dropout
