"""What tests ask of fabrics that are fixed graphs."""

import numpy as np
import simpy
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from simulator.collectives.traffic import Traffic
from simulator.engine.network import FlowGroup, Network, max_min_rates
from simulator.interfaces import Flows
from simulator.layout import RankLayout
from simulator.operators import CollectiveKind
from tests.builders import collective

UNITS = 10**4
"""Whole units of capacity in a port, for flows in whole numbers."""


def flows(sources, destinations, size=1e6):
    return Flows(
        sources=np.atleast_1d(sources), destinations=np.atleast_1d(destinations), size_bytes=size, axis="dp"
    )


def walked(fabric, sources, destinations):
    """Follow every route link by link; return where it ends."""
    links = fabric.route(None, flows(sources, destinations))
    here = np.array(sources)
    for hop in range(links.shape[1]):
        going = links[:, hop] >= 0
        np.testing.assert_array_equal(fabric.wired(None).tails[links[going, hop]], here[going])
        here[going] = fabric.wired(None).heads[links[going, hop]]
    return here


def rates(fabric, sources, destinations):
    """Return the max-min fair rate of every flow and the load of every link."""
    links = fabric.route(None, flows(sources, destinations))
    flow, hop = np.nonzero(links >= 0)
    capacity = fabric.graph(None).capacity_bytes_per_s
    found = max_min_rates(flow, links[flow, hop], capacity, flows=len(links))
    return found, np.bincount(links[flow, hop], weights=found[flow], minlength=capacity.size)


def ports_bytes_per_s(fabric):
    """Return what leaves an endpoint at most: the sum of its links."""
    wiring = fabric.wired(None)
    out = np.bincount(wiring.tails, weights=wiring.capacity_bytes_per_s, minlength=wiring.vertices)
    return float(out[: fabric.endpoints].max())


def cut_bytes_per_s(fabric, one_side, *, links=None):
    """Return the most that can flow from some endpoints to all others, over all links or some."""
    wiring = fabric.wired(None)
    chosen = np.ones(wiring.links, dtype=bool) if links is None else links
    unit = wiring.capacity_bytes_per_s.max() / UNITS
    whole = np.round(wiring.capacity_bytes_per_s / unit).astype(np.int64)
    much = int(whole.sum())
    source, sink = wiring.vertices, wiring.vertices + 1
    others = np.setdiff1d(np.arange(fabric.endpoints), one_side)
    tails = np.concatenate([wiring.tails[chosen], np.full(len(one_side), source), others])
    heads = np.concatenate([wiring.heads[chosen], one_side, np.full(len(others), sink)])
    values = np.concatenate([whole[chosen], np.full(fabric.endpoints, min(much, 2**30))])
    size = wiring.vertices + 2
    graph = csr_matrix((values.astype(np.int32), (tails, heads)), shape=(size, size))
    return maximum_flow(graph, source, sink).flow_value * unit


def plan(fabric, kind=CollectiveKind.ALL_REDUCE, payload=1e9, ranks=None, algorithm=""):
    """Return how all endpoints, or the first ones, carry out a collective, and the network it runs on."""
    n = ranks or fabric.endpoints
    layout = RankLayout(dp=n)
    operator = collective(kind, n, payload, name="test", algorithm=algorithm)
    env = simpy.Environment()
    network = Network(env, fabric, ())
    return Traffic(layout, fabric, network, {}).plan(operator, 0), network


def collective_s(fabric, **options):
    """Return the time that the engine's network takes for a collective."""
    found, network = plan(fabric, **options)

    def run():
        yield network.env.timeout(found.protocol_s)
        for flow_group, size_bytes, count in found.parts:
            yield from network.carry(flow_group, size_bytes, count)

    network.env.run(network.env.process(run()))
    return network.env.now


def alone_s(fabric, source, destination, size=1e6):
    """Return the time that the engine's network takes for one flow."""
    env = simpy.Environment()
    network = Network(env, fabric, ())
    flow_group = FlowGroup(index=0, flows=flows(source, destination), demand=())
    env.run(env.process(network.carry(flow_group, size, 1)))
    return env.now
