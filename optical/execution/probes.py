"""What a gain stage reads before it sets the range of a converter: a strided subset of a product.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import torch

from optical.execution.analog import AnalogSpec

_PROBE_ROWS, _PROBE_BATCHES, _PROBE_SAMPLES = 64, 4, 8


def probe(spec: AnalogSpec, codes_BMK: torch.Tensor) -> torch.Tensor:
    """Return the codes of some analog samples, [B', T', M', K'], in place; a short last one is left out."""
    (_, _, _, width), (batch, sample, row) = probe_steps(spec, codes_BMK.shape)
    samples = codes_BMK.shape[2] // width
    codes = codes_BMK[::batch, ::row, : samples * width]
    return codes.unflatten(2, (samples, width))[:, :, ::sample].transpose(1, 2)


def probe_steps(spec: AnalogSpec, shape: torch.Size) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes B', T', M' and K' of a probe, and its steps through batches, samples and rows."""
    batch, rows, length = shape
    width = min(length, spec.analog_length)
    samples = length // width
    counts = ((batch, _PROBE_BATCHES), (samples, _PROBE_SAMPLES), (rows, _PROBE_ROWS))
    steps = tuple(-(-count // most) for count, most in counts)
    sizes = (-(-count // step) for (count, _), step in zip(counts, steps, strict=True))
    return (*sizes, width), steps


def probe_outputs(c_BMN: torch.Tensor) -> torch.Tensor:
    """Return the outputs that probed rows and columns have, [B', M', N']."""
    batch, rows, columns = (
        -(-size // most)
        for size, most in zip(c_BMN.shape, (_PROBE_BATCHES, _PROBE_ROWS, _PROBE_ROWS), strict=True)
    )
    return c_BMN[::batch, ::rows, ::columns]
