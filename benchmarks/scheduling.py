"""Speed of decomposing and scheduling demands, as ratios against plain ways of doing it, in one run.

Run ``python benchmarks/scheduling.py [N ...]``. The plain ways are written out here: a decomposition that
finds every matching anew with networkx, with scipy's Hopcroft-Karp, or with scipy's assignment, a bottleneck
matching by bisection over all entries, and an Eclipse that tries every entry as a length. Long ones run for
their first permutations only, and times are per permutation. Ratios hold between machines far better than
seconds do.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator

import networkx as nx
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from optical.scheduling.birkhoff import Matching, birkhoff_von_neumann, eclipse, sinkhorn
from optical.scheduling.schedule import OcsBank, SchedulePolicy, applies, schedule

_FIRST = 12
_RATE_BYTES_PER_S = 50e9
_DELAY_S = 25e-6
_LARGEST_BYTES = 50e6


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of a run."""
    start = time.process_time()
    work()
    return time.process_time() - start


def hopcroft_karp(weights: np.ndarray) -> np.ndarray | None:
    """Return any perfect matching on positive weights, found anew by scipy."""
    columns = maximum_bipartite_matching(csr_array(weights > 0.0), perm_type="column")
    return columns if (columns >= 0).all() else None


def by_networkx(weights: np.ndarray) -> np.ndarray | None:
    """Return any perfect matching on positive weights, found anew by networkx."""
    size = len(weights)
    rows, columns = np.nonzero(weights)
    graph = nx.Graph(zip(rows.tolist(), (columns + size).tolist(), strict=True))
    found = nx.bipartite.hopcroft_karp_matching(graph, range(size))
    return np.array([found[row] - size for row in range(size)])


def assignment(weights: np.ndarray) -> np.ndarray | None:
    """Return the perfect matching of greatest total, by scipy."""
    return linear_sum_assignment(np.where(weights > 0.0, weights, -len(weights)), maximize=True)[1]


def bisected(weights: np.ndarray) -> np.ndarray | None:
    """Return the perfect matching of greatest smallest entry, by bisection over all entries."""
    levels = np.unique(weights[weights > 0.0])
    best, low, high = None, 0, len(levels) - 1
    while low <= high:
        middle = (low + high) // 2
        columns = hopcroft_karp(np.where(weights >= levels[middle], weights, 0.0))
        if columns is None:
            high = middle - 1
        else:
            best, low = columns, middle + 1
    return best


def peeled(demand: np.ndarray, find: Callable[[np.ndarray], np.ndarray | None]) -> Iterator[float]:
    """Yield lengths of permutations, each matching found anew."""
    left, sources = demand.copy(), np.arange(len(demand))
    while (columns := find(left)) is not None:
        length = float(left[sources, columns].min())
        left[sources, columns] -= length
        left[left < 1e-12] = 0.0
        yield length


def eclipse_by_entries(demand: np.ndarray, delay: float) -> float:
    """Return the densest first configuration, every entry tried as a length."""
    best = 0.0
    for length in np.unique(demand[demand > 0.0]):
        weights = np.minimum(demand, length)
        best = max(
            best, float(weights[linear_sum_assignment(weights, maximize=True)].sum()) / (length + delay)
        )
    return best


def decompositions(size: int) -> None:
    """Print the rows of Birkhoff-von Neumann decompositions of a dense matrix."""
    demand = sinkhorn(np.random.default_rng(size).random((size, size)))
    plain = {
        Matching.ARBITRARY: (("networkx", by_networkx), ("scipy", hopcroft_karp)),
        Matching.HUNGARIAN: (("scipy", assignment),),
        Matching.BOTTLENECK: (("scipy", bisected),),
    }
    for matching, others in plain.items():
        parts: list[tuple[np.ndarray, float]] = []
        own = seconds(lambda m=matching, p=parts: p.extend(birkhoff_von_neumann(demand, m)))
        each = own / len(parts)
        ratios = []
        for name, find in others:
            taken = seconds(lambda f=find: list(itertools.islice(peeled(demand, f), _FIRST)))
            ratios.append(f"{name} {taken / _FIRST / each:.1f}x")
        print(f"{size:5d}  {matching:11s} {len(parts):7d} {own:9.3f} {1e6 * each:9.1f}   {', '.join(ratios)}")


def policies(size: int, *, slow: bool) -> None:
    """Print the rows of schedules of a skewed demand."""
    generator = np.random.default_rng(size)
    demand = generator.random((size, size)) ** 4 * _LARGEST_BYTES
    np.fill_diagonal(demand, 0.0)
    bank = OcsBank(rate_bytes_per_s=_RATE_BYTES_PER_S, reconfiguration_s=_DELAY_S)
    for policy in SchedulePolicy:
        if not applies(policy, size, bank) or (policy is SchedulePolicy.ECLIPSE and not slow):
            continue
        found = []
        own = seconds(lambda p=policy, f=found: f.append(schedule(demand, p, bank)))
        one = found[0]
        each = own / one.configurations
        print(
            f"{size:5d}  {policy:11s} {one.configurations:7d} {own:9.3f} {1e6 * each:9.1f}   "
            f"makespan {one.over_bound:.3f} of the bound, duty {one.duty:.2f}"
        )
    delay = _RATE_BYTES_PER_S * _DELAY_S
    window = demand.max() + 2 * delay
    own = seconds(lambda: eclipse(demand, delay_bytes=delay, window_bytes=window, tolerance=0.0)[0])
    chosen = len(eclipse(demand, delay_bytes=delay, window_bytes=window, tolerance=0.0))
    if size <= 64:
        plain, each = seconds(lambda: eclipse_by_entries(demand, delay)), own / chosen
        ratio = f"every entry {plain / each:.1f}x"
        print(f"{size:5d}  densest of all lengths {each:6.3f} {1e6 * each:9.1f}   {ratio}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Speed of circuit schedules, as ratios.")
    parser.add_argument("ports", nargs="*", type=int, default=[64, 256], help="sizes (default: 64 256)")
    parser.add_argument("--slow", action="store_true", help="Eclipse for more than 64 ports too")
    arguments = parser.parse_args()
    print("ports  matching      parts     CPU s  us a part   (ratios: that way's time for a part over ours)")
    for size in arguments.ports:
        decompositions(size)
    print("\nports  policy     configs     CPU s  us a conf.")
    for size in arguments.ports:
        policies(size, slow=arguments.slow or size <= 64)


if __name__ == "__main__":
    main()
