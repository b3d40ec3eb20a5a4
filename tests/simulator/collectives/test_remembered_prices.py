"""Remembered prices are those of a first look: what is priced alike stands alike, jointly."""

import dataclasses
import itertools

import numpy as np
import pytest

from electronic.fabrics.packets import RailFabric, Spreading
from heliograph.systems import build_system
from simulator.collectives.lines import LinePrices
from simulator.layout import RankLayout, placed
from simulator.operators import CollectiveKind
from tests import builders

ENDPOINTS = 16
STRAIGHT = RankLayout(tp=2, dp=8)
CROSSED = (0, 1, 2, 9, 4, 11, 6, 13, 8, 3, 10, 5, 12, 7, 14, 15)
"""Endpoints with the same first pair and the same first ring, whose other pairs cross from node to node."""
LAYOUTS = (
    STRAIGHT,
    placed(STRAIGHT, CROSSED),
    RankLayout(tp=4, dp=4),
    RankLayout(tp=2, cp=2, dp=4),
    RankLayout(tp=2, dp=4, pp=2),
    placed(RankLayout(tp=2, dp=4, pp=2), [*range(0, 16, 2), *range(1, 16, 2)]),
    placed(RankLayout(tp=4, dp=4), [4 * (rank % 4) + rank // 4 for rank in range(16)]),
)
FABRICS = ("gpu_packet", "gpu_packet@torus", "gpu_packet@fat_tree", "gpu_packet@dragonfly")


def collective(axis, size, kind=CollectiveKind.ALL_GATHER):
    return builders.collective(kind, size, 1e6, axis=axis)


def all_prices(prices, layout):
    """Return all prices on a layout that a search looks up."""
    inside = collective("tp", layout.tp)
    sums = collective("dpcp", layout.cp * layout.dp, CollectiveKind.REDUCE_SCATTER)
    met = prices.slowdown(inside, sums, layout)
    lines = [prices.lines(one, layout).priced(1e6) for one in (inside, sums)]
    return (met.one, met.other), prices.crowding(sums, layout), lines


@pytest.mark.parametrize("name", FABRICS)
def test_remembered_prices_are_those_of_a_first_look(name):
    fabric = build_system(name, accelerators=ENDPOINTS).fabric
    alone = [all_prices(LinePrices(fabric), layout) for layout in LAYOUTS]
    for order in itertools.islice(itertools.permutations(range(len(LAYOUTS))), 0, 5040, 630):
        shared = LinePrices(fabric)
        found = {number: all_prices(shared, LAYOUTS[number]) for number in order}
        assert [found[number] for number in range(len(LAYOUTS))] == alone


def test_groups_that_begin_alike_may_meet_otherwise():
    # A key of first groups alone would give the second layout the first one's prices.
    fabric = build_system("gpu_packet", accelerators=ENDPOINTS).fabric
    first, second = LAYOUTS[:2]
    for axis in ("tp", "dpcp"):
        assert first.groups(axis, 0)[0].tolist() == second.groups(axis, 0)[0].tolist()
    shared = LinePrices(fabric)
    assert all_prices(shared, first)[0] != all_prices(shared, second)[0]


def test_lines_start_at_the_time_of_an_empty_payload():
    fabric = build_system("gpu_packet", accelerators=ENDPOINTS).fabric
    for layout in LAYOUTS:
        for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER):
            lines = LinePrices(fabric).lines(collective("dpcp", layout.cp * layout.dp, kind), layout)
            assert lines.priced(0.0)[0] == lines.start_s.min()
            assert (lines.start_s > 0.0).all()
            assert (lines.s_per_byte > 0.0).all()


@pytest.mark.parametrize("name", ["gpu_packet@direct_connect", "gpu_packet@hybrid"])
def test_stages_on_the_same_nodes_crowd_by_where_their_ranks_stand(name):
    # A key without the ranks of other stages would give the second layout the first one's crowding.
    fabric, stages = build_system(name, accelerators=ENDPOINTS).fabric, RankLayout(dp=8, pp=2)
    even = range(0, ENDPOINTS, 2)
    beside = ((1, 3, 5, 7, 9, 11, 13, 15), (15, 3, 11, 5, 1, 7, 13, 9), (5, 9, 7, 13, 11, 1, 3, 15))
    layouts = [placed(stages, [*even, *odd]) for odd in beside]
    sums, shared = collective("dpcp", 8), LinePrices(fabric)
    alone = [LinePrices(fabric).crowding(sums, one) for one in layouts]
    assert len(set(alone)) > 1
    assert [shared.crowding(sums, one) for one in layouts] == alone


def test_a_collective_meets_each_other_one_in_its_own_way():
    fabric = build_system("gpu_packet", accelerators=ENDPOINTS).fabric
    layout = RankLayout(tp=2, dp=8)
    inside, sums = collective("tp", 2), collective("dpcp", 8, CollectiveKind.REDUCE_SCATTER)
    pairs = [(sums, inside), (sums, sums)]
    shared = LinePrices(fabric)
    alone = [LinePrices(fabric).slowdown(*pair, layout) for pair in pairs]
    assert alone[0] != alone[1]
    assert [shared.slowdown(*pair, layout) for pair in pairs] == alone


def test_pushes_to_other_numbers_of_servers_have_prices_of_their_own():
    shared, layout = LinePrices(build_system("gpu_packet", accelerators=ENDPOINTS).fabric), RankLayout(dp=16)
    push = collective("dp", 16, CollectiveKind.PUSH)
    one, four = (shared.lines(dataclasses.replace(push, servers=number), layout) for number in (1, 4))
    assert one.time_s(1e9) > 2.0 * four.time_s(1e9)


class WholeRails(RailFabric):
    """Rails that do not say which links endpoints share, so that whole classes are priced."""

    uplink_pools = None


def rails(radix=8, **changes):
    """Return eight nodes whose rails stand on two leaves each, and the same that are priced whole."""
    fabric = build_system("gpu_packet", accelerators=64).fabric
    switch = dataclasses.replace(fabric.switch, radix=radix)
    fabric = dataclasses.replace(fabric, switch=switch, **changes)
    assert fabric.leaves == 16
    fields = {one.name: getattr(fabric, one.name) for one in dataclasses.fields(fabric)}
    return fabric, WholeRails(**fields)


def grids():
    """Return layouts of 64 ranks on a grid, nearest and farthest axes first, and some at random."""
    random = np.random.default_rng(5)
    for tp, cp, dp in itertools.product((1, 2, 8, 16), (1, 2, 4), (1, 2, 4, 8)):
        pp = 64 // (tp * cp * dp)
        if tp * cp * dp > 64 or pp * tp * cp * dp != 64:
            continue
        layout = RankLayout(tp=tp, cp=cp, dp=dp, pp=pp)
        places = np.arange(64).reshape(pp, dp, cp, tp)
        yield layout
        yield placed(layout, places.transpose(3, 2, 1, 0).ravel())
        yield placed(layout, np.arange(64).reshape(dp, pp, cp, tp).transpose(1, 0, 2, 3).ravel())
        yield placed(layout, random.permutation(64))


def collectives(layout):
    """Return what is done along every axis of a layout."""
    kinds = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL)
    sizes = {"tp": layout.tp, "cp": layout.cp, "dpcp": layout.cp * layout.dp}
    found = [collective(axis, size, kind) for axis, size in sizes.items() for kind in kinds if size > 1]
    if layout.pp > 1:
        found.append(dataclasses.replace(collective("pp", 2, CollectiveKind.SEND), shift=1))
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"oversubscription": 3.0, "radix": 6},
        {"spreading": Spreading.SPRAYED},
        {"spreading": Spreading.HASHED},
    ],
    ids=str,
)
def test_groups_that_share_links_cost_what_their_whole_class_does(changes):
    fabric, whole = rails(**changes)
    ours, theirs = LinePrices(fabric), LinePrices(whole)
    for layout in grids():
        for one in collectives(layout):
            found, expected = ours.lines(one, layout), theirs.lines(one, layout)
            assert found.start_s.tolist() == expected.start_s.tolist()
            assert found.s_per_byte.tolist() == expected.s_per_byte.tolist()
            np.testing.assert_allclose(found.energy_j_per_byte, expected.energy_j_per_byte, rtol=1e-12)
    told = changes.get("spreading") is not Spreading.HASHED
    assert (fabric.uplink_pools is not None) == told
    assert (len(ours._known) < 0.7 * len(theirs._known)) == told


def test_leaves_that_differ_are_no_pools():
    fabric = build_system("gpu_packet", accelerators=64).fabric
    uneven = dataclasses.replace(fabric, switch=dataclasses.replace(fabric.switch, radix=10))
    assert len(set(np.bincount(uneven.edges))) > 1
    assert uneven.uplink_pools is None
