import json

import networkx as nx
import numpy as np
import pytest

from simulator.errors import ParameterError
from simulator.fabric import missing_members
from simulator.topology.graphs import load_graph
from tests.conformance.graphs import alone_s, collective_s, flows, rates, walked


def leaf_spine(leaves=4, spines=4, each=4):
    graph = nx.Graph(capacity_bytes_per_s="50 GB/s", latency_s="500 ns", node_size=2)
    for leaf in range(leaves):
        graph.add_node(f"leaf {leaf}", kind="switch", static_w=100.0, price_usd=1000.0)
        for place in range(each):
            name = f"gpu {leaf * each + place}"
            graph.add_node(name, kind="endpoint")
            graph.add_edge(name, f"leaf {leaf}", energy_j_per_bit="5 pJ/bit")
    for spine in range(spines):
        graph.add_node(f"spine {spine}", kind="switch")
        for leaf in range(leaves):
            graph.add_edge(f"leaf {leaf}", f"spine {spine}", capacity_bytes_per_s=5e10, price_usd=50.0)
    return graph


def written(graph, path):
    if path.suffix == ".graphml":
        nx.write_graphml(graph, path)
    else:
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges"), indent=1))
    return path


@pytest.fixture(params=["net.graphml", "net.json"])
def path(request, tmp_path):
    return tmp_path / request.param


def test_a_drawn_network_is_a_fabric_that_leads_every_flow(path):
    fabric = load_graph(written(leaf_spine(), path))
    assert missing_members(fabric) == ()
    assert (fabric.name, fabric.endpoints, fabric.node_size) == ("net", 16, 2)
    one, other = (side.ravel() for side in np.indices((16, 16)))
    np.testing.assert_array_equal(walked(fabric, one[one != other], other[one != other]), other[one != other])
    assert fabric.wiring.links == 2 * (16 + 16)


def test_numbers_of_the_file_reach_time_energy_and_price(path):
    fabric = load_graph(written(leaf_spine(), path))
    assert alone_s(fabric, 0, 1) == pytest.approx(1e6 / 5e10 + 2 * 5e-7)
    assert alone_s(fabric, 0, 15) == pytest.approx(1e6 / 5e10 + 4 * 5e-7)
    assert fabric.static_w == pytest.approx(400.0)
    assert fabric.cost_usd == pytest.approx(4000.0 + 16 * 50.0)
    assert fabric.transfer_energy_j(flows(0, 15)) == pytest.approx(2 * 8e6 * 5e-12)


def test_shortest_paths_are_shared_so_that_shifts_do_not_collide(path):
    fabric = load_graph(written(leaf_spine(), path))
    for shift in (4, 5, 8, 11):
        found, _ = rates(fabric, np.arange(16), (np.arange(16) + shift) % 16)
        np.testing.assert_allclose(found, 5e10)


def test_both_formats_say_the_same(tmp_path):
    one, other = (load_graph(written(leaf_spine(), tmp_path / name)) for name in ("a.graphml", "a.json"))
    assert collective_s(one) == collective_s(other)
    assert one.cost_usd == other.cost_usd


def test_a_directed_edge_leads_one_way(path):
    graph = nx.DiGraph(capacity_bytes_per_s=1e9, latency_s=0.0)
    for place in range(4):
        graph.add_node(f"n{place}", kind="endpoint")
    graph.add_edges_from((f"n{place}", f"n{(place + 1) % 4}") for place in range(4))
    fabric = load_graph(written(graph, path))
    lengths = (fabric.route(None, flows([0, 0, 3], [1, 3, 0])) >= 0).sum(axis=1)
    assert lengths.tolist() == [1, 3, 1]


def without_capacity(graph):
    del graph.graph["capacity_bytes_per_s"]


def no_endpoint(graph):
    for node in graph.nodes.values():
        node["kind"] = "switch"


def cut_off(graph):
    graph.remove_edge("gpu 5", "leaf 1")


def unknown_attribute(graph):
    graph.edges["gpu 5", "leaf 1"]["latenzy_s"] = 1.0


