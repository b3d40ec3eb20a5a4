"""Blocks of the model on each pipeline stage."""

from __future__ import annotations

from simulator.errors import WorkloadError


def stage_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Return how many blocks each pipeline stage holds.

    Parameters
    ----------
    layers : int
        Blocks of the model, at least `pp`.
    pp : int
        Stages.

    Returns
    -------
    tuple of int
        One count a stage. When they cannot be equal, the first and the last stage have fewer, for they also
        hold the embedding and the head; among the inner stages the later ones, which keep fewer microbatches,
        have more.

    Raises
    ------
    WorkloadError
        If there are more stages than blocks.

    References
    ----------
    The Llama 3 herd of models, arXiv:2407.21783, section 3.3.2 (one block fewer on the first and last stage).
    """
    if not 1 <= pp <= layers:
        msg = f"pipeline ({pp}) must be from 1 to layers ({layers}); try {layers} or fewer"
        raise WorkloadError(msg)
    least, extra = divmod(layers, pp)
    favoured = [*range(pp - 2, 0, -1), 0]
    more = set(favoured[:extra])
    return tuple(least + (stage in more) for stage in range(pp))


def balanced_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Return how many blocks each stage holds if embedding and head count as a block each.

    Notes
    -----
    Blocks, embedding and head together are shared as `stage_layers` shares blocks. BLOOM's 70 blocks stand on
    12 stages as 5, 6, ... 6, 5 (bigscience, chronicles of 176B: embeddings as two more layers).
    """
    if pp == 1:
        return (layers,)
    first, *inner, last = stage_layers(layers + 2, pp)
    return (first - 1, *inner, last - 1)
