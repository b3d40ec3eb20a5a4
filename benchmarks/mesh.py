"""Speed of decomposing and rebuilding meshes, as ratios against plain ways of doing it, in one run.

Run ``python benchmarks/mesh.py [N ...]``. Both plain ways are written out here: one element after the
other in Python, and one whole matrix product per interferometer, which costs O(N^5). Ratios hold between
machines far better than seconds do.
"""

from __future__ import annotations

import argparse
import cmath
import math
import time
from collections.abc import Callable

import numpy as np

from optical.transfer.decomposition import decompose
from optical.transfer.elements import Complex, mzi_matrix
from optical.transfer.mesh import Mesh, MeshShape

_SLOWEST_WHOLE = 96


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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Speed of mesh decomposition and rebuilding, as ratios.")
    parser.add_argument("modes", nargs="*", type=int, default=[64, 128], help="sizes (default: 64 128)")
    print("modes  work       CPU s     elements  matrices  max error   (ratios: that way's time over ours)")
    for n in parser.parse_args().modes:
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


if __name__ == "__main__":
    main()
