"""Bounds and laws of the literature that results are held against."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import scipy

from optical.devices.limits import ROOM_TEMPERATURE_K, TELECOM_WAVELENGTH_M, photon_energy_j
from simulator.collectives.algorithms import vector_bytes
from simulator.engine.flow_simulation import FlowSet
from simulator.engine.simulation import Simulation
from simulator.interfaces import LinkGraph
from simulator.operators import (
    BESIDE,
    Collective,
    CollectiveKind,
    HostWork,
    Operator,
    Overlapped,
    Sequence,
    StepGraph,
    Task,
    Transfer,
    topological_order,
)
from simulator.topology.torus import Torus
from simulator.units import BOLTZMANN_J_PER_K, ELEMENTARY_CHARGE_C


def alone_s(simulation: Simulation, task: Task) -> float:
    """Return the duration of a task that has the network of a simulation to itself."""
    return _alone_s(simulation, task.operator, task.rank_class) * task.multiplicity


def _alone_s(simulation: Simulation, operator: Operator, rank_class: int) -> float:
    """Return the duration of an operator that has the network to itself."""
    node, traffic = simulation.node, simulation.traffic
    match operator:
        case Sequence():
            each = (_alone_s(simulation, one, rank_class) * times for one, times in operator.items)
            return max(math.fsum(each), node.issue_s(operator.items))
        case Collective():
            return traffic.plan(operator, rank_class).alone_s
        case Transfer() | HostWork():
            return node.host_cost(operator).time_s
        case Overlapped():
            piece_s = node.cost(operator.product).time_s
            moved_s = traffic.plan(operator.collective, rank_class).alone_s
            return piece_s * operator.pieces + max(0.0, moved_s - piece_s * operator.beside)
        case _:
            return node.cost(operator).time_s


def critical_path_s(graph: StepGraph, duration_s: Callable[[Task], float]) -> float:
    """Return the longest chain of dependent tasks, or the busiest class if that is longer.

    Parameters
    ----------
    graph : StepGraph
        The step.
    duration_s : callable
        Duration of a task that has everything to itself.
    """
    ends: dict[int, float] = {}
    busy: defaultdict[int, float] = defaultdict(float)
    for task in topological_order(graph.tasks):
        duration = duration_s(task)
        ends[task.id] = max((ends[other] for other in task.after), default=0.0) + duration
        if not isinstance(task.operator, BESIDE) and not task.beside:
            busy[task.rank_class] += duration
    return max([*ends.values(), *busy.values()], default=0.0)


def serial_sum_s(graph: StepGraph, duration_s: Callable[[Task], float]) -> float:
    """Return the time of all tasks one after the other: no sensible run is slower, reconfiguration apart."""
    return math.fsum(duration_s(task) for task in graph.tasks)


def collective_bound_s(kind: CollectiveKind, n: int, payload_bytes: float, port_bytes_per_s: float) -> float:
    """Return the least time of a collective in which every rank has one port and switches do not add.

    Parameters
    ----------
    kind : CollectiveKind
        What is done.
    n : int
        Ranks.
    payload_bytes : float
        Bytes per rank before the collective.
    port_bytes_per_s : float
        Bandwidth of a rank's port, one way.

    Notes
    -----
    All-reduce must send 2 (n-1)/n of the vector through each port, reduce-scatter, all-gather and all-to-all
    (n-1)/n, broadcast, reduction and send all of it (Chan et al. 2007, table 1); one rank sends nothing.
    """
    vector = vector_bytes(kind, payload_bytes, n)
    share = (n - 1) / n
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2.0 * share * vector / port_bytes_per_s
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_GATHER | CollectiveKind.ALL_TO_ALL:
            return share * vector / port_bytes_per_s
        case _:
            return (payload_bytes if n > 1 else 0.0) / port_bytes_per_s


def in_network_bound_s(kind: CollectiveKind, n: int, payload_bytes: float, port_bytes_per_s: float) -> float:
    """Return the least time of a collective in which every rank has one port and switches add and copy.

    Parameters
    ----------
    kind, n, payload_bytes, port_bytes_per_s
        As in `collective_bound_s`.

    Notes
    -----
    Into an all-reduce each rank must send its whole vector but the chunk that it adds itself, and that
    chunk's sum: the vector once. Reduce-scatter, all-gather and all-to-all still need (n-1)/n of it.
    """
    vector = vector_bytes(kind, payload_bytes, n)
    if kind is CollectiveKind.ALL_REDUCE:
        return (vector if n > 1 else 0.0) / port_bytes_per_s
    return collective_bound_s(kind, n, payload_bytes, port_bytes_per_s)


def server_bound_s(workers: int, servers: int, payload_bytes: float, port_bytes_per_s: float) -> float:
    """Return the least time of a push and a pull when every rank has one port each way.

    Parameters
    ----------
    workers, servers : int
        Workers of a group, and how many of them hold a share.
    payload_bytes : float
        Bytes of the vector, P.
    port_bytes_per_s : float
        Bandwidth of a port one way, b.

    Notes
    -----
    T >= max(2 P / b of a worker that is no server, 2 P (W - 1) / (S b) of a server, which receives and sends
    the shares of all workers but its own). S = W gives 2 P (W - 1) / (W b), as a ring does. A server on a
    machine of its own would take 2 P W / (S b) (Li et al., "Scaling distributed machine learning with the
    parameter server", OSDI 2014).
    """
    if workers == 1:
        return 0.0
    alone = payload_bytes if servers < workers else payload_bytes * (servers - 1) / servers
    incast = payload_bytes * (workers - 1) / servers
    return 2.0 * max(alone, incast) / port_bytes_per_s


def cut_bound_s(flows: FlowSet, graph: LinkGraph) -> float:
    """Return a time that no schedule on these routes can beat.

    Notes
    -----
    No link passes its bytes faster than its capacity, counted from the first start among its flows, and no
    flow its own faster than its narrowest link lets it.
    """
    crossed = flows.routes >= 0
    if not crossed.any():
        return 0.0
    usage = np.ones(flows.routes.shape) if flows.usage is None else flows.usage
    start = np.zeros(flows.size_bytes.size) if flows.start_s is None else flows.start_s
    flow, hop = np.nonzero(crossed)
    link = flows.routes[flow, hop]
    capacity = graph.capacity_bytes_per_s
    total = np.bincount(link, usage[flow, hop] * flows.size_bytes[flow], capacity.size)
    first = np.full(capacity.size, np.inf)
    np.minimum.at(first, link, start[flow])
    used = total > 0.0
    by_link = first[used] + total[used] / capacity[used]
    latency = np.bincount(flow, graph.latency_s[link], flows.size_bytes.size)
    by_flow = (start + latency)[flow] + flows.size_bytes[flow] * usage[flow, hop] / capacity[link]
    return float(max(by_link.max(initial=0.0), by_flow.max()))


def all_gather_bound_s(rates: np.ndarray, chunk_bytes: float) -> float:
    """Return the least time in which each of n ranks can send a chunk to all others over links between them.

    Parameters
    ----------
    rates : numpy.ndarray
        Rate of the link from each rank to each other in bytes per s, 0 where there is none, shape [n, n].
    chunk_bytes : float
        Bytes of a chunk.

    Notes
    -----
    The chunks of any ranks S, some other rank being outside, pass the links out of S: T >= |S| c / rate(S).
    The worst S is found by cuts between a source of all chunks and each rank, from one to a worse one until
    none is worse; spanning trees reach it (Zhao et al., ForestColl, arXiv:2402.06787, section 4).
    """
    size, unit = len(rates), rates.max() / 2**20
    whole = np.round(rates / unit).astype(np.int64)
    worst = 1.0 / rates.sum(axis=1).min()
    for rank in range(size):
        while True:
            each = int(1.0 / worst / unit)  # what the source sends to each rank, rounded down
            capacity = np.zeros((size + 1, size + 1), dtype=np.int32)
            capacity[:size, :size], capacity[size, :size] = whole, each
            graph = scipy.sparse.csr_array(capacity)
            found = scipy.sparse.csgraph.maximum_flow(graph, size, rank)
            left = (graph - found.flow).toarray() > 0
            reached = np.isfinite(scipy.sparse.csgraph.dijkstra(left, indices=size, unweighted=True))[:size]
            if found.flow_value == size * each or not reached.any():
                break
            worse = reached.sum() / rates[np.ix_(reached, ~reached)].sum()
            if worse <= worst * (1.0 + 1e-6):
                break
            worst = worse
    return float(chunk_bytes * worst)


def all_to_all_bound_s(rates: np.ndarray, chunk_bytes: float) -> float:
    """Return the least time in which each of n ranks can send a chunk of its own to each other.

    Parameters
    ----------
    rates, chunk_bytes
        As in `all_gather_bound_s`.

    Notes
    -----
    The linear programme of flows of n commodities, one for the messages of each rank; exact.
    """
    size = len(rates)
    tails, heads = np.nonzero(rates)
    links = np.arange(tails.size)
    arriving = scipy.sparse.csr_array((np.ones(links.size), (heads, links)), shape=(size, links.size))
    staying = arriving - scipy.sparse.csr_array((np.ones(links.size), (tails, links)), shape=arriving.shape)
    others = [np.arange(size) != rank for rank in range(size)]
    kept = scipy.sparse.block_diag([staying[rows] for rows in others], format="csr")
    none = scipy.sparse.csr_array((kept.shape[0], 1))
    carried = scipy.sparse.hstack([scipy.sparse.eye_array(links.size)] * size)
    rate = scipy.sparse.csr_array(-rates[tails, heads][:, None] / rates.max())
    found = scipy.optimize.linprog(
        c=np.concatenate([np.zeros(kept.shape[1]), [1.0]]),
        A_ub=scipy.sparse.hstack([carried, rate]),
        b_ub=np.zeros(links.size),
        A_eq=scipy.sparse.hstack([kept, none]),
        b_eq=np.ones(kept.shape[0]),
        method="highs-ipm",
    )
    return float(found.fun * chunk_bytes / rates.max())


def all_reduce_bound_s(torus: Torus, payload_bytes: float, link_bytes_per_s: float) -> float:
    """Return the least time of an all-reduce that a node's ports allow: 2 (N - 1)/N m over their rate."""
    ports = 2 * sum(size > 1 for size in torus.box)
    if not ports:
        return 0.0
    return 2.0 * (torus.nodes - 1) / torus.nodes * payload_bytes / (ports * link_bytes_per_s)


def optimal_in_flight(workers: int, input_replicas: int) -> int:
    """Return the microbatches under way that keep a pipeline busy (PipeDream's NOAM), per input replica.

    Parameters
    ----------
    workers : int
        Accelerators of all stages.
    input_replicas : int
        Accelerators of the first stage.

    References
    ----------
    Narayanan et al., arXiv:1806.03377, section 3.2.
    """
    return -(-workers // input_replicas)


def young_interval_s(write_s: float, mtbf_s: float) -> float:
    """Return Young's interval of computing between checkpoints, ``sqrt(2 w M)``.

    References
    ----------
    Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974).
    """
    return math.sqrt(2.0 * write_s * mtbf_s)


def bisection_at_most(torus: Torus) -> float:
    """Return the links (both ways one) that the best cut into equal slabs severs; inf if no axis is even.

    Notes
    -----
    2 N / d of a regular torus with an even longest axis d, which is its bisection.
    """
    places = np.stack(np.unravel_index(np.arange(torus.nodes), torus.box), axis=-1)
    cuts = [math.inf]
    for axis, size in enumerate(torus.box):
        if size % 2 == 0:
            inside = places[:, axis] < size // 2
            ends = (torus.node(places + step) for step in np.eye(torus.axes, dtype=np.int64))
            cuts.append(float(sum(np.count_nonzero(inside != inside[end]) for end in ends)))
    return min(cuts)


def bisection_at_least(torus: Torus) -> float:
    """Return the links (both ways one) that any cut into two halves severs, at least.

    Notes
    -----
    Of a uniform all-to-all floor(N^2 / 4) units cross each way, over links that carry no more than the
    maximum load (Leighton, "Introduction to Parallel Algorithms and Architectures", 1992).
    """
    return torus.nodes**2 // 4 / torus.max_link_load if torus.nodes > 1 else 0.0


def ideal_responsivity_a_per_w(wavelength_m: float = TELECOM_WAVELENGTH_M) -> float:
    """Return the photocurrent per power of one electron per photon."""
    return ELEMENTARY_CHARGE_C / photon_energy_j(wavelength_m)


def standard_quantum_limit(norm_a: float, norm_x: float, *, depth: int, photons_per_mac: float) -> float:
    """Return the standard deviation of a dot product by homodyne detection in ideal conditions.

    Parameters
    ----------
    norm_a, norm_x : float
        Euclidean norms of both vectors.
    depth : int
        Products that are added.
    photons_per_mac : float
        Photons of both fields at the detectors over `depth`, dimensionless.

    Returns
    -------
    float
        In units of the dot product: norm_a norm_x / sqrt(depth photons_per_mac).

    Notes
    -----
    Both fields carry the same number of photons. Counts behind a 50:50 coupler are Poisson with the means
    (alpha +- beta)^2 / 2; their difference 2 alpha beta has the variance alpha^2 + beta^2.

    References
    ----------
    R. Hamerly et al., "Large-scale optical neural networks based on photoelectric multiplication",
    Phys. Rev. X 9, 021032 (2019), section on the standard quantum limit.
    """
    return norm_a * norm_x / math.sqrt(depth * photons_per_mac)


def optical_j_per_mac(photons: float, wavelength_m: float = TELECOM_WAVELENGTH_M) -> float:
    """Return the energy of so many photons per multiplication."""
    return photons * photon_energy_j(wavelength_m)


def landauer_j(temperature_k: float = ROOM_TEMPERATURE_K) -> float:
    """Return the least energy of erasing one bit, k T ln 2.

    References
    ----------
    R. Landauer, "Irreversibility and heat generation in the computing process", IBM Journal of Research and
    Development 5, 183 (1961).
    """
    return BOLTZMANN_J_PER_K * temperature_k * math.log(2.0)


def most_permutations(size: int) -> int:
    """Return the greatest number of permutations a decomposition of an N x N demand needs: N^2 - 2 N + 2.

    Notes
    -----
    Birkhoff 1946; the bound by dimension is Marcus and Ree, Quarterly J. Math. 10 (1959).
    """
    return (size - 1) ** 2 + 1
