"""Speed of simulating flows, as ratios against a plain way and against SimGrid, in one run.

Run ``python benchmarks/flows.py [--peer PROGRAM]``. The plain way is the same simulator without shortcuts:
every flow its own class, all rates found anew at every event. PROGRAM is benchmarks/flows_peer.cpp, compiled
against SimGrid: then both run on the same flows here, and their makespans are compared. The column "beside"
is what that gave once, with SimGrid 4.1.1: its CPU time over ours.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from simulator.engine.flow_simulation import FlowSet, FlowTimes, simulate
from simulator.errors import WorkloadError
from simulator.interfaces import LinkGraph
from simulator.topology.torus import Torus, regular

RATE_BYTES_PER_S, FLOW_BYTES = 50e9, 1e6
Case = tuple[FlowSet, LinkGraph]


def star(hosts: int, per_host: int, *, random_sizes: bool = False) -> Case:
    """Return random flows between hosts on a switch that never blocks."""
    generator = np.random.default_rng(0)
    sources = np.repeat(np.arange(hosts), per_host)
    destinations = generator.integers(hosts, size=sources.size)
    routes = np.stack([sources, hosts + destinations], axis=1)[sources != destinations]
    sizes = np.full(routes.shape[0], FLOW_BYTES)
    if random_sizes:
        sizes = np.floor(generator.uniform(0.1, 1.0, sizes.size) * FLOW_BYTES)
    return FlowSet(routes=routes, size_bytes=sizes), switch(hosts)


def switch(hosts: int) -> LinkGraph:
    """Return a link into and a link out of a switch for every host."""
    return LinkGraph(capacity_bytes_per_s=np.full(2 * hosts, RATE_BYTES_PER_S), latency_s=np.zeros(2 * hosts))


def permutation(hosts: int) -> Case:
    """Return one flow from each host to the next."""
    names = np.arange(hosts)
    routes = np.stack([names, hosts + np.roll(names, -1)], axis=1)
    return FlowSet(routes=routes, size_bytes=np.full(hosts, FLOW_BYTES)), switch(hosts)


def direction_links(torus: Torus, link_bytes_per_s: float, latency_s: float = 0.0) -> LinkGraph:
    """Return one link for each direction: 2 axis forwards, 2 axis + 1 backwards.

    Parameters
    ----------
    torus : Torus
        The torus.
    link_bytes_per_s : float
        Rate of a link, one way.
    latency_s : float
        Time to the neighbour.
    """
    count = 2 * torus.axes
    return LinkGraph(
        capacity_bytes_per_s=np.full(count, link_bytes_per_s), latency_s=np.full(count, latency_s)
    )


def all_links(torus: Torus, link_bytes_per_s: float) -> LinkGraph:
    """Return every link, without latency: the one from node n in direction k is number 2 axes n + k."""
    count = 2 * torus.axes * torus.nodes
    return LinkGraph(capacity_bytes_per_s=np.full(count, link_bytes_per_s), latency_s=np.zeros(count))


def dimension_ordered_routes(torus: Torus, sources: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the links of flows that take all steps along one axis before the next.

    Parameters
    ----------
    torus : Torus
        The torus.
    sources : numpy.ndarray
        Node each flow starts from, shape [F].
    steps : numpy.ndarray
        Links to pass along each axis, negative ones backwards, shape [F, axes].

    Returns
    -------
    numpy.ndarray
        Links as `all_links` numbers them, padded with -1, shape [F, H].
    """
    hops = np.abs(steps)
    total = hops.sum(axis=1)
    routes = np.full((sources.size, int(total.max(initial=0))), -1, dtype=np.int64)
    place = np.stack(np.unravel_index(sources, torus.box), axis=-1).astype(np.int64)
    done = np.zeros(sources.size, dtype=np.int64)
    for axis in range(torus.axes):
        for _ in range(int(hops[:, axis].max(initial=0))):
            moving = np.flatnonzero(hops[:, axis] > 0)
            forwards = steps[moving, axis] > 0
            node = torus.node(place[moving])
            routes[moving, done[moving]] = 2 * torus.axes * node + 2 * axis + ~forwards
            place[moving, axis] += np.where(forwards, 1, -1)
            hops[moving, axis] -= 1
            done[moving] += 1
    return routes


