"""Speed of meshes as ratios against plain ways in one run: decomposing, rebuilding, and gradients of light.

Run ``python benchmarks/mesh.py [decompositions|gradients] [N ...]``. The plain ways are written out here: one
element after the other in Python, and one whole matrix product per interferometer, which costs O(N^5); for
gradients to all phases the same columns under torch's own differentiation, which keeps the fields before
every column (one thread, single precision; the largest difference of any gradient is over the largest one).
Ratios hold between machines far better than seconds do.
"""

from __future__ import annotations

import argparse
import cmath
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from optical.transfer.elements import Complex, mzi_matrix
from optical.transfer.gradients import propagate
from optical.transfer.mesh import Mesh, MeshLayout, MeshShape, decompose

_SLOWEST_WHOLE = 96
BATCH = 256
Way = Callable[[MeshLayout, Tensor, Tensor, Tensor, Tensor], Tensor]


def haar(n: int, generator: np.random.Generator) -> Complex:
    """Return a Haar-random unitary matrix."""
    normal = generator.standard_normal((2, n, n))
    q, r = np.linalg.qr(normal[0] + 1j * normal[1])
    return np.asarray(q * (np.diagonal(r) / np.abs(np.diagonal(r))))


def seconds(work: Callable[[], object], *, repeat: int) -> float:
    """Return the least CPU time of some runs."""
    found = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def nullings(n: int) -> list[tuple[bool, int, int]]:
    """Return (by columns or by rows, row, column) of each element that Clements' order nulls."""
    found = []
    for diagonal in range(n - 1):
        for step in range(diagonal + 1):
            if diagonal % 2 == 0:
                found.append((True, n - 1 - step, diagonal - step))
            else:
                found.append((False, n - 1 - diagonal + step, step))
    return found


def rotation(kept: complex, nulled: complex) -> tuple[float, complex]:
    """Return (c, q) with c nulled + q kept = 0."""
    length = math.hypot(abs(kept), abs(nulled))
    return abs(kept) / length, -nulled * cmath.exp(-1j * cmath.phase(kept)) / length


def decompose_by_elements(unitary: Complex) -> list[list[complex]]:
    """Null a matrix element after element in Python, over nested lists; return what remains."""
    rows, n = unitary.tolist(), len(unitary)
    for columns, row, column in nullings(n):
        if columns:
            c, q = rotation(rows[row][column + 1], rows[row][column])
            for line in rows:
                x, y = line[column], line[column + 1]
                line[column], line[column + 1] = c * x + q * y, c * y - q.conjugate() * x
        else:
            c, q = rotation(rows[row - 1][column], rows[row][column])
            above, below = rows[row - 1], rows[row]
            rows[row] = [c * y + q * x for x, y in zip(above, below, strict=True)]
            rows[row - 1] = [c * x - q.conjugate() * y for x, y in zip(above, below, strict=True)]
    return rows


def decompose_by_matrices(unitary: Complex) -> Complex:
    """Null a matrix by one whole matrix product per interferometer; return what remains."""
    work, n = unitary.copy(), len(unitary)
    for columns, row, column in nullings(n):
        whole = np.eye(n, dtype=complex)
        if columns:
            c, q = rotation(work[row, column + 1], work[row, column])
            whole[column : column + 2, column : column + 2] = [[c, -q.conjugate()], [q, c]]
            work = work @ whole
        else:
            c, q = rotation(work[row - 1, column], work[row, column])
            whole[row - 1 : row + 1, row - 1 : row + 1] = [[c, -q.conjugate()], [q, c]]
            work = whole @ work
    return work


def rebuild_by_elements(mesh: Mesh) -> list[list[complex]]:
    """Multiply the interferometers of a mesh onto the identity in Python, over nested lists."""
    rows = np.eye(mesh.layout.modes, dtype=complex).tolist()
    blocks = mzi_matrix(mesh.theta_rad, mesh.phi_rad).tolist()
    for upper, ((a, b), (c, d)) in zip(mesh.layout.upper.tolist(), blocks, strict=True):
        pairs = list(zip(rows[upper], rows[upper + 1], strict=True))
        rows[upper] = [a * x + b * y for x, y in pairs]
        rows[upper + 1] = [c * x + d * y for x, y in pairs]
    turns = np.exp(1j * mesh.output_rad).tolist()
    return [[turn * x for x in row] for turn, row in zip(turns, rows, strict=True)]


