"""Routes per microsecond of every fabric, for a shift of all endpoints and for random pairs."""

from __future__ import annotations

import time

import numpy as np

from heliograph.systems.fabrics import FABRICS, build_fabric
from simulator.fabric import Fabric
from simulator.interfaces import Flows

SIZES = (1024, 16384)
"""Endpoints."""
REPEATS = 3
"""Runs, of which the fastest counts."""


def seconds(fabric: Fabric, flows: Flows) -> float:
    """Return the least time of routing some flows, after a first run that builds tables."""
    circuits = fabric.initial((flows,))
    fabric.route(circuits, flows)
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        fabric.route(circuits, flows)
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    """Print flows routed in a microsecond."""
    print(f"{'fabric':<16}" + "".join(f"{f'{size} shift':>14}{f'{size} random':>14}" for size in SIZES))
    for name in FABRICS:
        if name == "ocs_rails":  # has paths for its circuits only
            continue
        cells = []
        for size in SIZES:
            fabric = build_fabric(name, size, "h100")
            every, random = np.arange(size), np.random.default_rng(0).integers(size, size=10 * size)
            for sources, destinations in ((every, np.roll(every, 8)), (random, np.roll(random, 1))):
                flows = Flows(sources=sources, destinations=destinations, size_bytes=1.0)
                cells.append(sources.size / seconds(fabric, flows) / 10**6)
        print(f"{name:<16}" + "".join(f"{cell:>14.2f}" for cell in cells))


if __name__ == "__main__":
    main()
