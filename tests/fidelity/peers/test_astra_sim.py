"""ASTRA-sim's rules repeated: closed forms, symmetry, and what no wires allow."""

import itertools
from dataclasses import replace

import pytest

from experiments.validation.driver import validate
from experiments.validation.peers.astra_sim import Dimension, Method, Run, Shape, Wires, node_of
from experiments.validation.peers.astra_sim_traces import ports_bound_s, wires_s
from simulator.operators import CollectiveKind

KINDS = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)
SYMMETRIC = (Method.RING, Method.DIRECT, Method.HALVING_DOUBLING)


class EveryRank(Run):
    """A run that follows all ranks instead of one that stands for them."""

    alike = False


def run(kind, shape=Shape.RING, method=Method.RING, *, ranks=8, rate=50.0, latency_ns=500.0, of=Run, **about):
    wires = Wires(shape=shape, ranks=ranks, gigabytes_per_s=rate, latency_ns=latency_ns)
    settings = {"size_bytes": 2**20, "endpoint_ns": 10, **about}
    return of(kind=kind, dimensions=(Dimension(wires=wires, method=method),), **settings)


def possible(kind, method):
    return not (method is Method.HALVING_DOUBLING and kind is CollectiveKind.ALL_TO_ALL)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [Shape.RING, Shape.SWITCH])
