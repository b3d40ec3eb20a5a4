"""Decompositions of a demand into permutations, and stuffing of a demand to equal line sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optical.scheduling.birkhoff import (
    Matching,
    birkhoff_von_neumann,
    degree,
    largest_line,
    line_sums,
    permutations_for,
    sinkhorn,
    stuffed,
)
from simulator.errors import ParameterError
from tests.bounds import most_permutations


def rebuilt(parts, size):
    total = np.zeros((size, size))
    for permutation, duration in parts:
        assert sorted(permutation) == list(range(size))
        total[np.arange(size), permutation] += duration
    return total


def balanced(size, seed):
    return sinkhorn(np.random.default_rng(seed).random((size, size)))


def random_demand(seed, size, density):
    rng = np.random.default_rng(seed)
    return rng.random((size, size)) * (rng.random((size, size)) < density)


@pytest.mark.parametrize("matching", list(Matching))
@pytest.mark.parametrize("size", [1, 2, 5, 8, 16])
def test_decomposition_rebuilds_the_demand(matching, size):
    demand = balanced(size, size)
    parts = birkhoff_von_neumann(demand, matching)
    np.testing.assert_allclose(rebuilt(parts, size), demand, atol=1e-8)
    assert len(parts) <= most_permutations(size)
    assert all(duration > 0.0 for _, duration in parts)


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(2, 9),
    seed=st.integers(0, 10**6),
    count=st.integers(1, 12),
    matching=st.sampled_from(list(Matching)),
)
def test_sums_of_permutations_are_rebuilt_exactly(size, seed, count, matching):
    rng = np.random.default_rng(seed)
    demand = np.zeros((size, size))
    for _ in range(count):
        demand[np.arange(size), rng.permutation(size)] += rng.integers(1, 100)
    parts = birkhoff_von_neumann(demand, matching)
    np.testing.assert_array_equal(rebuilt(parts, size), demand)


@pytest.mark.parametrize("matching", list(Matching))
def test_uniform_all_to_all_needs_one_permutation_per_peer(matching):
    parts = birkhoff_von_neumann(1.0 - np.eye(8), matching)
    assert len(parts) == 7


@pytest.mark.parametrize(("size", "count"), [(8, 50), (16, 226), (32, 962), (64, 3970)])
def test_arbitrary_matchings_need_as_many_permutations_as_there_can_be(size, count):
    """Marcus and Ree (1959): N^2 - 2 N + 2; a dense random matrix attains it: each part zeroes one entry."""
    assert most_permutations(size) == count
    assert len(birkhoff_von_neumann(balanced(size, size), Matching.ARBITRARY)) == count


@pytest.mark.parametrize(("size", "hungarian", "bottleneck"), [(8, 50, 50), (16, 163, 140), (32, 357, 278)])
def test_careful_matchings_need_far_fewer(size, hungarian, bottleneck):
    """Counts of other random matrices of these sizes, measured elsewhere; a draw moves them by per cents."""
    demand = balanced(size, size)
    assert len(birkhoff_von_neumann(demand, Matching.HUNGARIAN)) == pytest.approx(hungarian, rel=0.04)
    assert len(birkhoff_von_neumann(demand, Matching.BOTTLENECK)) == pytest.approx(bottleneck, rel=0.04)


def test_most_of_the_volume_needs_few_permutations_of_careful_matchings():
    """90 % of a dense 64 x 64 demand: measured elsewhere 66 with bottleneck matchings, 85 with Hungarian."""
    demand = balanced(64, 64)
    for matching, expected in ((Matching.BOTTLENECK, 66), (Matching.HUNGARIAN, 85)):
        assert permutations_for(birkhoff_von_neumann(demand, matching), 0.9) == pytest.approx(
            expected, rel=0.05
        )
    arbitrary = permutations_for(birkhoff_von_neumann(demand, Matching.ARBITRARY), 0.9)
    assert arbitrary > 20 * 66


@settings(max_examples=25, deadline=None)
@given(size=st.integers(2, 7), seed=st.integers(0, 10**6), density=st.floats(0.2, 1.0))
def test_the_bottleneck_matching_has_the_greatest_smallest_entry(size, seed, density):
    demand = stuffed(random_demand(seed, size, density))
    if not demand.any():
        return
    parts = birkhoff_von_neumann(demand, Matching.BOTTLENECK)
    left = demand.copy()
    for permutation, duration in parts[:3]:
        for level in np.unique(left[left > duration * (1 + 1e-6)]):
            support = left >= level
            assert not _has_perfect_matching(support)
        left[np.arange(size), permutation] -= duration


def _has_perfect_matching(support):
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    return (maximum_bipartite_matching(csr_array(support), perm_type="column") >= 0).all()


def test_no_demand_needs_no_permutation():
    assert birkhoff_von_neumann(np.zeros((4, 4))) == []


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        (np.ones((2, 3)), "square"),
        (-np.eye(2), "negative"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), "one sum"),
        (np.array([[np.nan]]), "square"),
        (np.array([[np.inf]]), "finite"),
    ],
)
def test_bad_demands_are_refused(demand, message):
    with pytest.raises(ParameterError, match=message):
        birkhoff_von_neumann(demand)


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 12), seed=st.integers(0, 10**6), density=st.floats(0.0, 1.0))
def test_stuffing_fills_every_line_to_the_largest_and_takes_nothing(size, seed, density):
    """Liu et al., CoNEXT 2015, algorithm 2; each filling saturates a line, so few entries grow."""
    demand = random_demand(seed, size, density)
    full = stuffed(demand)
    np.testing.assert_allclose(line_sums(full), largest_line(demand), atol=1e-12)
    assert (full >= demand).all()
    assert (full > demand).sum() <= 2 * size - 1 + 2 * size
    assert degree(full) >= degree(demand)


def test_stuffing_a_balanced_demand_changes_nothing():
    demand = 1.0 - np.eye(5)
    np.testing.assert_array_equal(stuffed(demand), demand)


def test_scaling_refuses_a_pattern_without_permutation():
    with pytest.raises(ParameterError, match="on no permutation"):
        sinkhorn(np.array([[1.0, 1.0], [0.0, 0.0]]))
