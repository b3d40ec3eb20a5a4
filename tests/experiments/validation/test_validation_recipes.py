"""What a source's recipe says counts for all its rows, a row's own word counts more."""

import pytest

from experiments.validation.machines import (
    RECIPE_KEYS,
    accelerator_of,
    model_of,
    plan_of,
    recipe_values,
    recipes,
    with_recipe,
    with_room,
)
from experiments.validation.rows import Record
from workloads.plan.parts import ExpertExchange, Precision, Recompute
from workloads.plan.plan import Plan, parse_plan

SOURCE = "NVIDIA DGX Cloud benchmarking v25.02 (LLAMA3_70B bf16)"
LAUNCHER = "NeMo-Framework-Launcher examples/README.md (DGX H100, FP8)"
BRIDGE = "Megatron-Bridge performance summary, 26.06 NeMo Container"


@pytest.mark.parametrize(
    ("cells", "tp", "sharded", "expected"),
    [
        ({"source": SOURCE}, 4, True, True),
        ({"source": SOURCE, "tp_comm_overlap": "n"}, 4, True, False),
        ({"source": SOURCE}, 1, True, False),
        ({"source": SOURCE}, 4, False, False),
        ({"source": "NVIDIA DGX Cloud benchmarking v25.01 (LLAMA3.1_405B bf16)"}, 4, True, False),
        ({"source": "another", "tp_comm_overlap": "y"}, 4, True, True),
        ({"source": "another"}, 4, True, False),
        ({"source": BRIDGE, "precision": "fp8"}, 4, True, True),
        ({"source": BRIDGE, "precision": "nvfp4"}, 4, True, False),
        ({"source": "MLPerf Training v4.0 NVIDIA Eos", "precision": "fp8"}, 4, True, True),
        ({"source": LAUNCHER, "model_name": "LLAMA2-70B"}, 4, True, True),
        ({"source": LAUNCHER, "model_name": "GPT3-175B"}, 4, True, False),
    ],
)
def test_recipe_of_the_source_says_whether_traffic_overlaps(cells, tp, sharded, expected):
    record = Record(where="x:1", cells=cells)
    precision = cells.get("precision", "bf16")
    plan = parse_plan(f"tp={tp},precision={precision},sequence_parallel={str(sharded).lower()}")
    assert with_recipe(record, plan).traffic.overlap_tensor is expected


def test_special_recipe_adds_to_the_general_one():
    """A captured step pays no host; where a release did not capture it, the host is paid as everywhere."""
    cells = {"system": "GB300 NVL72", "model_name": "Qwen3_30B_a3B", "precision": "mxfp8", "source": BRIDGE}
    cells |= {"tp": "1", "pp": "1", "ep": "8", "n_accelerators": "8", "seq_len": "4096"}
    record = Record(where="x:1", cells=cells | {"global_batch_sequences": "512", "micro_batch": "8"})
    plan = plan_of(record, 8)
    assert plan.traffic.overlap_experts
    assert plan.experts.expert_exchange is ExpertExchange.ONCE_PER_NODE
    assert plan.precision.grad_bytes == 2
    assert accelerator_of(record).chip.host_operator_s == 0.0
    older = Record(where="x:1", cells=record.cells | {"source": BRIDGE.replace("26.06", "26.04.01")})
    assert not plan_of(older, 8).traffic.overlap_experts
    assert accelerator_of(older).chip.host_operator_s > 0.0


def test_a_recipe_that_recomputes_nothing_counts_more_than_the_memory():
    """Rows that say nothing recompute as much as their memory asks for, unless their recipe says more."""
    cells = {"system": "B300 SXM", "model_name": "Qwen3_30B_a3B", "precision": "mxfp8", "source": BRIDGE}
    cells |= {"tp": "1", "pp": "1", "ep": "8", "n_accelerators": "8", "seq_len": "4096"}
    cells |= {"global_batch_sequences": "512", "micro_batch": "8"}
    said, silent = (Record(where="x:1", cells=cells | more) for more in ({}, {"source": "another"}))
    config = model_of(said, pp=1, dropout=False)
    kinds = [with_room(one, config, plan_of(one, 8), 1e9).recompute.kind for one in (said, silent)]
    assert kinds == [Recompute.NONE, Recompute.FULL]


def test_every_recipe_cites_its_file_and_names_what_plans_and_chips_have():
    whole, narrow = Plan.of(recompute=Recompute.FULL), Plan.of(precision=Precision.FP8)
    for row in recipes():
        assert row["citation"]
        assert row["plan"] or row["chip"] or row["selective"]
        parse_plan(",".join(row["plan"].split()), base=narrow if "fp8" in row["precision"] else Plan())
        parse_plan(",".join(row["selective"].split()), base=whole)
    chip = accelerator_of(Record(where="x:1", cells={"system": "B200 SXM", "source": "another"})).chip
    names = {pair.split("=")[0] for row in recipes() for pair in row["chip"].split()}
    assert all(hasattr(chip, name) for name in names)
    assert set(RECIPE_KEYS) < set(recipes()[0])
    assert recipe_values(Record(where="x:1", cells={"source": BRIDGE}), "plan")["grad_bytes"] == "2"


@pytest.mark.parametrize(
    ("release", "model", "precision", "grad_bytes", "alone"),
    [
        ("v24.11.1", "GPT3-175B", "fp8", 2, True),
        ("v24.11.1", "GPT3-5B", "fp8", 4, False),
        ("v25.02", "LLAMA3.1_405B-proxy21L", "bf16", 2, False),
        ("v25.02", "Nemotron4-15B", "fp8", 4, True),
        ("v25.02", "Nemotron4-340B", "fp8", 2, True),
        ("v25.03", "LLAMA3_70B", "fp8", 4, False),
        ("v25.05.05", "LLAMA3.1_405B", "fp8", 2, True),
        ("26.02.01", "Qwen3_235B_a22B", "mxfp8", 2, True),
        ("26.02.01", "LLAMA3_70B", "nvfp4", 2, False),
        ("26.06", "GPT OSS 120B", "mxfp8", 2, False),
    ],
)
def test_gradients_and_weights_have_the_form_that_a_release_states(
    release, model, precision, grad_bytes, alone
):
    page, tail = "NVIDIA DGX Cloud benchmarking", f"({model.split('-proxy')[0]} {precision})"
    if release.startswith("2"):
        page, tail = "Megatron-Bridge performance summary,", "NeMo Container"
    cells = {"source": f"{page} {release} {tail}"}
    cells |= {"model_name": model, "precision": precision, "system": "H100-80GB SXM"}
    plan = Plan.of(precision=Precision(precision), grad_bytes=4)
    formats = with_recipe(Record(where="x:1", cells=cells), plan).precision
    assert (formats.grad_bytes, formats.fp8_params) == (grad_bytes, alone)
