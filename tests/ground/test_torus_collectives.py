import itertools
import math

import numpy as np
import pytest

from heliograph.bounds import collective_bound_s
from heliograph.errors import WorkloadError
from heliograph.operators import CollectiveKind
from heliograph.torus import regular, twisted
from heliograph.torus_collectives import bucket_rounds, part_shares, phases
from heliograph.torus_paths import TorusPaths

BOXES = [(4,), (2, 2), (3, 4), (2, 3, 4), (4, 4, 4)]
CUBES = [(8,), (4, 4), (4, 4, 4), (16, 16, 16)]


def replay(axes):
    """Reduce and scatter real numbers ring by ring; return the share it sent, both ways.

    Each part of the vector has a chunk per node; `begins` says on which axis it starts.
    """
    k, n = len(axes), math.prod(axes)
    rng = np.random.default_rng(0)
    sent = np.zeros((k, k))  # phase, axis
    for begins, direction in itertools.product(range(k), (1, -1)):
        order = [(begins + phase) % k for phase in range(k)]
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
                sent[phase, axis] += (
                    part_shares(axes)[begins] / 2 * going.reshape(n, -1).sum(axis=1).max() / n
                )
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
    np.testing.assert_allclose(replay(axes), 2 * np.array(phases(axes)), rtol=1e-9)


@pytest.mark.parametrize("axes", BOXES)
@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER])
def test_rounds_carry_all_bytes_of_all_phases(axes, kind):
    n = math.prod(axes)
    payload = 1e6 if kind is CollectiveKind.ALL_REDUCE else 1e6 / n
    found = bucket_rounds(kind, np.arange(n)[None, :], payload, "dp", axes)
    moved = sum(one.flows.size_bytes * one.flows.sources.size * one.count for one in found)
    times = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    assert moved == pytest.approx(times * (n - 1) / n * 1e6 * n)


@pytest.mark.parametrize("axes", CUBES)
def test_on_a_cube_the_rings_meet_the_bound_of_all_links(axes):
    """2 (n-1)/n m over 2 D links, Jain and Sabharwal 2010."""
    n, links = math.prod(axes), 2 * len(axes)
    busiest = 2 * sum(max(shares) for shares in phases(axes))
    assert busiest == pytest.approx(collective_bound_s(CollectiveKind.ALL_REDUCE, n, 1.0, links))


@pytest.mark.parametrize("axes", [(4, 4, 8), (4, 8, 8), (2, 4, 8), (3, 5, 7), (2, 16)])
def test_on_other_boxes_they_miss_it_by_less_than_a_third_and_never_beat_it(axes):
    n, links = math.prod(axes), 2 * len(axes)
    busiest = 2 * sum(max(shares) for shares in phases(axes))
    bound = collective_bound_s(CollectiveKind.ALL_REDUCE, n, 1.0, links)
    assert bound <= busiest <= 4 / 3 * bound
    equal = (
        2
        * sum(
            max(
                (axes[(r + p) % len(axes)] - 1) / math.prod(axes[(r + q) % len(axes)] for q in range(p + 1))
                for r in range(len(axes))
            )
            for p in range(len(axes))
        )
        / (2 * len(axes))
    )
    assert busiest <= equal + 1e-9


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
