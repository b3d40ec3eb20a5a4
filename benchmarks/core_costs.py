"""Speed of pricing many products at once, as ratios against pricing them one by one, in one run.

Run ``python benchmarks/core_costs.py [SHAPES]``. Both ways are asked for the same shapes and go through the
same formulas; the largest difference of any time or energy is printed beside their ratio. Ratios hold
between machines far better than seconds do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from electronic.gpu import load_gpu
from optical.accelerator import PhotonicUnit
from optical.cores import CORES, load_core
from simulator.operators import Held, MatMuls
from simulator.units import to_si

_LARGEST_LOG2 = 16.0
_REPEAT = 5


def drawn(count: int, generator: np.random.Generator) -> MatMuls:
    """Return products of 1 to 65,536 a side, spread evenly over decades."""
    m, k, n = np.floor(2.0 ** generator.uniform(0.0, _LARGEST_LOG2, (3, count)))
    return MatMuls(m=m, k=k, n=n, batch=1, held=Held.B)


def seconds(work: Callable[[], object], *, repeat: int) -> float:
    """Return the least CPU time of some runs."""
    found = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def line(name: str, unit: PhotonicUnit, products: MatMuls) -> str:
    """Return a row of the table."""
    operators = [products.one(index) for index in range(len(products))]
    together = unit.costs(products)
    alone = [unit.cost(operator) for operator in operators]
    pairs = [(together.time_s, [cost.time_s for cost in alone])]
    pairs += [(energy, [cost.energy_j[part] for cost in alone]) for part, energy in together.energy_j.items()]
    error = max(float(np.max(np.abs(many - np.array(one)) / np.maximum(one, 1e-300))) for many, one in pairs)
    own = seconds(lambda: unit.costs(products), repeat=_REPEAT)
    each = seconds(lambda: [unit.cost(operator) for operator in operators], repeat=1)
    return f"{name:14s} {own:10.5f} {each:10.4f} {each / own:8.0f}x {error:10.1e}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Speed of pricing many products at once, as ratios.")
    parser.add_argument("shapes", nargs="?", type=int, default=10_000, help="products (default: 10000)")
    products = drawn(parser.parse_args().shapes, np.random.default_rng(0))
    print(f"{len(products)} shapes; CPU seconds")
    print("core             at once one by one    ratio  max error")
    for name in CORES:
        core = load_core(name)
        unit = PhotonicUnit(
            core=core,
            cores=8 * core.cluster,
            memory=load_gpu("h100").memory,
            sram_bytes=to_si("sram_bytes", 2.0, "MiB"),
        )
        print(line(name, unit, products))


if __name__ == "__main__":
    main()