def test_a_ring_alone_takes_its_closed_form(kind, shape):
    """splits [S (e + floor(h lat + msg / rate)) + R 3 floor(msg / memory) + e], found from its runs."""
    ranks, splits, endpoint_ns, size_bytes = 8, 4, 10, 2**20
    chunk = size_bytes // splits
    message = chunk if kind is CollectiveKind.ALL_GATHER else chunk // ranks
    steps = {CollectiveKind.ALL_REDUCE: 14, CollectiveKind.ALL_TO_ALL: 28}.get(kind, 7)
    sums = 7 if kind in {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER} else 0
    hops = 2 if shape is Shape.SWITCH else 1
    step_ns = endpoint_ns + int(hops * 500.0 + message / (50.0 * 2**30 / 1e9))
    expected_ns = splits * (steps * step_ns + sums * 3 * (message // 1600) + endpoint_ns)
    assert round(run(kind, shape, ranks=ranks, splits=splits).simulated_s() * 1e9) == expected_ns


def test_one_rank_tells_the_time_of_all_that_do_the_same():
    """Rings, direct exchange and pairs look the same from every rank: following all ranks changes nothing."""
    compared = 0
    for kind, method, shape, queued, at_once in itertools.product(
        KINDS, SYMMETRIC, Shape, (False, True), (1, 2)
    ):
        about = {"splits": 3, "at_once": at_once, "queued": queued, "ranks": 4, "size_bytes": 100_003}
        one = run(kind, shape, method, **about) if possible(kind, method) else None
        if one is not None and one.alike:
            compared += 1
            assert one.simulated_s() == run(kind, shape, method, of=EveryRank, **about).simulated_s()
    assert compared > 60


def test_queues_never_make_a_run_shorter():
    for kind, method, shape in itertools.product(KINDS, (*SYMMETRIC, Method.DOUBLE_TREE), Shape):
        if not possible(kind, method) or (method is Method.DOUBLE_TREE and kind is not KINDS[0]):
            continue
        free = run(kind, shape, method, splits=2, at_once=2)
        assert replace(free, queued=True).simulated_s() >= free.simulated_s()


def test_links_queue_where_pairs_cross_a_ring():
    """Pairs at distance 4 on a ring of 16 share links: stored and forwarded, they wait for each other."""
    free = run(CollectiveKind.ALL_REDUCE, method=Method.HALVING_DOUBLING, ranks=16)
    assert not replace(free, queued=True).alike
    assert replace(free, queued=True).simulated_s() > 1.5 * free.simulated_s()


def test_a_window_of_one_sends_one_message_after_another():
    all_at_once = run(CollectiveKind.ALL_TO_ALL, Shape.SWITCH, Method.DIRECT)
    (dimension,) = all_at_once.dimensions
    one_by_one = replace(all_at_once, dimensions=(replace(dimension, window=1),))
    step_s = (int(2 * 500 + 2**17 / (50 * 2**30 / 1e9)) + 10) * 1e-9
    assert one_by_one.simulated_s() == pytest.approx(7 * step_s + 10e-9, abs=1e-12)
    assert all_at_once.simulated_s() == pytest.approx(step_s + 10e-9, abs=1e-12)


@pytest.mark.parametrize("tree", [0, 1])
def test_both_trees_reach_every_rank_from_one_root(tree):
    ranks = 16
    nodes = [node_of(rank, ranks, tree=tree) for rank in range(ranks)]
    assert [rank for rank in range(ranks) if nodes[rank].parent is None] == [0 if tree else ranks - 1]
    children = [child for node in nodes for child in node.children]
    assert sorted(children) == [rank for rank in range(ranks) if nodes[rank].parent is not None]
    assert all(nodes[child].parent == rank for rank in range(ranks) for child in nodes[rank].children)
    assert {len(node.children) for node in nodes} == {0, 1, 2}


def test_a_double_tree_of_two_goes_up_and_down_once():
    pair = run(CollectiveKind.ALL_REDUCE, Shape.SWITCH, Method.DOUBLE_TREE, ranks=2)
    message_ns = int(2 * 500 + 2**20 / (50 * 2**30 / 1e9))
    summed_ns = 3 * (2**20 // 1600)
    assert round(pair.simulated_s() * 1e9) == 2 * message_ns + summed_ns + 3 * 10


def test_what_is_left_over_is_sent_as_one_more_whole_chunk():
    whole = run(CollectiveKind.ALL_REDUCE, size_bytes=4000, splits=4)
    assert len(list(whole.chunks())) == 4
    assert replace(whole, size_bytes=4001).simulated_s() == pytest.approx(
        whole.simulated_s() * 5 / 4, rel=1e-9
    )


def test_the_wires_bound_what_a_gigabyte_of_two_to_the_thirty_does_not():
    """50 GB/s as 2^30 bytes each finishes a long all-gather before the wires can."""
    long = run(CollectiveKind.ALL_GATHER, size_bytes=2**30)
    assert long.simulated_s() == pytest.approx(0.140003580, abs=1e-12)
    assert wires_s(long) == pytest.approx(7 * (500e-9 + 2**30 / 50e9), rel=1e-12)
    assert long.simulated_s() < wires_s(long)
    assert wires_s(long) == pytest.approx(2 * ports_bound_s(long), rel=1e-3)


def test_an_all_to_all_goes_both_ways_around_a_ring_or_once_through_a_switch():
    about = {"size_bytes": 8000, "rate": 1.0, "latency_ns": 0.0, "endpoint_ns": 1}
    assert wires_s(run(CollectiveKind.ALL_TO_ALL, Shape.RING, **about)) == pytest.approx(8e-6)
    assert wires_s(run(CollectiveKind.ALL_TO_ALL, Shape.SWITCH, **about)) == pytest.approx(7e-6)
    assert wires_s(run(CollectiveKind.ALL_TO_ALL, Shape.FULLY_CONNECTED, **about)) == pytest.approx(1e-6)


def test_no_wires_are_sooner_than_their_ports():
    """Chan et al. (2007), table 1: each rank must pass so many bytes, whatever the algorithm."""
    for kind, method, shape, ranks in itertools.product(
        KINDS, (*SYMMETRIC, Method.DOUBLE_TREE), Shape, (2, 8, 32)
    ):
        if possible(kind, method) and (method is not Method.DOUBLE_TREE or kind is KINDS[0]):
            one = run(kind, shape, method, ranks=ranks, size_bytes=2**24)
            assert wires_s(one) >= ports_bound_s(one) * (1 - 1e-12)


def test_a_backend_without_queues_beats_the_ports_of_a_switch():
    """63 messages leave one port at once; queues leave only the gigabyte of 2^30 bytes, 7 % too fast."""
    free = run(CollectiveKind.ALL_TO_ALL, Shape.SWITCH, Method.DIRECT, ranks=64)
    assert free.simulated_s() < 0.25 * ports_bound_s(free)
    queued_s = replace(free, queued=True).simulated_s()
    assert 1e9 / 2**30 * ports_bound_s(free) < queued_s < ports_bound_s(free)


HEADER = "topology,algo,cycles_ns,npus,lat_ns,bw_GBps,collective,size_bytes,endpoint_ns,backend,splits,notes"


@pytest.mark.parametrize(
    ("line", "nanoseconds"),
    [
        ("Ring,ring,64440,8,500,50,all_reduce,1048576,10,aware,4,", 64440),
        ("ring,Ring,64440,8,5e2,50.0,All-Reduce,1048576,10,AWARE,4,other order and letters", 64440),
        ("Fully-Connected,direct,9240,8,500,50,all reduce,1048576,10,unaware,4,spelt apart", 9240),
        ("Switch,halving_doubling,93336,8,500,50,all_reduce,1048576,10,aware,4,", 93336),
        ("Ring_Ring,ring_ring,44589,4x4,500_500,50_50,all_reduce,1048576,10,,1,no backend", 44589),
    ],
)
def test_columns_may_stand_in_any_order_and_names_be_spelt_apart(tmp_path, line, nanoseconds):
    path = tmp_path / "runs.csv"
    path.write_text(f"# a comment\n{HEADER}\n\n{line}\n# another\n,,,\n", encoding="utf-8")
    (one,) = validate("network", data=path).outcomes
    assert round(one.predicted * 1e9) == nanoseconds
    assert one.relative_error == pytest.approx(0.0, abs=1e-12)
