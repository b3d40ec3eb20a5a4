"""Weights held as operands of fp8 products alone: memory, traffic, the update, and the search."""

import pytest

import heliograph as hg
from heliograph.comparison.plan_search import searched
from heliograph.comparison.search import search
from heliograph.systems.system import build_system
from simulator.errors import WorkloadError
from workloads.models.config import load_model
from workloads.plan.parts import Precision
from workloads.plan.plan import parse_plan, plan_words
from workloads.step.memory import check_fits, memory_by_kind
from workloads.step.sharding import RankParameters, update_work
from workloads.step.traffic import gathering

LLAMA = load_model("llama-3-8b")
HELD = RankParameters(dense=1024)
WHOLE = parse_plan("dp=8,zero=1,global_batch=8,precision=fp8")
ALONE = WHOLE.with_(fp8_params=True)


def weights(plan):
    return memory_by_kind(LLAMA, plan, 0)["weights"]


def test_weights_take_two_bytes_in_place_of_four():
    assert weights(ALONE) == weights(WHOLE) / 2 == weights(parse_plan("dp=8,zero=1,global_batch=8"))
    assert memory_by_kind(LLAMA, ALONE, 0)["optimizer"] == memory_by_kind(LLAMA, WHOLE, 0)["optimizer"]


def test_gathers_carry_one_byte_an_element():
    alone, whole = (gathering(plan.with_(zero=3), HELD, forward=True).collectives for plan in (ALONE, WHOLE))
    assert [2 * one.payload_bytes for one in alone] == [one.payload_bytes for one in whole]


def test_the_update_writes_operands_and_casts_no_weight():
    alone, whole = (update_work(LLAMA, plan, HELD) for plan in (ALONE, WHOLE))
    shared = HELD.total / 8
    assert whole.written_bytes - alone.written_bytes == pytest.approx(shared + HELD.total)
    assert whole.read_bytes - alone.read_bytes == pytest.approx(HELD.total)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("", "needs precision=fp8 or mxfp8"),
        ("precision=nvfp4", "needs precision=fp8 or mxfp8"),
        ("precision=fp8,master_bytes=2", "master_bytes=4"),
    ],
)
def test_other_formats_refuse_it(keys, told):
    with pytest.raises(WorkloadError, match=told):
        parse_plan(f"dp=8,global_batch=8,fp8_params=true,{keys}")


def test_a_search_takes_it_unless_the_plan_says_otherwise():
    fp8, bf16 = (build_system(f"gpu_packet:{form}", accelerators=8) for form in ("fp8", "bf16"))
    base = parse_plan("global_batch=8")
    assert searched(fp8, base).precision.fp8_params
    assert not searched(bf16, base).precision.fp8_params
    assert bf16.planned(ALONE).precision.kind is Precision.BF16
    found = {
        text: search(fp8, "gpt2", f"global_batch=8{text}", top=1).winner.plan.precision.fp8_params
        for text in ("", ",fp8_params=false")
    }
    assert found == {"": True, ",fp8_params=false": False}
    plans = [f"best,global_batch=8{text}" for text in found]
    rows = hg.sweep(fp8, {"plan": plans}, model="gpt2").rows()
    assert ["fp8_params" in row["plan"] for row in rows] == [*found.values()]
    assert "fp8_params" in plan_words(ALONE)


def test_a_plan_that_does_not_fit_is_told_of_it():
    with pytest.raises(WorkloadError, match="try fp8_params=true, a larger tp"):
        check_fits(LLAMA, WHOLE.with_(grad_bytes=2), 1e9)
