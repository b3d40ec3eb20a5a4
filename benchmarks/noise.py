"""Processor time of a product with each kind of error, over that of the default crossbar's, on one thread.

Beside it, passes over memory: bytes that torch's own operators read and write, over those of a plain
product's operands and result. That is what a GPU pays at least, which has none of the kernels that numba
compiles for a CPU; operands in double precision take the same way here.

Run: ``python benchmarks/noise.py``.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

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
        "the default core": load_core("homodyne+hybrid+rotation+block"),
    }
    return {name: core.analog(Phase.FORWARD) for name, core in cores.items()}


def seconds(spec: AnalogSpec) -> float:
    """Return the quickest of several runs."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(1, SIZE, SIZE, generator=generator) for _ in range(2))
    numerics, taken = AnalogNumerics(spec), []
    for key in range(REPEATS):
        start = time.thread_time()
        numerics.matmul(a, b, key)
        taken.append(time.thread_time() - start)
    return min(taken)


class Traffic(TorchDispatchMode):
    """Counts the bytes of every operator's tensors, read or written; views move none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        del types
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = [x for x in tree_flatten((args, kwargs, out))[0] if isinstance(x, torch.Tensor)]
            self.bytes += sum(x.numel() * x.element_size() for x in tensors)
        return out


def passes(spec: AnalogSpec) -> float:
    """Return the bytes of a noisy product over those of a plain one."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(1, SIZE, SIZE, generator=generator, dtype=torch.float64) for _ in range(2))
    numerics, traffic = AnalogNumerics(spec), Traffic()
    numerics.matmul(a, b, 0)  # what is kept from product to product is made
    with traffic:
        numerics.matmul(a, b, 1)
    return traffic.bytes / (3 * a.nbytes)


def main() -> None:
    """Write the table."""
    torch.set_num_threads(1)
    compared = records()
    found = {name: seconds(spec) for name, spec in compared.items()}
    sys.stdout.write(f"product of {SIZE} x {SIZE} x {SIZE}\n{'error':24}{'ms':>8}{'ratio':>8}{'passes':>8}\n")
    for name, spec in compared.items():
        ratio = found[name] / found["default"]
        sys.stdout.write(f"{name:24}{1e3 * found[name]:8.1f}{ratio:8.2f}{passes(spec):8.1f}\n")


if __name__ == "__main__":
    main()