def rebuild_by_matrices(mesh: Mesh) -> Complex:
    """Multiply the interferometers of a mesh as whole matrices."""
    n = mesh.layout.modes
    total = np.eye(n, dtype=complex)
    for upper, block in zip(mesh.layout.upper, mzi_matrix(mesh.theta_rad, mesh.phi_rad), strict=True):
        whole = np.eye(n, dtype=complex)
        whole[upper : upper + 2, upper : upper + 2] = block
        total = whole @ total
    return np.asarray(np.exp(1j * mesh.output_rad)[:, None] * total)


def line(n: int, what: str, own: float, error: float, *, elements: float, matrices: float | None) -> str:
    """Return a row of the table."""
    whole = "        -" if matrices is None else f"{matrices / own:8.1f}x"
    return f"{n:5d}  {what:10s} {own:9.4f} {elements / own:8.1f}x {whole} {error:10.1e}"


def decompositions(sizes: Sequence[int]) -> None:
    """Print the table of decompositions."""
    print("modes  work       CPU s     elements  matrices  max error   (ratios: that way's time over ours)")
    for n in sizes:
        unitary = haar(n, np.random.default_rng(n))
        meshes = {shape: decompose(unitary, shape) for shape in MeshShape}
        whole = n <= _SLOWEST_WHOLE
        elements = seconds(lambda u=unitary: decompose_by_elements(u), repeat=1)
        matrices = seconds(lambda u=unitary: decompose_by_matrices(u), repeat=1) if whole else None
        for shape, mesh in meshes.items():
            own = seconds(lambda u=unitary, s=shape: decompose(u, s), repeat=3)
            error = float(np.abs(mesh.matrix() - unitary).max())
            print(line(n, shape.value, own, error, elements=elements, matrices=matrices))
        mesh = meshes[MeshShape.CLEMENTS]
        own = seconds(mesh.matrix, repeat=3)
        elements = seconds(lambda m=mesh: rebuild_by_elements(m), repeat=1)
        matrices = seconds(lambda m=mesh: rebuild_by_matrices(m), repeat=1) if whole else None
        error = float(np.abs(np.array(rebuild_by_elements(mesh)) - unitary).max())
        print(line(n, "rebuild", own, error, elements=elements, matrices=matrices))


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


def gradients(sizes: Sequence[int]) -> None:
    """Print the table of gradients."""
    torch.set_num_threads(1)
    print(f"batch of {BATCH}; CPU seconds of fields and gradients to all phases")
    print("modes       ours  autograd    ratio  max error")
    for n in sizes:
        draw, layout = torch.Generator().manual_seed(n), MeshLayout(modes=n)
        counts = (layout.count, layout.count, n)
        given = [(2.0 * math.pi * torch.rand(count, generator=draw)).requires_grad_() for count in counts]
        given.append(torch.randn(n, BATCH, generator=draw, dtype=torch.complex64))
        target = torch.randn(n, BATCH, generator=draw, dtype=torch.complex64)
        own, gradients = min((once(propagate, layout, given, target) for _ in range(3)), key=lambda x: x[0])
        plain, reference = once(by_autograd, layout, given, target)
        error = max(
            float((a - b).abs().max() / b.abs().max()) for a, b in zip(gradients, reference, strict=True)
        )
        print(f"{n:5d} {own:10.4f} {plain:9.4f} {plain / own:7.1f}x {error:10.1e}")


def main() -> None:
    """Print the table that is asked for, or both."""
    tables = {"decompositions": (decompositions, [64, 128]), "gradients": (gradients, [64, 256])}
    parser = argparse.ArgumentParser(description="Speed of meshes, as ratios.")
    parser.add_argument("words", nargs="*", help="decompositions or gradients, and sizes (default: both)")
    words = parser.parse_args().words
    sizes = [int(word) for word in words if word not in tables]
    for name in [word for word in words if word in tables] or tables:
        table, usual = tables[name]
        table(sizes or usual)


if __name__ == "__main__":
    main()
