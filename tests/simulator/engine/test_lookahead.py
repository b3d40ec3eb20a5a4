"""The order in which tasks of a step are needed, and circuits that turn for what is needed first."""

from dataclasses import dataclass

import numpy as np
import pytest

from simulator.engine.lookahead import need_order


@dataclass(frozen=True)
class Named:
    id: int
    after: tuple[int, ...] = ()


def test_gathers_are_needed_with_their_pass_and_sums_at_the_end():
    send, late_gather, late_pass, sums, update = 1, 2, 3, 4, 5
    tasks = [
        Named(0),
        Named(send, (0,)),
        Named(late_gather, (0,)),
        Named(late_pass, (late_gather,)),
        Named(sums, (0,)),
        Named(update, (sums, late_pass)),
        Named(6, (0,)),
    ]
    order = need_order(tasks, lambda one: one in {0, send, late_pass, update}).own
    assert sorted(order, key=order.get) == [0, send, late_gather, late_pass, sums, update, 6]


def test_a_class_needs_what_it_receives_with_the_pass_that_waits_for_it():
    early, late, soon, update = 0, 1, 2, 3
    tasks = [Named(early), Named(late), Named(soon, (early,)), Named(update, (late, soon))]
    order = need_order(tasks, lambda one: True)
    assert order.receiver[early] < order.own[soon] < order.receiver[late] < order.own[update]


def test_a_sum_makes_way_for_the_gather_behind_it():
    """Both on one channel: what the next pass waits for cannot move before the sum has gone."""
    sums, send, gather, late_pass, update = 1, 2, 3, 4, 5
    tasks = [
        Named(0),
        Named(sums, (0,)),
        Named(send, (0,)),
        Named(gather, (0,)),
        Named(late_pass, (gather,)),
        Named(update, (sums, late_pass)),
    ]
    for queued, first in (
        ({}, [0, send, gather, late_pass, sums]),
        ({gather: sums}, [0, send, sums, gather]),
    ):
        order = need_order(tasks, lambda one: one in {0, send, late_pass, update}, queued).own
        assert sorted(order, key=order.get)[: len(first)] == first


@pytest.mark.parametrize("seed", range(8))
def test_what_waits_for_a_task_is_needed_after_it(seed):
    rng = np.random.default_rng(seed)
    tasks = [
        Named(one, tuple({int(rng.integers(one)) for _ in range(2)}) if one else ()) for one in range(60)
    ]
    at_once = set(rng.permutation(60)[:20].tolist())
    order = need_order(tasks[::-1], at_once.__contains__)
    assert len(set(order.own.values())) == 60
    for number in (order.own, order.receiver):
        assert all(number[other] < order.own[task.id] for task in tasks for other in task.after)