def shortest_steps(torus: Torus) -> tuple[np.ndarray, np.ndarray]:
    """Return all shortest step vectors from node 0, shape [V, axes], and the share of each, shape [V].

    Every pair shares its bytes equally among the shortest ways between its nodes.
    """
    steps, ends = torus.shortest
    share = 1.0 / np.bincount(ends, minlength=torus.nodes)[ends]
    away = np.abs(steps).any(axis=1)
    return steps[away], share[away]


def all_to_all_orbits(torus: Torus, pair_bytes: float) -> FlowSet:
    """Return a uniform all-to-all, one flow for each shortest step vector, on `direction_links`.

    Parameters
    ----------
    torus : Torus
        Regular or twisted.
    pair_bytes : float
        Bytes from each node to every other.
    """
    steps, share = shortest_steps(torus)
    usage = np.empty((steps.shape[0], 2 * torus.axes))
    usage[:, 0::2], usage[:, 1::2] = np.maximum(steps, 0), np.maximum(-steps, 0)
    routes = np.where(usage > 0.0, np.arange(usage.shape[1]), -1)
    return FlowSet(routes=routes, size_bytes=pair_bytes * share, usage=usage)


def all_reduce_orbits(torus: Torus, payload_bytes: float) -> FlowSet:
    """Return an all-reduce that uses all ports of every node, one flow for each step, on `direction_links`.

    Parameters
    ----------
    torus : Torus
        A regular one.
    payload_bytes : float
        Bytes of the vector that each node holds.

    Raises
    ------
    WorkloadError
        If the torus is twisted: its axes are no rings of the box.

    Notes
    -----
    The vector is cut into 2 axes pieces. Each is reduced and scattered around rings along all axes, one after
    the other, then gathered back; it begins with another axis or goes another way round than the rest. On a
    cube each direction carries one piece at any time, and the time is 2 (N - 1)/N m / (2 axes B) plus
    2 sum(d - 1) latencies: the bound of the ports.
    """
    if any(entry for row, line in enumerate(torus.lattice) for at, entry in enumerate(line) if at != row):
        msg = f"an all-reduce along axes needs a regular torus; the lattice is {torus.lattice}"
        raise WorkloadError(msg)
    axes = [axis for axis, size in enumerate(torus.box) if size > 1]
    routes: list[list[int]] = []
    sizes: list[float] = []
    after: list[tuple[int, int]] = []
    for turn in range(len(axes)):
        order = axes[turn:] + axes[:turn]
        for way in range(2):
            left = payload_bytes / (2 * len(axes))
            phases = []
            for axis in order:
                left /= torus.box[axis]
                phases.append((axis, left))
            for axis, chunk in phases + phases[::-1]:
                for _ in range(torus.box[axis] - 1):
                    routes.append([2 * axis + way])
                    sizes.append(chunk)
            steps = 2 * sum(torus.box[axis] - 1 for axis in order)
            first = len(routes) - steps
            after += [(index, index + 1) for index in range(first, len(routes) - 1)]
    return FlowSet(
        routes=np.array(routes, dtype=np.int64).reshape(-1, 1),
        size_bytes=np.array(sizes),
        after=np.array(after, dtype=np.int64).reshape(-1, 2),
        usage=np.ones((len(routes), 1)),
    )


def torus_all_to_all(shape: tuple[int, ...]) -> Case:
    """Return every flow of an all-to-all in the order of axes, half way round always forwards."""
    torus = regular(shape)
    places = np.stack(np.unravel_index(np.arange(torus.nodes), shape), axis=-1)
    away = (places[None] - places[:, None]) % shape
    steps = np.where(2 * away > shape, away - np.array(shape), away).reshape(-1, len(shape))
    moving = np.abs(steps).any(axis=1)
    sources = np.repeat(np.arange(torus.nodes), torus.nodes)[moving]
    routes = dimension_ordered_routes(torus, sources, steps[moving])
    flows = FlowSet(routes=routes, size_bytes=np.full(sources.size, FLOW_BYTES))
    return flows, all_links(torus, RATE_BYTES_PER_S)


