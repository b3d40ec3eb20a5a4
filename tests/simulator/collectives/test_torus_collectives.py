import itertools
import math

import numpy as np
import pytest
import simpy

from electronic.fabrics.torus import TorusFabric
from simulator.collectives.algorithms import SEGMENTS, bucket_rounds, order_shares, orders, pipeline
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.errors import WorkloadError
from simulator.layout import RankLayout
from simulator.operators import CollectiveKind, Phase
from simulator.topology.torus import TorusPaths, regular, twisted
from tests.bounds import collective_bound_s
from tests.builders import collective

BOXES = [(4,), (2, 2), (3, 4), (2, 3, 4), (4, 4, 4)]
CUBES = [(8,), (4, 4), (4, 4, 4), (16, 16, 16)]


def replay(axes):
    """Reduce and scatter real numbers ring by ring; return the share it sent, both ways.

    Each part of the vector has a chunk per node, and an order of axes.
    """
    k, n = len(axes), math.prod(axes)
    rng = np.random.default_rng(0)
    sent = np.zeros((k, k))  # phase, axis
    parts = zip(orders(axes), order_shares(axes), strict=True)
    for (order, part), direction in itertools.product(parts, (1, -1)):
        data = rng.integers(0, 100, size=(*axes, *axes)).astype(float)  # node, then chunk by its owner
        wanted = data.reshape(n, *axes).sum(axis=0)
        alive = np.ones((*axes, *axes), dtype=bool)  # chunks that a node is still concerned with
        for phase, axis in enumerate(order):
            size = axes[axis]
            here = np.arange(size)
            for step in range(size - 1):
                # In step t a node passes on the chunks whose owner is t + 1 places before it.
                owner = (here - direction * (step + 1)) % size
                mask = np.zeros((size, size), dtype=bool)
                mask[here, owner] = True
                shape = [1] * (2 * k)
                shape[axis], shape[k + axis] = size, size
                going = alive & mask.reshape(shape)
                sent[phase, axis] += part / 2 * going.reshape(n, -1).sum(axis=1).max() / n
                data = data + np.roll(np.where(going, data, 0.0), direction, axis=axis)
                data = np.where(going, 0.0, data)
            own = np.eye(size, dtype=bool).reshape(
                [size if i in (axis, k + axis) else 1 for i in range(2 * k)]
            )
            alive = alive & own
        mine = data.reshape(n, n)[np.arange(n), np.arange(n)]
        np.testing.assert_allclose(mine, wanted.ravel())
    return sent


@pytest.mark.parametrize("axes", BOXES)
def test_rings_axis_after_axis_leave_every_sum_at_its_owner_and_send_what_is_charged(axes):
    np.testing.assert_allclose(replay(axes), 2 * np.array(pipeline(axes)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("axes", BOXES)
@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER])
@pytest.mark.parametrize("segments", [1, 3])
def test_rounds_carry_all_bytes_of_all_phases(axes, kind, segments):
    n = math.prod(axes)
    payload = 1e6 if kind is CollectiveKind.ALL_REDUCE else 1e6 / n
    found = bucket_rounds(kind, np.arange(n)[None, :], payload, "dp", axes, segments=segments)
    moved = sum(one.flows.size_bytes * one.flows.sources.size * one.count for one in found)
    times = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    assert moved == pytest.approx(times * (n - 1) / n * 1e6 * n)


@pytest.mark.parametrize("axes", CUBES)
def test_on_a_cube_the_rings_meet_the_bound_of_all_links(axes):
    """2 (n-1)/n m over 2 D links, Jain and Sabharwal 2010."""
    n, links = math.prod(axes), 2 * len(axes)
    busiest = 2 * sum(max(shares) for shares in pipeline(axes))
    assert busiest == pytest.approx(collective_bound_s(CollectiveKind.ALL_REDUCE, n, 1.0, links))


