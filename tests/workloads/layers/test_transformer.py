"""Operators of a block: shapes, conservation, tensor-parallel traffic, recomputation, experts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.operators import (
    Collective,
    CollectiveKind,
    Elementwise,
    Held,
    MatMul,
    Phase,
    Role,
)
from tests.builders import EXPERTS, PLAN, TINY
from workloads.layers import parts as parts_module
from workloads.layers import tensor_grid, transformer
from workloads.layers.retrieval import RetrievalParts
from workloads.layers.transformer import (
    backward_layer,
    backward_steps,
    block_steps,
    forward_embedding,
    forward_head,
    forward_layer,
    forward_steps,
    gradients,
)
from workloads.models.architecture import Positions
from workloads.models.config import from_hugging_face, known_models, load_model
from workloads.plan.parts import Attention, Formats, Recompute
from workloads.plan.plan import parse_plan


def products(items, phase=None):
    return [
        (operator, count)
        for operator, count in items
        if isinstance(operator, MatMul) and phase in (None, operator.phase)
    ]


def product_flops(items):
    return sum(operator.flops * count for operator, count in products(items))


def collectives(items, kind=None):
    return [
        (operator, count)
        for operator, count in items
        if isinstance(operator, Collective) and kind in (None, operator.kind)
    ]


def test_gpt_block_takes_24bsh2_plus_4bs2h():
    b, s, h = 2, 128, 256
    config = replace(TINY, hidden=h, heads=8, kv_heads=8, head_dim=32, ffn_hidden=4 * h, gated=False)
    plan = PLAN.with_(micro_batch=b, sequence_length=s)
    forward = product_flops(forward_layer(config, plan.share))
    assert forward == 24 * b * s * h**2 + 4 * b * s**2 * h
    assert product_flops(backward_layer(config, plan.share)) == 2 * forward


def test_gradient_products_have_the_shapes_of_the_chain_rule():
    forward = MatMul(name="x", phase=Phase.FORWARD, batch=3, m=5, k=7, n=11, held=Held.B)
    first, second = gradients(forward, Formats())
    assert (first.m, first.k, first.n, first.held, first.phase) == (5, 11, 7, Held.B, Phase.GRAD_INPUT)
    assert (second.m, second.k, second.n, second.held, second.phase) == (
        7,
        5,
        11,
        Held.NONE,
        Phase.GRAD_WEIGHT,
    )
    assert first.flops == second.flops == forward.flops


def test_attention_products_hold_nothing_in_any_phase():
    for items in (forward_layer(TINY, PLAN.share), backward_layer(TINY, PLAN.share)):
        found = [p for p, _ in products(items) if p.name in {"attention.scores", "attention.values"}]
        assert found
        assert {p.held for p in found} == {Held.NONE}
        assert not any(p.phase is Phase.GRAD_WEIGHT for p in found)


def test_every_weight_has_one_product_in_each_phase():
    for config in (TINY, EXPERTS):
        items = (*forward_layer(config, PLAN.share), *backward_layer(config, PLAN.share))
        weights = {p.name for p, _ in products(items) if p.held is Held.B}
        for name in weights:
            assert sorted(p.phase for p, _ in products(items) if p.name == name) == sorted(
                [Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT]
            )


def test_scores_have_the_heads_of_the_rank_as_their_batch():
    plan = PLAN.with_(tp=2, micro_batch=3)
    scores = next(
        p
        for p, _ in forward_layer(TINY, plan.share)
        if isinstance(p, MatMul) and p.name == "attention.scores"
    )
    assert (scores.batch, scores.m, scores.k, scores.n) == (3 * 8 // 2, 64, 8, 64)


@pytest.mark.parametrize("parallel", [True, False])
def test_tensor_ranks_share_the_products(parallel):
    whole = product_flops(forward_layer(TINY, PLAN.share)) + product_flops(forward_head(TINY, PLAN.share))
    for tp in (2, 4):
        plan = PLAN.with_(tp=tp, sequence_parallel=parallel)
        part = product_flops(forward_layer(TINY, plan.share)) + product_flops(forward_head(TINY, plan.share))
        assert part * tp == whole


def test_tensor_parallel_bytes_are_megatrons():
    """Two all-reduces of 2bsh bytes in each pass (arXiv:1909.08053), or as much gathered and scattered."""
    whole = 2 * PLAN.share.tokens * TINY.hidden
    plain = PLAN.with_(tp=4, sequence_parallel=False)
    for items in (forward_layer(TINY, plain.share), backward_layer(TINY, plain.share)):
        found = collectives(items)
        assert [c.kind for c, _ in found] == [CollectiveKind.ALL_REDUCE] * 2
        assert {c.payload_bytes for c, _ in found} == {whole}
    shared = PLAN.with_(tp=4)
    for items in (forward_layer(TINY, shared.share), backward_layer(TINY, shared.share)):
        gathered = collectives(items, CollectiveKind.ALL_GATHER)
        scattered = collectives(items, CollectiveKind.REDUCE_SCATTER)
        assert len(gathered) == len(scattered) == 2
        assert {c.payload_bytes for c, _ in gathered} == {whole / 4}
        assert {c.payload_bytes for c, _ in scattered} == {whole}


def test_collectives_alternate_so_that_every_region_is_entered_and_left():
    plan = PLAN.with_(tp=4)
    for items in (forward_layer(TINY, plan.share), backward_layer(TINY, plan.share)):
        kinds = [c.kind for c, _ in collectives(items)]
        assert kinds == [CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER] * 2


def test_one_tensor_rank_sends_nothing():
    assert not collectives(
        (
            *forward_layer(TINY, PLAN.share),
            *forward_embedding(TINY, PLAN.share),
            *forward_head(TINY, PLAN.share),
        )
    )


def test_recomputation_adds_forward_work_to_the_backward_pass():
    forward = product_flops(forward_layer(TINY, PLAN.share))
    none = product_flops(backward_layer(TINY, PLAN.share))
    full = product_flops(backward_layer(TINY, PLAN.with_(recompute=Recompute.FULL).share))
    selective = product_flops(backward_layer(TINY, PLAN.with_(recompute=Recompute.SELECTIVE).share))
    assert full - none == forward
    assert selective - none == 4 * 64 * 64 * TINY.query_width


def test_full_recomputation_repeats_the_traffic_too():
    plan = PLAN.with_(tp=4, recompute=Recompute.FULL)
    assert len(collectives(backward_layer(TINY, plan.share))) == 8


def test_flash_attention_repeats_the_scores_and_moves_no_softmax():
    plan = PLAN.with_(attention=Attention.FLASH_UNMASKED)
    extra = product_flops(backward_layer(TINY, plan.share)) - product_flops(backward_layer(TINY, PLAN.share))
    assert extra == 2 * 64 * 64 * TINY.query_width
    softmax = next(e for e, _ in forward_layer(TINY, plan.share) if e.name == "attention.softmax")
    assert softmax.read_bytes == softmax.written_bytes == 0
    assert softmax.flops > 0


def test_skipping_the_mask_halves_attention():
    def core(plan):
        return sum(
            p.flops
            for p, _ in products(forward_layer(TINY, plan.share))
            if p.name.endswith(("scores", "values"))
        )

    assert core(PLAN.with_(attention=Attention.FLASH)) == core(PLAN) / 2


def test_experts_work_as_much_as_the_tokens_that_visit_them():
    dense = product_flops(forward_layer(TINY, PLAN.share))
    sparse = product_flops(forward_layer(EXPERTS, PLAN.share))
    mlp = 2 * PLAN.share.tokens * TINY.expert_matrices
    router = 2 * PLAN.share.tokens * TINY.hidden * 8
    assert sparse - dense == mlp + router


def test_expert_parallel_ranks_exchange_tokens_and_keep_the_work():
    plan = PLAN.with_(ep=4, dp=4)
    items = forward_layer(EXPERTS, plan.share)
    sent = collectives(items, CollectiveKind.ALL_TO_ALL)
    assert [c.name for c, _ in sent] == ["mlp.dispatch", "mlp.combine"]
    assert {c.payload_bytes for c, _ in sent} == {2 * 2 * PLAN.share.tokens * TINY.hidden}
    assert {(c.axis, c.size) for c, _ in sent} == {("ep", 4)}
    assert product_flops(items) == product_flops(forward_layer(EXPERTS, PLAN.share))
    assert len(collectives(backward_layer(EXPERTS, plan.share), CollectiveKind.ALL_TO_ALL)) == 2


def test_model_without_rotary_positions_has_no_rotary_step():
    assert not [
        e
        for e, _ in forward_layer(replace(TINY, positions=Positions.ALIBI), PLAN.share)
        if "rotary" in e.name
    ]


FAMILIES = Path(__file__).parents[1] / "models" / "families.jsonl"
"""Sizes of published models."""


def operator_roles(config, plan):
    steps = [step for shape in config.shapes or (config,) for step in block_steps(shape, plan.share)]
    if config.retrieval is not None:
        reads = RetrievalParts(config, plan.share, config.retrieval)
        steps += [*reads.cross(), *reads.encoder()]
    ends = (*forward_embedding(config, plan.share), *forward_head(config, plan.share))
    every = (*steps, *(one for one, _ in ends))
    return {one.role for one in every if isinstance(one, MatMul | Elementwise)}


def test_roles_that_operators_are_chosen_by_are_roles_of_operators():
    """A set of roles that nobody has would choose nothing, without a word. Takes 1 s."""
    known = set()
    files = [json.loads(line) for line in FAMILIES.read_text().splitlines()]
    published = [
        one["config"] for one in files if one["name"] in {"jamba-v0.1", "kimi-linear-48b-a3b", "qwen3.5-9b"}
    ]
    for config in (*map(load_model, known_models()), *map(from_hugging_face, published)):
        experts = ",ep=2" if config.experts else ""
        plan = parse_plan(f"tp=2,dp=2,global_batch=4,sequence_length=128{experts}")
        known |= operator_roles(config, plan)
        if config.dropout:
            known |= operator_roles(config, plan.with_(attention=Attention.FULL))
    chosen = {
        name: names
        for module in (parts_module, tensor_grid, transformer)
        for name, names in vars(module).items()
        if isinstance(names, frozenset) and all(isinstance(one, Role) for one in names)
    }
    assert len(chosen) >= 9
    assert not {name: names - known for name, names in chosen.items() if names - known}


@pytest.mark.parametrize("text", ["precision=fp8,recompute=selective,attention=full", "recompute_norms=true"])
def test_names_of_operators_choose_nothing(text):
    share = parse_plan(f"tp=2,dp=1,global_batch=4,sequence_length=128,{text}").share
    steps = block_steps(TINY, share)
    renamed = tuple(replace(step, name="same") for step in steps)
    for passed in (forward_steps, backward_steps):
        told, same = (
            [(replace(one, name=""), count) for one, count in passed(some, share)]
            for some in (steps, renamed)
        )
        assert told == same