def seconds(work: Callable[[], FlowTimes]) -> tuple[float, FlowTimes]:
    """Return CPU time of the second run, whose libraries are loaded, and its result."""
    work()
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def peer(program: str, case: Case) -> tuple[float, float]:
    """Return CPU time and makespan of another program on the same flows."""
    flows, graph = case
    ends = [(route[0], route[route >= 0][-1]) for route in flows.routes]
    hosts: dict[tuple[str, int], int] = {}
    lines = [f"{2 * len(ends)} {graph.capacity_bytes_per_s.size} {len(ends)}"]
    lines += [f"{float(rate)!r} 0" for rate in graph.capacity_bytes_per_s]
    for (first, last), route, size in zip(ends, flows.routes, flows.size_bytes, strict=True):
        source = hosts.setdefault(("from", int(first)), len(hosts))
        target = hosts.setdefault(("to", int(last)), len(hosts))
        path = " ".join(str(link) for link in route if link >= 0)
        lines.append(f"{source} {target} {size:.0f} {(route >= 0).sum()} {path}")
    lines[0] = f"{len(hosts)} {graph.capacity_bytes_per_s.size} {len(ends)}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.txt"
        file.write_text("\n".join(lines), encoding="utf-8")
        done = subprocess.run([program, str(file)], capture_output=True, text=True, check=True)
    makespan, cpu = done.stdout.split()
    return float(cpu), float(makespan)


CASES: tuple[tuple[str, float, Callable[[], Case]], ...] = (
    ("permutation, 1024 hosts", 2.0, lambda: permutation(1024)),
    ("128 hosts x 20, equal sizes", 10.0, lambda: star(128, 20)),
    ("128 hosts x 20, random sizes", 1.1, lambda: star(128, 20, random_sizes=True)),
    ("1024 hosts x 20, equal sizes", 140.0, lambda: star(1024, 20)),
    ("torus 4x4x8 all-to-all", 8.0, lambda: torus_all_to_all((4, 4, 8))),
)


def compare(program: str | None) -> None:
    """Print the cases that SimGrid ran."""
    print(
        f"{'case':30s} {'flows':>6s} {'classes':>7s} {'events':>6s} {'makespan us':>12s} {'CPU s':>8s} "
        f"{'plain':>8s} {'beside':>8s} {'peer here':>9s} {'makespan differs':>16s}"
    )
    for name, beside, build in CASES:
        case = flows, graph = build()
        own, found = seconds(lambda f=flows, g=graph: simulate(f, g))
        apart = FlowSet(routes=flows.routes, size_bytes=flows.size_bytes, usage=np.ones(flows.routes.shape))
        plain, same = seconds(lambda f=apart, g=graph: simulate(f, g, incremental=False))
        if not np.allclose(found.finish_s, same.finish_s, rtol=1e-9):
            msg = f"{name}: the shortcuts change finish times"
            raise RuntimeError(msg)
        line = (
            f"{name:30s} {flows.size_bytes.size:6d} {found.classes:7d} {found.events:6d} "
            f"{found.makespan_s * 1e6:12.6f} {own:8.4f} {plain / own:7.1f}x {beside:7.1f}x"
        )
        if program:
            cpu, makespan = peer(program, case)
            line += f" {cpu / own:8.1f}x {abs(makespan / found.makespan_s - 1.0):16.1e}"
        print(line)


def collectives() -> None:
    """Print collectives on a torus of 4,096 nodes, each translation orbit one flow."""
    torus = regular((16, 16, 16))
    graph = direction_links(torus, RATE_BYTES_PER_S)
    pair = 64 * 2**20 / torus.nodes
    rows = (
        ("all-to-all, 64 MiB a node", 69.0, lambda: all_to_all_orbits(torus, pair)),
        ("all-reduce, 64 MiB", 18.0, lambda: all_reduce_orbits(torus, 64 * 2**20)),
    )
    print(f"\n{'torus 16x16x16':30s} {'orbits':>6s} {'makespan us':>12s} {'CPU s':>8s} {'ASTRA-sim':>10s}")
    for name, quoted, build in rows:
        cpu, found = seconds(lambda b=build: simulate(b(), graph))
        line = f"{name:30s} {found.finish_s.size:6d} {found.makespan_s * 1e6:12.6f} {cpu:8.4f}"
        print(f"{line} {quoted / cpu:9.0f}x")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Speed of flow simulation, as ratios: their time over ours.")
    parser.add_argument("--peer", help="benchmarks/flows_peer.cpp, compiled against SimGrid")
    compare(parser.parse_args().peer)
    collectives()


if __name__ == "__main__":
    main()
