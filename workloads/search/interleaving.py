"""Rhythm of interleaved pipelines whose chunks differ: blocks that do not divide, embedding and head."""

from __future__ import annotations

import numpy as np

from workloads.models.architecture import TransformerConfig
from workloads.search.plans import PlanArrays

ROUNDS = 3
"""Groups of microbatches that are played until the last one's time repeats; the second does so already where
chunks differ by a block."""


def periods(
    config: TransformerConfig,
    plans: PlanArrays,
    *,
    blocks: np.ndarray,
    forward_s: np.ndarray,
    backward_s: np.ndarray,
    send_s: np.ndarray,
) -> np.ndarray:
    """Return the time between two microbatches of plans whose stages hold several chunks, in s, shape [P].

    Parameters
    ----------
    config, plans : TransformerConfig, PlanArrays
        The model and its plans.
    blocks : numpy.ndarray
        Blocks of the first, the fullest inner and the last stage, shape [P, 3].
    forward_s, backward_s : numpy.ndarray
        Passes of a microbatch through those stages, shape [P, 3].
    send_s : numpy.ndarray
        Send from a stage to the next, shape [P].

    Returns
    -------
    numpy.ndarray
        0 without interleaving, and where microbatches are fewer than stages.

    Notes
    -----
    Stages run by turns a forward pass of one chunk and a backward pass of another
    (`workloads.pipeline.schedules.interleaved`). A pass waits for the one before it on its stage, and for its
    input from the neighbour one turn earlier (from the last stage, where it enters the next chunk): a
    max-plus linear system, of which a group of microbatches is played after others. Where chunks are unequal
    their turns meet shorter ones of neighbours, and the period is longer than the passes of any stage.

    References
    ----------
    Baccelli et al., "Synchronization and linearity" (1992), theorem 3.28.
    """
    found = np.zeros(len(plans))
    m, p, v = plans.microbatches, plans["pp"], plans["vpp"]
    woven = (v > 1) & (p > 1) & (m >= p)
    group = np.where(woven, -(-m // np.maximum(1, m // np.maximum(p, 1))), 0)
    sizes = zip(p[woven].tolist(), v[woven].tolist(), group[woven].tolist(), strict=True)
    for stages, chunks, many in sorted(set(sizes)):
        rows = np.flatnonzero(woven & (p == stages) & (v == chunks) & (group == many))
        shared = plans.base.schedule.blocks(config.layers, stages * chunks, config.predicted_tokens)
        held = np.array(shared, dtype=float).reshape(chunks, stages)
        passes = [_chunk_times(held, blocks[rows], times_s[rows]) for times_s in (forward_s, backward_s)]
        found[rows] = _period(passes[0], passes[1], send_s[rows], many)
    return found


def _chunk_times(held: np.ndarray, blocks: np.ndarray, stage_s: np.ndarray) -> np.ndarray:
    """Return the passes of all chunks, shape [chunks, stages, P], from those of three stages."""
    block_s = stage_s[:, 1] / np.maximum(blocks[:, 1], 1.0)
    times_s = held[:, :, None] * block_s
    times_s[0, 0] += np.maximum(0.0, stage_s[:, 0] - blocks[:, 0] * block_s)
    times_s[-1, -1] += np.maximum(0.0, stage_s[:, 2] - blocks[:, 2] * block_s)
    return times_s


def _period(forward_s: np.ndarray, backward_s: np.ndarray, send_s: np.ndarray, many: int) -> np.ndarray:
    """Return the time of a group of so many microbatches, over their number, shape [P]."""
    chunks, stages, plans = forward_s.shape
    place = np.arange(stages)
    behind = stages - 1 - place
    lag = many - stages + 1
    turns = chunks * many
    done_f = np.zeros((lag, stages, plans))  # ends of the last turns, the latest last
    done_b = np.zeros((lag, stages, plans))
    marks = []
    for turn in range(ROUNDS * turns):
        ahead = (turn + behind) // many + chunks - 1
        chunk_f, chunk_b = ahead % chunks, chunks - 1 - (turn - behind) // many % chunks
        input_f, input_b = np.empty((stages, plans)), np.empty((stages, plans))
        input_f[1:], input_b[:-1] = done_f[-1, :-1], done_b[-1, 1:]
        input_f[0] = done_f[0, -1] if chunk_f[0] else 0.0
        input_b[-1] = done_b[0, 0] if chunk_b[-1] < chunks - 1 else 0.0
        end_f = np.maximum(done_b[-1], input_f + send_s) + forward_s[chunk_f, place]
        end_b = np.maximum(end_f, input_b + send_s) + backward_s[chunk_b, place]
        done_f = np.concatenate([done_f[1:], end_f[None]])
        done_b = np.concatenate([done_b[1:], end_b[None]])
        if (turn + 1) % turns == 0:
            marks.append(end_b.max(axis=0))
    return (marks[-1] - marks[-2]) / many
