"""Models of parts in the manner of SAX: functions of ``wl``, micrometres, that return fields by ports."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Fields = dict[tuple[str, str], NDArray[np.complex128]]


def grating(*, wl: NDArray[np.float64], peak: float = 1.55, width: float = 0.045) -> Fields:
    """Return a grating coupler between fibre and chip: 3.1 dB at its peak, half of that 22 nm away."""
    field = np.sqrt(0.49) * np.exp(-0.5 * ((wl - peak) / (0.85 * width)) ** 2).astype(complex)
    return {("in0", "out0"): field, ("out0", "in0"): field}


def multimode_coupler(*, wl: NDArray[np.float64], loss: float = 0.15, tilt: float = 0.6) -> Fields:
    """Return a 2 x 2 multimode coupler whose division turns with wavelength."""
    angle = np.pi / 4.0 * (1.0 + tilt * (wl / 1.55 - 1.0))
    share = 10.0 ** (-loss / 20.0)
    through, across = share * np.cos(angle).astype(complex), 1j * share * np.sin(angle)
    ways = {("in0", "out0"): through, ("in1", "out1"): through}
    ways |= {("in0", "out1"): across, ("in1", "out0"): across}
    return ways | {(out, entry): field for (entry, out), field in ways.items()}
