"""Memory of arrays of plans: `workloads.memory` in closed form, stage by representative stage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workloads.architecture import TransformerConfig
from workloads.choices import Precision, Schedule
from workloads.memory import buffer_bytes, layer_activation_bytes
from workloads.plan import Parallelism
from workloads.plan_arrays import SCHEDULES, PlanArrays
from workloads.plan_shapes import SHAPE, rank_share
from workloads.sharding import embedding_parameters, head_parameters, layer_parameters
from workloads.stages import balanced_layers, stage_layers
from workloads.updates import FP8_COPIES_BYTES, optimizer_bytes


def shape_plan(plans: PlanArrays, row: int) -> Parallelism:
    """Return the least plan whose ranks have the share of a microbatch that a row's have."""
    plan = plans.plan(row)
    return rank_share(plans.base, {name: getattr(plan, name) for name in SHAPE})


def stage_blocks(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return the blocks of the first, the fullest inner and the last stage, shape [P, 3]."""
    share = balanced_layers if plans.base.embedding_as_layers else stage_layers
    first, place = plans.distinct(("pp", "vpp"))
    found = np.zeros((len(first), 3))
    for number, row in enumerate(first):
        pp, vpp = int(plans["pp"][row]), int(plans["vpp"][row])
        layers = np.array(share(config.layers, pp * vpp)).reshape(vpp, pp).sum(axis=0)
        inner = layers[1:-1] if pp > 2 else layers
        found[number] = layers[0], inner.max(), layers[-1]
    return found[place]


def parameters(config: TransformerConfig, plans: PlanArrays) -> tuple[np.ndarray, np.ndarray]:
    """Return the parameters of a rank of the three stages: dense ones and experts', each of shape [P, 3]."""
    first, place = plans.distinct(("tp", "ep", "pp"))
    each = np.zeros((len(first), 4))
    for number, row in enumerate(first):
        whole = shape_plan(plans, int(row))
        block = layer_parameters(config, whole)
        dense, expert = float(block.dense), float(block.expert)
        if config.dense_layers:
            share = config.dense_layers / config.layers
            plain = layer_parameters(config.dense, whole)
            dense = dense * (1 - share) + plain.total * share
            expert *= 1 - share
        staged = replace(whole, pp=2) if plans["pp"][row] > 1 else whole
        each[number] = (
            dense,
            expert,
            embedding_parameters(config, whole).total,
            head_parameters(config, staged).total,
        )
    blocks = stage_blocks(config, plans)
    each = each[place]
    dense_P3 = blocks * each[:, :1]
    alone = plans["pp"] == 1
    dense_P3[:, 0] += each[:, 2]
    dense_P3[:, 2] += each[:, 3] + np.where(alone, each[:, 2], 0.0)
    dense_P3[:, 0] += np.where(alone, each[:, 3], 0.0)
    return dense_P3, blocks * each[:, 1:2]


def kept_blocks(plans: PlanArrays, blocks_P3: np.ndarray) -> np.ndarray:
    """Return the blocks whose activations the three stages keep, each microbatch counted, shape [P, 3].

    Notes
    -----
    `workloads.schedules.in_flight`; interleaved stages run 2 (p - 1 - i) + (v - 1) p passes ahead
    (arXiv:2104.04473, section 2.2.2), each through a chunk, here of mean size.
    """
    p, m, v = plans["pp"][:, None], plans.microbatches[:, None], plans["vpp"][:, None]
    stage = np.concatenate([np.zeros_like(p), np.minimum(1, p - 1), p - 1], axis=1)
    chunked = np.minimum(2 * (p - 1 - stage) + (v - 1) * p + 1, m * v) * blocks_P3 / v
    chunked = np.minimum(chunked, m * blocks_P3)
    plain = np.minimum(m, p - stage) * blocks_P3
    kinds = plans["schedule"][:, None]
    plain = np.where(kinds == SCHEDULES.index(Schedule.GPIPE), m * blocks_P3, plain)
    split = np.minimum(m, p) * blocks_P3
    plain = np.where(kinds == SCHEDULES.index(Schedule.ZERO_BUBBLE), split, plain)
    return np.where(v > 1, chunked, plain)


def shared(plans: PlanArrays, dense_P3: np.ndarray, expert_P3: np.ndarray) -> np.ndarray:
    """Return a rank's share of parameters that are cut over the data-parallel ranks, shape [P, 3]."""
    ranks = plans.gradient_ranks[:, None]
    return dense_P3 / ranks + expert_P3 * plans["ep"][:, None] / ranks


def memory_bytes(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    """Return the bytes that the fullest rank of each plan needs, shape [P].

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plans : PlanArrays
        Rows that break no rule.

    Notes
    -----
    `workloads.memory.memory_by_kind` of the first, the second and the last stage; blocks of a mixture with
    dense ones are taken at their mean.
    """
    dense, expert = parameters(config, plans)
    total, share = dense + expert, shared(plans, dense, expert)
    zero = plans["zero"][:, None]
    base = plans.base
    copies = FP8_COPIES_BYTES if base.precision is Precision.FP8 else 0
    kept = share + (0.0 if base.reshard else total)
    weights = np.where(zero == 3, kept, total) * (base.precision.element_bytes + copies)
    gradients = np.where(zero >= 2, share, total) * base.grad_bytes
    first, place = plans.distinct(("tp", "ep"))
    state = np.array([optimizer_bytes(config, shape_plan(plans, int(row))) for row in first])[place]
    optimizer = np.where(zero >= 1, share, total) * state[:, None]
    first, place = plans.distinct(SHAPE)
    each = np.array([_block_bytes(config, shape_plan(plans, int(row))) for row in first])[place]
    activations = kept_blocks(plans, stage_blocks(config, plans)) * each[:, None]
    return (weights + gradients + optimizer + activations + _buffers(config, plans)).max(axis=1)


def _block_bytes(config: TransformerConfig, plan: Parallelism) -> float:
    whole = layer_activation_bytes(config, plan)
    if not config.dense_layers:
        return whole
    share = config.dense_layers / config.layers
    return whole * (1 - share) + layer_activation_bytes(config.dense, plan) * share


def _buffers(config: TransformerConfig, plans: PlanArrays) -> np.ndarray:
    staged = plans["pp"] > 1
    columns = dict(plans.columns) | {
        "staged": staged.astype(np.int32),
        "moves": (plans.gradient_ranks > 1).astype(np.int32),
    }
    first, place = replace(plans, columns=columns).distinct((*SHAPE, "zero", "staged", "moves"))
    found = np.zeros((len(first), 3))
    for number, row in enumerate(first):
        whole = shape_plan(plans, int(row))
        dp = max(whole.dp, 2) if plans.gradient_ranks[row] > 1 and whole.cp == 1 else whole.dp
        stages = 3 if staged[row] and config.layers > 2 else 1 + int(staged[row])
        plan = replace(
            whole, pp=stages, dp=dp, global_batch=dp * whole.micro_batch, zero=int(plans["zero"][row])
        )
        found[number] = [buffer_bytes(config, plan, min(stage, stages - 1)) for stage in range(3)]
    return found[place]
