import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.collectives.algorithms import (
    algorithms,
    hierarchical_rounds,
    in_network_rounds,
    rounds,
    schedule,
    vector_bytes,
)
from simulator.collectives.ways import chains
from simulator.errors import WorkloadError
from simulator.operators import Collective, CollectiveKind, Phase
from tests.bounds import collective_bound_s, in_network_bound_s
from tests.builders import REDUCING

SIZES = (2, 3, 4, 5, 8, 16)
CASES = [(kind, a, n) for kind in REDUCING for n in SIZES for a in algorithms(kind, n)]
IN_NETWORK = [(kind, "in_network", n) for kind in REDUCING for n in SIZES]


def replay(kind, algorithm, n):
    """Play a schedule on sets of contributions: holds[rank][chunk] = who is in the sum, -1 = nothing."""
    if kind is CollectiveKind.ALL_GATHER:
        holds = [[{r} if c == r else set() for c in range(n)] for r in range(n)]
    else:
        holds = [[{r} for _ in range(n)] for r in range(n)]
    for step in schedule(kind, algorithm, n):
        sent = [
            (int(d), int(c), set(holds[int(s)][int(c)]))
            for s, d, chunks in zip(step.sources, step.destinations, step.chunks, strict=True)
            for c in chunks
        ]
        for receiver, chunk, content in sent:
            if step.reduces:
                assert not holds[receiver][chunk] & content, "a contribution would be added twice"
                holds[receiver][chunk] |= content
            else:
                holds[receiver][chunk] = content
    return holds


@pytest.mark.parametrize(("kind", "algorithm", "n"), CASES + IN_NETWORK)
def test_after_all_rounds_every_rank_holds_what_it_should(kind, algorithm, n):
    holds = replay(kind, algorithm, n)
    everyone = set(range(n))
    for rank in range(n):
        if kind is CollectiveKind.ALL_REDUCE:
            assert holds[rank] == [everyone] * n
        elif kind is CollectiveKind.REDUCE_SCATTER:
            assert holds[rank][rank] == everyone
        else:
            assert holds[rank] == [{c} for c in range(n)]


@pytest.mark.parametrize("n", SIZES)
def test_all_to_all_sends_every_pair_its_own_chunk_once(n):
    (step,) = schedule(CollectiveKind.ALL_TO_ALL, algorithms(CollectiveKind.ALL_TO_ALL, n)[0], n)
    pairs = set(zip(step.sources.tolist(), step.destinations.tolist(), strict=True))
    assert len(pairs) == n * (n - 1) == step.sources.size
    assert np.array_equal(step.chunks[:, 0], step.destinations)


ROOTED = [
    (kind, a, n)
    for kind in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE)
    for n in SIZES
    for a in algorithms(kind, n)
]


@pytest.mark.parametrize("n", SIZES)
def test_a_tree_reaches_everyone_and_back_it_has_everyone_once(n):
    whole = set(range(n))
    assert replay(CollectiveKind.REDUCE, "tree", n)[0] == [whole] * n
    holds = [[{0}] * n, *([set()] * n for _ in range(n - 1))]
    for step in schedule(CollectiveKind.BROADCAST, "tree", n):
        sent = [
            (int(s), int(d), int(c))
            for s, d, chunks in zip(step.sources, step.destinations, step.chunks, strict=True)
            for c in chunks
        ]
        assert all(holds[s][c] == {0} for s, _, c in sent), "nobody sends what has not come"
        for _, receiver, chunk in sent:
            holds[receiver][chunk] = {0}
    assert holds == [[{0}] * n for _ in range(n)]


