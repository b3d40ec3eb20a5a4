"""Speed of light through a mesh with gradients to all its phases, as a ratio in one run.

Run ``python benchmarks/mesh_gradients.py [N ...]``. The plain way is written out here: the same columns under
torch's own differentiation, which keeps the fields before every column. Both use one thread and single
precision; the largest difference of any gradient, over the largest gradient, is printed beside the ratio.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from optical.transfer.gradients import propagate
from optical.transfer.mesh import MeshLayout

BATCH = 256
Way = Callable[[MeshLayout, Tensor, Tensor, Tensor, Tensor], Tensor]


def by_autograd(layout: MeshLayout, theta: Tensor, phi: Tensor, output: Tensor, fields_NB: Tensor) -> Tensor:
    """Return the fields behind a mesh of perfect couplers, column by column."""
    half = theta / 2.0
    common, entry = (torch.polar(torch.ones_like(angle), angle) for angle in (half + math.pi / 2.0, phi))
    sin, cos = half.sin()[:, None], half.cos()[:, None]
    common, entry = common[:, None], entry[:, None]
    for where, modes in layout.slices:
        upper, lower = fields_NB[modes][0::2], fields_NB[modes][1::2]
        entered = entry[where] * upper
        above = common[where] * (sin[where] * entered + cos[where] * lower)
        below = common[where] * (cos[where] * entered - sin[where] * lower)
        turned = torch.stack((above, below), dim=1).flatten(0, 1)
        fields_NB = torch.cat((fields_NB[: modes.start], turned, fields_NB[modes.stop :]))
    return torch.polar(torch.ones_like(output), output)[:, None] * fields_NB


def once(way: Way, layout: MeshLayout, given: list[Tensor], target: Tensor) -> tuple[float, list[Tensor]]:
    """Return the CPU time of fields and gradients, and the gradients."""
    start = time.process_time()
    loss = (way(layout, *given) - target).abs().square().sum()
    gradients = torch.autograd.grad(loss, given[:3])
    return time.process_time() - start, list(gradients)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Speed of gradients through a mesh, as ratios.")
    parser.add_argument("modes", nargs="*", type=int, default=[64, 256], help="sizes (default: 64 256)")
    torch.set_num_threads(1)
    print(f"batch of {BATCH}; CPU seconds of fields and gradients to all phases")
    print("modes       ours  autograd    ratio  max error")
    for n in parser.parse_args().modes:
        draw, layout = torch.Generator().manual_seed(n), MeshLayout(modes=n)
        sizes = (layout.count, layout.count, n)
        given = [(2.0 * math.pi * torch.rand(size, generator=draw)).requires_grad_() for size in sizes]
        given.append(torch.randn(n, BATCH, generator=draw, dtype=torch.complex64))
        target = torch.randn(n, BATCH, generator=draw, dtype=torch.complex64)
        own, gradients = min((once(propagate, layout, given, target) for _ in range(3)), key=lambda x: x[0])
        plain, reference = once(by_autograd, layout, given, target)
        error = max(
            float((a - b).abs().max() / b.abs().max()) for a, b in zip(gradients, reference, strict=True)
        )
        print(f"{n:5d} {own:10.4f} {plain:9.4f} {plain / own:7.1f}x {error:10.1e}")


if __name__ == "__main__":
    main()
