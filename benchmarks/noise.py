"""Time of a product with each kind of error, over that of the default crossbar's, in one run on one thread.

Run: ``python benchmarks/noise.py``.
"""

from __future__ import annotations

import dataclasses
import sys
import time

import torch

from optical.cores import load_core
from optical.execution import AnalogSpec
from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import Shot
from simulator.operators import Phase
from simulator.parameter_tree import replace_at

SIZE = 768
REPEATS = 5


def records() -> dict[str, AnalogSpec]:
    """Return what is compared, the default first."""
    plain = load_core("crossbar")
    cores = {
        "default": plain,
        "chip, calibrated": replace_at(plain, "chip.mismatch", "calibrated"),
        "chip, raw": replace_at(plain, "chip.mismatch", "raw"),
        "lines shared": replace_at(plain, "chip.laser_noise", "common"),
        "photons counted": replace_at(plain, "shot", Shot.COUNTED.value),
        "rings' repeated errors": load_core("ring_bank"),
    }
    return {name: core.analog(Phase.FORWARD) for name, core in cores.items()}


def seconds(spec: AnalogSpec) -> float:
    """Return the quickest of several runs."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(1, SIZE, SIZE, generator=generator) for _ in range(2))
    numerics, taken = AnalogNumerics(dataclasses.replace(spec)), []
    for key in range(REPEATS):
        start = time.perf_counter()
        numerics.matmul(a, b, key)
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> None:
    """Write the table."""
    torch.set_num_threads(1)
    found = {name: seconds(spec) for name, spec in records().items()}
    sys.stdout.write(f"{'error':24}{'ms':>8}{'ratio':>8}   (product of {SIZE} x {SIZE} x {SIZE})\n")
    for name, taken in found.items():
        sys.stdout.write(f"{name:24}{1e3 * taken:8.1f}{taken / found['default']:8.2f}\n")


if __name__ == "__main__":
    main()
