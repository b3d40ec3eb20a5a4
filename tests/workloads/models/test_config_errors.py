"""Reading config.json: one clear sentence for every bad file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import SuspectWarning, WorkloadError
from simulator.files import MAX_BYTES
from tests.workloads.models.llama_config import LLAMA
from workloads.models.config import FAMILIES, MODELS, from_hugging_face, load_model, shipped_models


@pytest.mark.parametrize(
    ("key", "meant"),
    [("num_key_value_head", "num_key_value_heads"), ("head_dmi", "head_dim"), ("hidden_actt", "hidden_act")],
)
def test_a_misspelled_key_is_told_with_its_line(tmp_path, key, meant):
    """Such a file has another shape than its author thinks: all heads are key heads, for one."""
    path = tmp_path / "mine.json"
    values = {name: value for name, value in LLAMA.items() if name != meant}
    path.write_text(json.dumps({key: 4, **values}, indent=1))
    with pytest.warns(SuspectWarning, match=rf"mine.json:2:{key} is not read; did you mean '{meant}'"):
        load_model(path)


def test_no_key_of_a_published_file_counts_as_misspelled():
    lines = (Path(__file__).parent / "families.jsonl").read_text().splitlines()
    published = [from_hugging_face(json.loads(line)["config"]) for line in lines]  # warnings are errors
    assert len(published) + len(shipped_models()) == 109


def test_a_size_that_a_published_file_gives_twice_is_no_misspelling():
    """OpenAI has ``experts_per_token`` beside ``num_experts_per_tok`` in its files; warnings are errors."""
    values = json.loads((MODELS / "gpt-oss-20b.json").read_text())
    assert from_hugging_face(values | {"experts_per_token": 4}) == from_hugging_face(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 0}, "config:num_hidden_layers must be a whole number of at least 1; got 0"),
        ({"num_hidden_layers": True}, "config:num_hidden_layers .* got True"),
        ({"num_hidden_layers": "2"}, "config:num_hidden_layers .* got '2'"),
        ({"num_hidden_layers": 2.0}, "config:num_hidden_layers .* got 2.0"),
        ({"hidden_size": -64}, "config:hidden_size .* got -64"),
        ({"hidden_size": float("nan")}, "config:hidden_size .* got nan"),
        ({"num_hidden_layers": 10**12}, "layers must be at most 10,000; got 1,000,000,000,000"),
        ({"hidden_size": 10**30}, "hidden must be a whole number from 1 to"),
        ({"num_attention_heads": 7}, r"num_attention_heads must divide hidden_size \(64\); try 1, 2, 4"),
        (
            {"num_key_value_heads": 3},
            r"num_key_value_heads must divide the heads \(8\); try 1, 2, 4 or 8; got 3",
        ),
        ({"tie_word_embeddings": "no"}, "config:tie_word_embeddings must be true or false; got 'no'"),
        (
            {"model_type": "lama"},
            "'lama' is not supported; did you mean 'llama'",
        ),
        ({"model_type": None}, "config:model_type must name a family"),
        ({"model_type": ["llama"]}, "config:model_type must name a family"),
        ({"model_type": "mixtral"}, "config lacks 'num_local_experts'"),
        ({"hidden_size": None}, "config:hidden_size must be a whole number of at least 1; got None"),
        (
            {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5},
            r"num_experts_per_tok must be at most num_local_experts \(4\); got 5",
        ),
        (
            {"model_type": "opt", "ffn_dim": 8, "do_layer_norm_before": False},
            "do_layer_norm_before must be true",
        ),
        ({"model_type": "opt", "ffn_dim": 8, "word_embed_proj_dim": 32}, "word_embed_proj_dim must equal"),
        (
            {"model_type": "opt", "num_key_value_heads": 8, "ffn_dim": 8, "dropout": 1.5},
            "dropout must be a number from 0 to below 1",
        ),
    ],
)
def test_bad_value_is_named(change, message):
    with pytest.raises(WorkloadError, match=message):
        from_hugging_face(LLAMA | change)


def test_misspelt_key_is_recognised():
    values = {key: value for key, value in LLAMA.items() if key != "vocab_size"} | {"vocab_sise": 1000}
    with pytest.raises(WorkloadError, match="config lacks 'vocab_size'; did you mean 'vocab_sise'"):
        from_hugging_face(values)


def without(*keys):
    return {key: value for key, value in LLAMA.items() if key not in keys}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            without("max_position_embeddings"),
            "lacks 'max_position_embeddings'; add the longest sequence, in tok",
        ),
        (
            without("max_position_embeddings") | {"seq_length": 256},
            "lacks 'max_position_embeddings'; rename 'seq_length' to it",
        ),
        (without("num_hidden_layers") | {"max_window_layers": 2}, "lacks .*; add the number of blocks"),
        (without("num_hidden_layers") | {"n_layers": 2}, "rename 'n_layers' to it"),
        (
            without("intermediate_size"),
            "lacks 'intermediate_size'; add the inner width of the feed-forward part",
        ),
        (without("hidden_size"), "lacks 'hidden_size'; add the width of the model"),
        (
            without("num_key_value_heads") | {"num_kv_heads": 4},
            "num_kv_heads is not read with model_type 'llama': rename it 'num_key_value_heads'; got 4",
        ),
        (LLAMA | {"head_size": 16}, "head_size is not read with .*: rename it 'head_dim'; got 16"),
        (LLAMA | {"kv_lora_rank": 128}, "kv_lora_rank is not read with .*: its blocks have 0; got 128"),
        (LLAMA | {"num_local_experts": 8}, "num_local_experts is not read with .*: its blocks have 1; got 8"),
        (
            LLAMA | {"model_type": "gpt_neox"},
            "num_key_value_heads is not read with .*: its blocks have 8; got 4",
        ),
        (
            LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "top_k": 2},
            "lacks 'num_experts_per_tok'; rename 'top_k' to it",
        ),
        (
            without("model_type") | {"architectures": ["Qwen3MoeForCausalLM"]},
            "a family, e.g. qwen3_moe; got None",
        ),
        ({"model_type": "RefinedWebModel"}, "is called 'falcon' now"),
        ({"model_type": "qwen"}, "counts both branches"),
        (
            {"model_type": "mpt", "d_model": 64, "n_heads": 7, "n_layers": 2, "vocab_size": 9},
            "n_heads must divide d_model",
        ),
        (
            {"model_type": "mpt", "d_model": 64, "n_heads": 8, "n_layers": 2, "vocab_size": 9},
            "lacks 'max_seq_len'; add the longest sequence",
        ),
    ],
)
def test_a_missing_or_unread_size_says_its_way_out(values, message):
    """Nothing that a file rightly has is taken for a misspelling, and no size is dropped in silence."""
    with pytest.raises(WorkloadError, match=message):
        from_hugging_face(values)


@pytest.mark.parametrize("name", ["num_kv_heads", "head_size", "num_experts"])
def test_a_size_under_another_name_does_no_harm_where_it_says_the_same(name):
    same = {"num_kv_heads": 8, "head_size": 8, "num_experts": 1}[name]
    values = without("num_key_value_heads") | {name: same}
    assert from_hugging_face(values) == from_hugging_face(without("num_key_value_heads"))


def test_two_spellings_of_one_size_must_agree():
    gpt2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 8, "vocab_size": 9}
    assert from_hugging_face(gpt2 | {"hidden_size": 64}).hidden == 64
    with pytest.raises(WorkloadError, match=r"hidden_size must equal 'n_embd' \(64\)"):
        from_hugging_face(gpt2 | {"hidden_size": 65})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "mine.json: is empty"),
        (b" \n\t", "mine.json: is empty"),
        (json.dumps(LLAMA, indent=1).encode()[:-20], "mine.json:9: not JSON: the file ends too early"),
        (
            b'{"model_type": "llama",\n"model_type": "gpt2"}',
            "mine.json:2: key 'model_type' stands twice",
        ),
        (b'{"model_type": "llama",\n"hidden_size": NaN}', "mine.json:2: NaN is not a number"),
        (b'{"hidden_size": -Infinity}', "mine.json:1: -Infinity is not a number"),
        (b'{"model_type": "llama",\n\n"hidden_size": 1e999}', "mine.json:3: 'hidden_size' is inf"),
        (b'{"model_type": "llama",\n\n"hidden_size": -1}', "mine.json:3:hidden_size must be .* got -1"),
        (b'{\n"model_type": "lama"}', "mine.json:2:model_type 'lama' is not supported"),
        (b"[1, 2]", "mine.json: holds a list where an object"),
        (json.dumps(LLAMA).encode("utf-16"), "not UTF-8 text"),
        (b'{"a": ' * 100_000, "nested deeper|not JSON"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "mine.json: "),
        (b'{"a": "' + b"x" * MAX_BYTES + b'"}', "larger than 4 MiB"),
    ],
)
def test_bad_file_is_one_sentence(tmp_path, content, message):
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=message) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)


def test_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "mine.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA, indent=1).replace("\n", "\r\n").encode())
    assert load_model(path) == replace(from_hugging_face(LLAMA), name="mine")


def test_plain_config_json_is_named_after_its_folder(tmp_path):
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert load_model(str(folder / "config.json")).name == "tiny-llama"


def test_missing_file_and_folder_are_told_apart(tmp_path):
    with pytest.raises(WorkloadError, match=r"no file .*nowhere\.json"):
        load_model(tmp_path / "nowhere.json")
    with pytest.raises(WorkloadError, match="is a folder; give the"):
        load_model(tmp_path)


def test_unknown_name_gets_the_nearest():
    with pytest.raises(WorkloadError, match=r"no model 'llama-3.1-450b'; did you mean 'llama-3.1-405b'\?"):
        load_model("llama-3.1-450b")


@given(
    st.dictionaries(
        st.sampled_from(sorted(LLAMA)),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())),
    ),
    st.sampled_from(sorted(FAMILIES)),
)
def test_any_value_is_either_read_or_refused_in_words(change, kind):
    try:
        config = from_hugging_face(LLAMA | {"model_type": kind} | change)
    except WorkloadError:
        return
    assert config.parameters > 0