@pytest.mark.parametrize("kind", [CollectiveKind.BROADCAST, CollectiveKind.REDUCE])
@pytest.mark.parametrize("n", SIZES)
def test_a_chain_passes_the_vector_once_over_each_hop_and_a_tree_log_n_times(kind, n):
    """All links of a chain at once, n - 1 latencies; ceil(log2 n) vectors (Thakur et al. 2005)."""
    for algorithm, vectors, count in (("ring", 1, n - 1), ("tree", *[np.ceil(np.log2(n))] * 2)):
        parts = rounds(kind, algorithm, np.arange(n)[None, :], 1.0, "tp_row")
        assert sum(one.flows.size_bytes * one.count for one in parts) == pytest.approx(vectors)
        assert sum(one.count for one in parts) == count


@pytest.mark.parametrize("kind", [CollectiveKind.BROADCAST, CollectiveKind.REDUCE])
def test_the_chains_of_a_library_bring_every_member_but_the_root_the_vector_once(kind):
    """Each of 4 chains over 3 nodes leaves a node by another card, always the way of the ring."""
    operator = Collective(
        name="move", phase=Phase.FORWARD, kind=kind, axis="tp_row", size=12, payload_bytes=1.0
    )
    levels = chains(operator, np.arange(12)[None, :], 4)
    far = levels.between.flows
    assert far.size_bytes * levels.between.count == pytest.approx(1 / 4)
    assert sorted(far.sources % 4) == [0, 0, 1, 1, 2, 2, 3, 3]
    hops = {(0, 1), (1, 2)} if kind is CollectiveKind.BROADCAST else {(1, 2), (2, 0)}
    assert set(zip(far.sources // 4, far.destinations // 4, strict=True)) == hops
    assert np.all(far.sources % 4 == far.destinations % 4)
    moved = sum(len(one.flows.sources) * one.flows.size_bytes * one.count for one in levels.both)
    assert moved == pytest.approx(11.0)
    assert levels.inside.flows.size_bytes * levels.inside.count == pytest.approx(3 / 4)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CASES + ROOTED), st.floats(1.0, 1e12))
def test_no_algorithm_sends_less_than_the_bound(case, payload):
    kind, algorithm, n = case
    groups = np.arange(2 * n).reshape(2, n)
    sent = np.zeros(2 * n)
    received = np.zeros(2 * n)
    for one in rounds(kind, algorithm, groups, payload, "dp"):
        np.add.at(sent, one.flows.sources, one.flows.size_bytes * one.count)
        np.add.at(received, one.flows.destinations, one.flows.size_bytes * one.count)
    assert sent.sum() == pytest.approx(received.sum())
    assert sent.max() >= collective_bound_s(kind, n, payload, 1.0) * (1 - 1e-12)
    if kind in {CollectiveKind.BROADCAST, CollectiveKind.REDUCE}:
        assert sent.sum() == pytest.approx(2 * (n - 1) * payload)
    elif algorithm not in {"tree"}:
        assert sent == pytest.approx(np.full(2 * n, collective_bound_s(kind, n, payload, 1.0)))