@pytest.mark.parametrize(
    ("axes", "most"),
    [
        ((4, 4, 8), 0.04),
        ((4, 8, 8), 0.02),
        ((2, 4, 8), 0.14),
        ((3, 5, 7), 0.04),
        ((2, 16), 0.31),
        ((4, 8), 0.08),
    ],
)
def test_on_other_boxes_they_come_near_it_and_segments_nearer_and_never_beat_it(axes, most):
    """Sack and Gropp, ACM TOPC 1 (2015): 2 (n-1)/n m over all ports is the least an all-reduce can take."""
    n, links = math.prod(axes), 2 * len(axes)
    for both in (False, True):
        kind = CollectiveKind.ALL_REDUCE if both else CollectiveKind.REDUCE_SCATTER
        bound = collective_bound_s(kind, n, 1.0, links)
        above = [
            sum(max(shares) for shares in pipeline(axes, segments, both=both)) / bound - 1.0
            for segments in (1, *SEGMENTS)
        ]
        assert above == sorted(above, reverse=True)
        assert -1e-12 <= above[-1] < above[0] / 3
        assert above[0] <= most


def test_boxes_with_like_axes_need_no_segments():
    for segments in (1, 5):
        steps = pipeline((4, 4, 4), segments, both=True)
        for shares in steps:
            np.testing.assert_allclose(shares, shares[0])


@pytest.mark.parametrize(("payload", "name"), [(1e3, "bucket"), (1e10, "bucket_16")])
def test_long_vectors_take_segments_and_short_ones_the_fewest_steps(payload, name):
    operator = collective(CollectiveKind.ALL_REDUCE, 128, payload, phase=Phase.GRAD_WEIGHT, name="gradients")
    fabric = TorusFabric(endpoints=128, x=4, y=4)
    traffic = Traffic(RankLayout(dp=128), fabric, Network(simpy.Environment(), fabric, ()), {})
    found = {one.algorithm: one.alone_s for one in traffic.options(operator, 0)}
    assert min((key for key in found if key.startswith("bucket")), key=lambda key: found[key]) == name
    bound_s = collective_bound_s(CollectiveKind.ALL_REDUCE, 128, payload, 6 * fabric.link_bytes_per_s)
    assert min(found.values()) >= bound_s


def test_a_group_that_fills_no_box_is_refused():
    with pytest.raises(WorkloadError, match="take a ring"):
        bucket_rounds(CollectiveKind.ALL_REDUCE, np.arange(6)[None, :], 1.0, "dp", (2, 4))


@pytest.mark.parametrize(
    "torus",
    [regular(shape) for shape in ((8,), (6, 6), (2, 2, 2), (4, 4, 8), (8, 4, 2), (5, 3, 4), (4, 8, 8))],
    ids=str,
)
def test_an_all_to_all_loads_links_as_even_sharing_would(torus):
    """One route a pair, half-way ties taking turns, equals the ideal loads of `Torus.link_loads`."""
    ways = TorusPaths(torus=torus)
    one, other = (side.ravel() for side in np.indices((torus.nodes, torus.nodes)))
    links = ways.paths(one, other)
    load = np.bincount(links[links >= 0], minlength=ways.heads.size).reshape(torus.nodes, torus.axes, 2)
    np.testing.assert_allclose(load, np.broadcast_to(torus.link_loads[None, :, None], load.shape))


def test_routes_on_a_twisted_torus_are_shortest():
    torus = twisted((4, 4, 8))
    ways = TorusPaths(torus=torus)
    steps = ways.steps(np.zeros(torus.nodes, dtype=int), np.arange(torus.nodes))
    np.testing.assert_array_equal(np.abs(steps).sum(axis=1), torus.distances)


def test_a_group_is_a_box_only_in_its_order():
    ways = TorusPaths(torus=regular((4, 4, 8)))
    assert ways.grid(np.arange(128)) == (4, 4, 8)
    assert ways.grid(np.arange(8)) == (1, 1, 8)
    assert ways.grid(np.arange(0, 128, 16)) == (4, 2, 1)
    assert ways.grid(np.array([0, 1, 9, 8])) is None
    assert ways.grid(np.array([0, 1, 9])) is None
