"""What is still to come: the tasks behind each, found at once, are those that a walk from it visits."""

import numpy as np
import pytest

from simulator.engine.lookahead import Later, descendants


def graph_of(seed, *, cycle, tasks=40):
    rng = np.random.default_rng(seed)
    followers = {one: sorted(set(rng.integers(one + 1, tasks + 1, 3).tolist())) for one in range(tasks)}
    followers[tasks] = [tasks // 2] if cycle else []
    return followers


@pytest.mark.parametrize("cycle", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_what_waits_for_a_task_is_what_a_walk_from_it_visits(seed, cycle):
    followers = graph_of(seed, cycle=cycle)
    asked = [one for one in followers if one % 3]
    later = Later(followers, asked)
    for one in followers:
        assert later(one) == later.bits(descendants(one, followers) & set(asked))


def test_bits_give_their_tasks_back_in_order():
    later = Later({one: [] for one in range(9)}, [2, 3, 5, 7])
    left, found = later.bits([7, 3, 5]), []
    while left:
        found.append(later.first(left))
        left ^= later.bits(found[-1:])
    assert found == [3, 5, 7]