@pytest.mark.parametrize("kind", REDUCING)
def test_two_levels_send_over_the_far_links_only_their_share(kind):
    local, n, payload = 4, 16, 1.0
    vector = vector_bytes(kind, payload, n)
    groups = np.arange(n)[None, :]
    far = sum(
        one.flows.size_bytes
        * one.count
        * np.sum(one.flows.sources // local != one.flows.destinations // local)
        for one in hierarchical_rounds(kind, groups, payload, "dp", local)
    )
    factor = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    nodes = n // local
    assert far == pytest.approx(factor * (nodes - 1) / nodes * (vector / local) * n)


def test_unfit_algorithms_are_named():
    with pytest.raises(WorkloadError, match="halving_doubling cannot do all_reduce on 6 ranks; known: ring"):
        schedule(CollectiveKind.ALL_REDUCE, "halving_doubling", 6)
    with pytest.raises(WorkloadError, match="divide"):
        hierarchical_rounds(CollectiveKind.ALL_REDUCE, np.arange(6)[None, :], 1.0, "dp", 4)


def test_one_rank_needs_no_rounds():
    assert rounds(CollectiveKind.ALL_REDUCE, "ring", np.array([[3]]), 1e9, "dp") == ()


@pytest.mark.parametrize("kind", [kind for kind in CollectiveKind if kind is not CollectiveKind.SEND])
@pytest.mark.parametrize("bound", [collective_bound_s, in_network_bound_s])
def test_one_rank_or_no_byte_is_bounded_by_nothing(kind, bound):
    assert bound(kind, 1, 1e9, 1.0) == 0.0
    assert bound(kind, 7, 0.0, 1.0) == 0.0
    assert bound(kind, 7, 1.0, 1.0) > 0.0


@pytest.mark.parametrize(("kind", "algorithm", "n"), IN_NETWORK)
def test_adding_switches_carry_each_chunk_once_up_and_once_down(kind, algorithm, n):
    """Count what a schedule puts on a port when the switch adds what arrives and copies what leaves.

    A rank's own chunk is counted too, for the switch reads and writes every replica.
    """
    up, down = np.zeros(n), np.zeros(n)
    for step in schedule(kind, algorithm, n):
        parts = {
            (int(s), int(d), int(c))
            for s, d, chunks in zip(step.sources, step.destinations, step.chunks, strict=True)
            for c in chunks
        }
        parts |= {(r, r, r) for r in range(n)}
        for rank in range(n):
            sent = {(d, c) for s, d, c in parts if s == rank}
            got = {(s, c) for s, d, c in parts if d == rank}
            # Copies of one chunk leave once; summands of one chunk arrive once.
            up[rank] += len(sent) if step.reduces else len({c for _, c in sent})
            down[rank] += len({c for _, c in got}) if step.reduces else len(got)
    (one,) = in_network_rounds(kind, np.arange(n)[None, :], n / (n if kind == "all_gather" else 1), "dp")
    assert one.flows.size_bytes * one.count == pytest.approx(max(up.max(), down.max()))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(IN_NETWORK), st.floats(1.0, 1e12))
def test_adding_switches_stay_above_their_own_bound(case, payload):
    kind, _, n = case
    groups = np.arange(2 * n).reshape(2, n)
    for ends in ("sources", "destinations"):
        moved = np.zeros(2 * n)
        for one in in_network_rounds(kind, groups, payload, "dp"):
            np.add.at(moved, getattr(one.flows, ends), one.flows.size_bytes * one.count)
        assert moved.min() >= in_network_bound_s(kind, n, payload, 1.0) * (1 - 1e-12)
    assert in_network_bound_s(kind, n, payload, 1.0) <= collective_bound_s(kind, n, payload, 1.0) * (
        1 + 1e-12
    )


def test_adding_switches_nearly_halve_a_large_all_reduce():
    kind = CollectiveKind.ALL_REDUCE
    (one,) = in_network_rounds(kind, np.arange(64)[None, :], 1.0, "dp")
    assert one.flows.size_bytes / collective_bound_s(kind, 64, 1.0, 1.0) == pytest.approx(65 / 126)


def test_switches_do_not_add_for_an_all_to_all():
    with pytest.raises(WorkloadError, match="cannot add"):
        in_network_rounds(CollectiveKind.ALL_TO_ALL, np.arange(4)[None, :], 1.0, "dp")


def test_rounds_of_thousands_of_ranks_are_counted_and_not_listed():
    # 2(n - 1) steps of a ring, each with n chunks, would take 770 MB.
    groups = np.arange(4096)[None, :]
    tracemalloc.start()
    (ring,) = rounds(CollectiveKind.ALL_REDUCE, "ring", groups, 4096.0, "dp")
    halves = rounds(CollectiveKind.ALL_REDUCE, "halving_doubling", groups, 4096.0, "dp")
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ring.count == 2 * 4095
    assert sum(one.count for one in halves) == 24
    assert sum(one.count * one.flows.size_bytes for one in halves) == 2 * 4095
    assert most_bytes < 20e6
