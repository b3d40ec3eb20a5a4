"""Says where one draw cannot stand for the several analog samples of a sum."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import SupportsFloat

from optical.execution.analog import AnalogSpec
from simulator.errors import ClippingWarning

_TOLERATED = 0.1
"""Largest share of clipping in the variance: beyond, tails and variance are not those of a Gaussian."""

_WIDER = 1.5
"""Times the range that is proposed; a Gaussian beyond 6 rms is one in a billion."""


class _Watch:
    """How often a specification was collapsed, and whether that was doubted."""

    def __init__(self) -> None:
        self.calls = 0
        self.doubted = False


@functools.lru_cache(maxsize=1024)
def _watch(spec: AnalogSpec) -> _Watch:
    del spec
    return _Watch()


def doubt_collapse(
    spec: AnalogSpec, samples: int, clipping: SupportsFloat, mean: Callable[[], SupportsFloat]
) -> None:
    """Warn, once for a specification, where clipping has a large share in the variance of a collapsed sum.

    Parameters
    ----------
    spec : AnalogSpec
        What is executed.
    samples : int
        Analog samples of the sum.
    clipping : float or torch.Tensor
        Mean square of what clipping takes off a sample.
    mean : callable
        Returns the mean variance of the outputs.

    Notes
    -----
    Only the 1st, 2nd, 4th, 8th ... product of a specification is looked at, since the look waits for an
    accelerator to finish.
    """
    watch = _watch(spec)
    watch.calls += 1
    if watch.doubted or watch.calls & (watch.calls - 1):
        return
    share = samples * float(clipping) / max(float(mean()), 1e-300)
    if share > _TOLERATED:
        watch.doubted = True
        sentence = (
            f"{share:.0%} of the error of a product is clipping by the output converter (range "
            f"{spec.adc_range_sigma:g} rms, {spec.adc_bits:g} bits), which one draw for {samples} samples "
            "does not follow; widen the range (a command: --set core.adc_range_sigma="
            f"{_WIDER * spec.adc_range_sigma:g}), or execute them with exact_tiles"
        )
        warnings.warn(ClippingWarning(sentence, share), stacklevel=2)
