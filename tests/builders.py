"""Small models, plans, memories and flows that several test files ask about."""

import csv
from dataclasses import replace

import numpy as np

from electronic.devices import load_scale_up
from optical.cores import CORES, load_core
from optical.transfer.mesh import self_configure
from simulator.errors import HeliographError
from simulator.node import Memory
from simulator.operators import Collective, CollectiveKind, Held, MatMul, Phase
from simulator.parameter_tree import numeric_leaves, replace_at
from workloads.models.architecture import TransformerConfig
from workloads.plan.parts import Attention, Recompute
from workloads.plan.plan import Plan

TINY = TransformerConfig(
    name="tiny",
    layers=8,
    hidden=64,
    heads=8,
    kv_heads=4,
    head_dim=8,
    ffn_hidden=128,
    vocabulary=512,
    max_sequence=256,
    gated=True,
)


PLAN = Plan.of(
    global_batch=16,
    sequence_length=64,
    attention=Attention.FULL,
    vocabulary_multiple=1,
    recompute=Recompute.NONE,
)


EXPERTS = replace(TINY, experts=8, experts_per_token=2)


HBM = Memory(
    capacity_bytes=80e9, bandwidth_bytes_per_s=3e12, efficiency=0.9, energy_j_per_byte=31.2e-12, static_w=20.0
)


class Idle:
    name, static_w = "idle", 0.0

    def accepts(self, work):
        return True


def call(capsys, *words):
    """Run a command in this process; return its exit code, output and errors."""
    from experiments.__main__ import main

    code = main(list(map(str, words)))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def csv_rows(path):
    """Return the rows of a CSV file by column."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def product(m, k, n, held=Held.NONE, phase=Phase.FORWARD, *, batch=1):
    return MatMul(name="product", phase=phase, batch=batch, m=m, k=k, n=n, held=held)


def collective(kind, size, payload_bytes, *, axis="dp", phase=Phase.FORWARD, name="collective", **more):
    return Collective(
        name=name,
        phase=phase,
        kind=kind,
        axis=axis,
        size=size,
        payload_bytes=payload_bytes,
        **more,
    )


def dead_numbers(thing, answers, *, factors=(2, 0.5, 0.01), idle=lambda path: False, refused=HeliographError):
    """Return the paths of the numbers that move no answer by any factor, and are never refused."""
    before = answers(thing)

    def moves(path, value, factor):
        new = max(1, round(value * factor)) if isinstance(value, int) else (value * factor or 1.0)
        try:
            return answers(replace_at(thing, path, new)) != before
        except refused:
            return True

    return [
        path
        for path, value in numeric_leaves(thing).items()
        if not idle(path) and not any(moves(path, value, factor) for factor in factors)
    ]


def cores_that(fit):
    """Return the names of the cores that fit; one that cannot be built fails in its own tests, not here."""
    found = []
    for name in CORES:
        try:
            core = load_core(name)
        except Exception:
            continue
        if fit(core):
            found.append(name)
    return found


REDUCING = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER)


def permutation(n, seed=0):
    order = np.random.default_rng(seed).permutation(n)
    found = np.empty(n, dtype=int)
    found[order] = np.roll(order, 1)
    return found


def haar(n, seed=0):
    generator = np.random.default_rng(seed)
    normal = generator.standard_normal((2, n, n))
    q, r = np.linalg.qr(normal[0] + 1j * normal[1])
    return q * (np.diagonal(r) / np.abs(np.diagonal(r)))


SINGLE = replace(load_scale_up("nvlink4"), size=1)


def coin_change_hops(size, strides):
    """Return the fewest rings' steps that lead a distance on, by distance, shape [size]; infinite for never.

    Notes
    -----
    CoinChangeMod of TopoOpt: change for a distance modulo `size`, the coins being the strides.
    """
    fewest = np.full(size, np.inf)
    fewest[0] = 0.0
    front = np.zeros(1, dtype=np.int64)
    coins = np.array(strides, dtype=np.int64).reshape(1, -1)
    while len(front):
        following = np.unique((front[:, None] + coins) % size)
        following = following[np.isinf(fewest[following])]
        fewest[following] = fewest[front[0]] + 1.0
        front = following
    return fewest


def in_a_block(operator):
    """Return whether an operator is of a block, not of an end or of the step's traffic, by its name."""
    return operator.name.startswith(("attention.", "mlp.", "block."))


def largest_gain(matrix):
    """Greatest field gain of any input, the largest singular value; at most 1 if passive."""
    return float(np.linalg.norm(matrix, ord=2, axis=(-2, -1)).max())


def self_configured(weight, rows_known, columns_known):
    """Settings of a programmed weight that make up for what is known of the errors of its meshes."""
    rows, columns = self_configure(weight.rows, rows_known), self_configure(weight.columns, columns_known)
    return replace(weight, rows=rows, columns=columns)