def wrong_kind(graph):
    graph.nodes["gpu 5"]["kind"] = "gpu"


def no_kind(graph):
    del graph.nodes["gpu 5"]["kind"]


def wrong_unit(graph):
    graph.edges["gpu 5", "leaf 1"]["capacity_bytes_per_s"] = "50 GHz"


def no_number(graph):
    graph.edges["gpu 5", "leaf 1"]["latency_s"] = "soon"


def no_rate(graph):
    graph.edges["gpu 5", "leaf 1"]["capacity_bytes_per_s"] = 0.0


def odd_nodes(graph):
    graph.graph["node_size"] = 3


def loop(graph):
    graph.add_edge("gpu 5", "gpu 5")


PLACE = r"net\.(graphml:\d+|json: (edges|nodes)\[\d+\]): .*"
FAULTS = {
    without_capacity: PLACE + r"edge '.*' - '.*' lacks 'capacity_bytes_per_s'; add it",
    no_endpoint: r"no node is an endpoint; say kind = 'endpoint'",
    cut_off: r"is disconnected: endpoints 'gpu 0' and 'gpu 5'.*1 of 16.*add edges",
    unknown_attribute: PLACE + r"no 'latenzy_s'; did you mean 'latency_s'",
    wrong_kind: PLACE + r"node 'gpu 5' has kind 'gpu'; say 'endpoint'",
    no_kind: PLACE + r"node 'gpu 5' lacks 'kind'",
    wrong_unit: PLACE + r"'capacity_bytes_per_s'.*GHz",
    no_number: PLACE + r"'latency_s' must be a number.*'soon'",
    no_rate: PLACE + r"must be above 0; got 0",
    loop: PLACE + r"edge 'gpu 5' - 'gpu 5' leads back to where it begins",
    odd_nodes: r"node_size \(3\) must be a whole number that divides 16",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_a_drawing_lacks_is_named_with_its_place(path, fault):
    graph = leaf_spine()
    fault(graph)
    with pytest.raises(ParameterError, match=FAULTS[fault]) as caught:
        load_graph(written(graph, path))
    assert "\n" not in str(caught.value)


HALF = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n<graph edgedefault="undirected">\n'
    '<node id="a"/>\n<edge source="a" target="b"/></graph></graphml>'
)
SLOW = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="r" for="node" attr.name="static_w" '
    'attr.type="double"/>\n<graph edgedefault="undirected">\n<node id="a"><data key="r">slow</data></node>'
    "</graph></graphml>"
)


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("net.csv", "a,b", "is read from .graphml or .json"),
        ("net.graphml", "<graphml>", r"net.graphml:1: not XML"),
        ("net.graphml", "<a/>", r"net.graphml: not GraphML"),
        ("net.graphml", HALF, r"net.graphml:4: an edge must name two nodes as source and target; no 'b'"),
        ("net.graphml", SLOW, r"net.graphml:3: not GraphML: .*'slow'"),
        ("net.graphml", '<!DOCTYPE a [<!ENTITY b "c">]><a/>', "entities"),
        ("net.json", "{}", "key 'nodes' must hold a list"),
        ("net.json", '{"nodes": [{}], "links": []}', r"nodes\[0\] lacks 'id'"),
        ("net.json", '{"nodes": [{"id": 1}, {"id": 1}], "links": []}', r"nodes\[1\] repeats the id '1'"),
        ("net.json", '{"nodes": [{"id": 1}], "links": [{"source": 1}]}', r"links\[0\] must name two nodes"),
        ("net.json", "{", "not JSON"),
    ],
)
def test_a_file_that_is_no_graph_is_refused(tmp_path, name, text, match):
    (tmp_path / name).write_text(text)
    with pytest.raises(ParameterError, match=match):
        load_graph(tmp_path / name)


def test_a_missing_file_and_a_wrong_size_are_refused(path):
    with pytest.raises(ParameterError, match="no file"):
        load_graph(path)
    with pytest.raises(ParameterError, match=r"draws 16 endpoints.*32 accelerators"):
        load_graph(written(leaf_spine(), path), endpoints=32)
