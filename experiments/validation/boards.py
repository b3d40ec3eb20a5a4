"""Published power of GPU boards that generate text, which is memory's work more than the products'."""

from __future__ import annotations

import dataclasses
import math

from electronic.gpu import gpu_of, load_gpu
from experiments.validation.rows import Outcome, Record, SkipError, check_provenance, judged
from simulator.operators import Elementwise, MatMul, Phase

NEEDS = (("gpu",), ("layers",), ("hidden",), ("sequences",), ("tokens_per_s",), ("power_w",))
"""Columns without which a file is no table of boards; of each group one."""
PROMPT_TOKENS = 100
"""Tokens of a prompt, which nobody published; with none, or twice as many, the mean error changes by less
than half a point."""
BUSY_SHARE = 0.5
"""Share of the measured time that kernels must fill: elsewhere the board waits for its host."""
STORED_BYTES = 2
"""Bytes of an element of keys, values and the head."""


def outcome(record: Record) -> Outcome:
    """Return what becomes of a row of measured power, W of one board."""
    with judged(record, unit="W") as row:
        check_provenance(record)
        gpu = dataclasses.replace(load_gpu(gpu_of(record.text("gpu"))), alone=True)
        rate, measured = (record.number(name, strict=True) for name in ("tokens_per_s", "power_w"))
        sequences = record.number("sequences", strict=True)
        if rate is None or measured is None or sequences is None:
            msg = "nothing measured is given"
            raise SkipError(msg)
        row.measured, row.constant = measured, gpu.chip.tdp_w
        costs = [(count, gpu.cost(one)) for count, one in token_work(record, sequences)]
        step_s, kernels_s = sequences / rate, math.fsum(count * cost.time_s for count, cost in costs)
        if kernels_s < BUSY_SHARE * step_s:
            msg = f"kernels fill less than {BUSY_SHARE:.0%} of the time: the board waited for its host"
            raise SkipError(msg)
        drawn_j = math.fsum(
            count * (cost.energy_j["compute"] + cost.energy_j["hbm"]) for count, cost in costs
        )
        row.predicted = gpu.power_w(drawn_j, step_s)
        row.hint = f"kernels fill {kernels_s / step_s:.0%} of the time"
    return row


def token_work(record: Record, sequences: float) -> list[tuple[int, MatMul | Elementwise]]:
    """Return the operators of one token of every sequence on one of the row's GPUs, each with its count.

    Weights are split over the GPUs as tensor ranks split them. What the ranks exchange is left out.
    """
    layers, hidden, ffn = (record.needed(name) for name in ("layers", "hidden", "ffn_hidden"))
    heads, kv_heads, head_dim = (record.needed(name) for name in ("heads", "kv_heads", "head_dim"))
    gpus, vocab, weight_bytes = (record.needed(name) for name in ("gpus", "vocab", "weight_bytes"))
    many = round(sequences)
    context = PROMPT_TOKENS + (record.number("output_tokens") or 0.0) / 2.0
    record.assume(f"prompts of {PROMPT_TOKENS} tokens, outputs half done on average")

    def weight(rows: int, columns: int, element_bytes: int = weight_bytes) -> MatMul:
        return MatMul(
            name="weight",
            phase=Phase.FORWARD,
            batch=1,
            m=many,
            k=rows,
            n=columns,
            element_bytes=element_bytes,
        )

    def streamed(flops: float, read: float, written: float) -> Elementwise:
        return Elementwise(
            name="streamed",
            phase=Phase.FORWARD,
            flops=flops,
            read_bytes=STORED_BYTES * read,
            written_bytes=STORED_BYTES * written,
        )

    keys = many * context / gpus
    inner, norm = many * ffn / gpus, many * hidden
    return [
        (layers, weight(hidden, (heads + 2 * kv_heads) * head_dim // gpus)),
        (layers, weight(heads * head_dim // gpus, hidden)),
        (layers, weight(hidden, 2 * ffn // gpus)),
        (layers, weight(ffn // gpus, hidden)),
        (layers, streamed(4.0 * keys * heads * head_dim, 2.0 * keys * kv_heads * head_dim, 0.0)),
        (layers, streamed(4.0 * inner, 2.0 * inner, inner)),
        (2 * layers, streamed(4.0 * norm, norm, norm)),
        (1, weight(hidden, vocab // gpus, STORED_BYTES)),
    ]
