"""Ways round failed links: every link walked, whatever the topology."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from electronic.fabrics.fat_tree import FatTree
from electronic.fabrics.packets import RailFabric
from optical.fabrics.cubes import CubeFabric
from simulator.engine.simulation import simulate_jobs
from simulator.errors import ParameterError, RouteError
from simulator.failures import Failure, failed_parts
from simulator.interfaces import Flows
from simulator.topology.clos import Spreading
from simulator.topology.graphs import switch_links
from tests.conformance.test_graph_fabrics import CUBE, FLY, NVLINK, PAIRS, PLUS, RAILS, SMALL, TREE, pairs
from tests.simulator.engine.test_jobs import job

FABRICS = {
    "fat-tree": TREE,
    "fat-tree, static": replace(TREE, spreading=Spreading.STATIC),
    "rail-only": RAILS,
    "dragonfly": FLY,
    "dragonfly+": PLUS,
    "torus": CUBE,
    "nvlink": NVLINK,
    "rails": RailFabric(endpoints=64, scale_up=PAIRS, switch=SMALL),
    "cubes": CubeFabric(endpoints=64, x=4, y=4, side=2),
}
every_fabric = pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)


def wired(fabric):
    return fabric.wired(fabric.initial(()))


def everything(fabric):
    sources, destinations = pairs(fabric)
    return Flows(sources=sources, destinations=destinations, size_bytes=1.0)


@every_fabric
@pytest.mark.parametrize("seed", range(3))
def test_detours_avoid_dead_links_wherever_a_way_is_left(fabric, seed):
    """A flow that is hit takes as few links as networkx finds without the dead ones; the others stay."""
    flows, wiring = everything(fabric), wired(fabric)
    dead = np.random.default_rng(seed).choice(wiring.links, 5, replace=False)
    circuits = fabric.initial(())
    first, found = fabric.route(circuits, flows), fabric.around(circuits, flows, dead)
    left = nx.DiGraph()
    left.add_nodes_from(range(wiring.vertices))
    alive = np.setdiff1d(np.arange(wiring.links), dead)
    left.add_edges_from(zip(wiring.tails[alive].tolist(), wiring.heads[alive].tolist(), strict=True))
    shortest = dict(nx.all_pairs_shortest_path_length(left))
    hit = np.isin(first, dead).any(axis=1)
    assert hit.any()
    for flow in range(len(first)):
        before, after = first[flow][first[flow] >= 0], found[flow][found[flow] >= 0]
        source, destination = int(flows.sources[flow]), int(flows.destinations[flow])
        if not hit[flow] or destination not in shortest[source]:
            assert after.tolist() == before.tolist()
            continue
        assert not np.isin(after, dead).any()
        assert after.size == shortest[source][destination]
        assert wiring.tails[after[0]] == source
        assert wiring.heads[after[-1]] == destination
        assert (wiring.heads[after[:-1]] == wiring.tails[after[1:]]).all()


@pytest.mark.parametrize(
    "fabric",
    [FABRICS["fat-tree, static"], FLY, PLUS, CUBE],
    ids=["fat-tree", "dragonfly", "dragonfly+", "torus"],
)
def test_a_step_goes_round_a_link_and_never_gains(fabric):
    """Bytes stay, and a step is no shorter than with all links, though the link never comes back."""
    job_ = job("a", (0, 63))
    flows = Flows(sources=np.array([0]), destinations=np.array([63]), size_bytes=1.0)
    way = fabric.route(None, flows)[0]
    middle = way[way >= 0][1:2]
    (whole,) = simulate_jobs([job_], fabric)
    half_s = whole.step_time_s / 2
    (hurt,) = simulate_jobs([job_], fabric, failures=(Failure(time_s=half_s, links=tuple(middle.tolist())),))
    assert hurt.trace.network_bytes == pytest.approx(dict(whole.trace.network_bytes))
    assert hurt.step_time_s >= whole.step_time_s * (1 - 1e-12)


def test_a_dead_leaf_cuts_off_and_its_repair_brings_back_the_rate():
    tree = FatTree(endpoints=64, scale_up=PAIRS)
    dead = tuple(switch_links(tree.wiring, tree.wiring.vertices - 1).tolist())
    (whole,) = simulate_jobs([job("a", (0, 63))], tree)
    half_s = whole.step_time_s / 2
    outage = Failure(time_s=half_s, links=dead, repair_s=3 * half_s)
    (hurt,) = simulate_jobs([job("a", (0, 63))], tree, failures=(outage,))
    assert hurt.step_time_s == pytest.approx(whole.step_time_s + 2 * half_s)
    with pytest.raises(RouteError, match="dp traffic waits for ever for link"):
        simulate_jobs([job("a", (0, 63))], tree, failures=(Failure(time_s=half_s, links=dead),))


def test_parts_have_the_names_that_users_know():
    found = failed_parts(CUBE, ports=[[0, 0]], switches=[], nodes=[3])
    assert found.endpoints == (3,)
    ends = {(int(CUBE.wiring.tails[link]), int(CUBE.wiring.heads[link])) for link in found.links}
    (there, back) = sorted(ends)
    assert there == back[::-1]
    assert failed_parts(TREE, ports=[], switches=[], nodes=[1]).endpoints == (2, 3)
    for wrong, said in (
        ({"switches": [3]}, "has no switch 3; choices: 64 to"),
        ({"nodes": [99]}, "has no node 99; choices: 0 to 31"),
        ({"ports": [[0, 2]]}, "has no port of endpoint 0 2; choices: 0 to 1"),
        ({"ports": [[0]]}, "a port is a pair"),
    ):
        with pytest.raises(ParameterError, match=said):
            failed_parts(TREE, **({"ports": [], "switches": [], "nodes": []} | wrong))
