"""Models of transformers, from configurations alone: no weights, no network."""

import dataclasses
import itertools

import pytest
import torch

from optical.conversion import NoiseKey, Policy, ProductSpecs, convert, to_digital, watch_products
from optical.cores import load_core
from tests.optical.conversion import ranks

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")
CORE = ProductSpecs.of(load_core("crossbar").analog, row_block=64)
SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GROUPED = SIZES | {"num_key_value_heads": 2}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
}
"""Latent attention and experts of all layers but the first."""
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT2 = {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4}
T5 = {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
PICTURES = {key: size for key, size in SIZES.items() if key != "vocab_size"} | {
    "image_size": 16,
    "patch_size": 4,
}


def causal(config, **options):
    return transformers.AutoModelForCausalLM.from_config(config, **options)


MODELS = {
    "llama": lambda: causal(transformers.LlamaConfig(**GROUPED)),
    "llama_eager": lambda: causal(transformers.LlamaConfig(**GROUPED), attn_implementation="eager"),
    "gpt2": lambda: causal(transformers.GPT2Config(**GPT2)),
    "mixtral": lambda: causal(transformers.MixtralConfig(**GROUPED, num_local_experts=4)),
    "qwen2_moe": lambda: causal(
        transformers.Qwen2MoeConfig(**GROUPED, **EXPERTS, shared_expert_intermediate_size=24)
    ),
    "qwen3_moe": lambda: causal(transformers.Qwen3MoeConfig(**GROUPED, **EXPERTS, head_dim=8)),
    "gpt_oss": lambda: causal(
        transformers.GptOssConfig(**GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2)
    ),
    "deepseek_v3": lambda: causal(transformers.DeepseekV3Config(**SIZES, **LATENT)),
    "bert": lambda: transformers.AutoModelForMaskedLM.from_config(transformers.BertConfig(**SIZES, **STILL)),
    "albert": lambda: transformers.AutoModelForMaskedLM.from_config(
        transformers.AlbertConfig(**SIZES, **STILL, embedding_size=16)
    ),
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)),
    "vit": lambda: transformers.AutoModelForImageClassification.from_config(
        transformers.ViTConfig(**PICTURES)
    ),
}
SCORES_AND_VALUES = {name: 12 if name == "t5" else 4 for name in MODELS}


def build(name):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    tokens = torch.randint(90, (2, 9))
    if name == "vit":
        return model, {"pixel_values": torch.randn(2, 3, 16, 16)}
    given = {"input_ids": tokens}
    if name == "t5":
        given["decoder_input_ids"] = tokens
    return model, given


@pytest.mark.parametrize("name", MODELS)
def test_an_ideal_core_keeps_outputs_and_no_product_escapes(name):
    model, given = build(name)
    with watch_products() as counts:
        found = convert(model, ProductSpecs.ideal())(**given).logits
        found.square().sum().backward()
    torch.testing.assert_close(found, model(**given).logits, rtol=1e-4, atol=1e-4)
    assert not counts.escaped
    assert not counts.electronic
    assert not counts.digital_backward
    dynamic = [
        n for product, n in counts.analog.items() if product.endswith((":scores", ":values", ":matmul"))
    ]
    assert sum(dynamic) == SCORES_AND_VALUES[name]


@pytest.mark.parametrize("name", MODELS)
def test_states_stay_and_the_way_back_is_exact(name):
    model, given = build(name)
    before = model(**given).logits
    noisy = convert(model, CORE, model_key=NoiseKey(seed=1), policy=Policy(electronic=("lm_head",)))
    assert not torch.equal(noisy(**given).logits, before)
    assert list(noisy.state_dict()) == list(model.state_dict())
    model.load_state_dict(noisy.state_dict(), strict=True)
    assert torch.equal(to_digital(noisy)(**given).logits, before)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "t5"])
def test_gradient_checkpoints_draw_the_same(name):
    """Without the cache, which lays keys and values out in memory in another way."""
    model, given = build(name)
    noisy, found = convert(model, CORE, model_key=NoiseKey(seed=1)), []
    for recomputes in (False, True):
        noisy.zero_grad()
        if recomputes:
            noisy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        torch.manual_seed(0)
        noisy.train()(**given, use_cache=False).logits.square().sum().backward()
        found.append([p.grad.clone() for p in noisy.parameters() if p.grad is not None])
    assert all(torch.equal(plain, again) for plain, again in zip(*found, strict=True))


def test_fused_attention_gives_way_to_one_with_products():
    model = causal(transformers.LlamaConfig(**GROUPED), attn_implementation="flex_attention").eval()
    usual = causal(transformers.LlamaConfig(**GROUPED)).eval()
    usual.load_state_dict(model.state_dict())
    given = {"input_ids": torch.randint(90, (2, 9))}
    converted = convert(model, ProductSpecs.ideal())
    with watch_products() as counts:
        found = converted(**given).logits
    torch.testing.assert_close(found, usual(**given).logits, rtol=1e-4, atol=1e-4)
    assert counts.analog["model.layers.0.self_attn:scores"] == 1
    assert not counts.escaped
    assert model.config._attn_implementation == "flex_attention"
    assert to_digital(converted).config._attn_implementation == "flex_attention"


@pytest.mark.parametrize("experts", ["eager", "grouped_mm"])
@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_experts_share_no_draw_between_parts(name, experts):
    """Run in a loop over those that are hit, and all at once."""
    model, _ = build(name)
    model.set_experts_implementation(experts)
    noisy, tokens = convert(model, dataclasses.replace(CORE, row_block=1)), torch.randint(90, (3, 2, 9))
    found = [
        ranks.drawn_blocks(lambda x: noisy(input_ids=x).logits, tokens[part], part=part) for part in range(3)
    ]
    for first, second in itertools.combinations(found, 2):
        assert not first & second
    assert any(number > 2**40 for _, number in found[1])


def test_generation_runs_through_the_core():
    model, given = build("llama")
    noisy = convert(model, CORE, model_key=NoiseKey(seed=1))
    assert noisy.generate(**given, max_new_tokens=3, do_sample=False).shape == (2, 12)
