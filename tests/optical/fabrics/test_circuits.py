import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optical.fabrics.circuits import (
    DARK,
    Circuits,
    assign_lanes,
    merge_pairs,
)
from simulator.errors import ParameterError, RouteError


def split_lanes(weights, lanes):
    """Return how many lanes one source gives each of several destinations that nobody else sends to."""
    others = np.arange(1, len(weights) + 1)
    pairs = np.stack([np.zeros_like(others), others], axis=1)
    found = assign_lanes(pairs, np.asarray(weights, dtype=float), len(others) + 1, lanes)[0]
    return np.bincount(found[found != DARK], minlength=len(others) + 1)[1:]


@given(weights=st.lists(st.floats(0, 1e12), min_size=1, max_size=8), extra=st.integers(0, 20))
def test_lanes_are_all_given_out_with_one_each(weights, extra):
    lanes = len(weights) + extra
    given_out = split_lanes(np.array(weights), lanes)
    assert given_out.sum() == lanes
    assert given_out.min() >= 1
    heavier = np.array(weights)[:, None] > np.array(weights)[None, :]
    assert (given_out[:, None] >= given_out[None, :])[heavier].all()


@pytest.mark.parametrize(
    ("weights", "lanes", "expected"),
    [
        ([1, 1], 4, [2, 2]),
        ([3, 1], 4, [3, 1]),
        ([7, 1], 8, [7, 1]),
        ([9, 1, 0], 4, [2, 1, 1]),
        ([0, 0], 2, [1, 1]),
        ([5], 4, [4]),
    ],
)
def test_lanes_follow_weights(weights, lanes, expected):
    np.testing.assert_array_equal(split_lanes(np.array(weights), lanes), expected)


def test_more_destinations_than_lanes_is_refused():
    with pytest.raises(RouteError, match="needs circuits with 3 others and has 2 lanes"):
        split_lanes(np.ones(3), 2)


def test_two_circuits_on_one_receiving_lane_are_refused():
    with pytest.raises(ParameterError, match="two circuits end on lane 0 of endpoint 2"):
        Circuits(np.array([[2], [2], [DARK]]))


def test_circuits_cannot_be_written():
    circuits = Circuits(np.array([[1], [0]]))
    with pytest.raises(ValueError, match="read-only"):
        circuits.tx_peer[0, 0] = 1


@settings(deadline=None)
@given(
    endpoints=st.integers(2, 12),
    lanes=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    shifts=st.integers(1, 6),
)
def test_assigned_lanes_are_matchings_and_serve_every_pair(endpoints, lanes, seed, shifts):
    rng = np.random.default_rng(seed)
    wanted = []
    for _ in range(min(shifts, lanes)):
        permutation = rng.permutation(endpoints)
        keep = rng.random(endpoints) < 0.8
        wanted += [(s, d) for s, d in enumerate(permutation) if s != d and keep[s]]
    raw = np.array(wanted, dtype=np.int64).reshape(-1, 2)
    pairs, weights = merge_pairs(raw, rng.random(len(raw)))
    tx_peer = assign_lanes(pairs, weights, endpoints, lanes)
    circuits = Circuits(tx_peer)
    for source, destination in pairs:
        assert destination in circuits.tx_peer[source]
    lit = {(s, d) for s in range(endpoints) for d in circuits.tx_peer[s] if d != DARK}
    assert lit == {(s, d) for s, d in pairs.tolist()}
    assert circuits.link_lanes.sum() == (circuits.tx_peer != DARK).sum()
