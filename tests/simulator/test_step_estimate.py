"""The closed forms that stand for the engine: bubbles, hidden transfers, lines of collectives."""

import dataclasses

import numpy as np
import pytest

from electronic.devices import load_scale_up
from electronic.fabrics.packets import RailFabric
from simulator.collectives.lines import collective_lines, traffic_alone
from simulator.layout import RankLayout
from simulator.operators import CollectiveKind, Phase
from simulator.results import outside_bytes
from simulator.step_estimate import Order, StepArrays, estimate, exposed_s
from tests.builders import collective


def _arrays(order: Order, *, stages: int = 4, microbatches: int = 8, chunks: int = 1) -> StepArrays:
    one = np.ones((1, 3))
    zero = np.zeros((1, 3))
    return StepArrays(
        order=np.array([order]),
        stages=np.array([stages]),
        microbatches=np.array([microbatches]),
        chunks=np.array([chunks]),
        forward_s=one,
        inputs_s=one,
        weights_s=one,
        whole_s=np.full((1, 3), 1.0 * stages),
        period_s=np.zeros(1),
        send_s=np.zeros(1),
        gather_s=zero,
        sum_s=zero,
        blocks=np.ones((1, 3)),
        ends_s=np.zeros((1, 3, 2, 3)),
        ends_share=np.zeros((1, 3, 2)),
        gathers=np.zeros(1),
        sums_each=np.zeros(1, dtype=bool),
        pieces=np.ones(1),
        taken_s=np.zeros((1, 3, 2)),
        slack_s=np.zeros((1, 3, 2)),
        update_s=zero,
        reconfiguration_s=np.zeros(1),
        changes_each=np.zeros(1),
        changes_once=np.zeros(1),
        sums_last=np.zeros(1, dtype=bool),
    )


@pytest.mark.parametrize(
    ("order", "chunks", "idle"),
    [(Order.ALTERNATING, 1, 9.0), (Order.ALTERNATING, 3, 3.0), (Order.FORWARD_FIRST, 1, 9.0)],
)
def test_equal_stages_idle_as_published(order: Order, chunks: int, idle: float) -> None:
    """Bubble (p - 1)(f + b) / v: Narayanan et al., arXiv:2104.04473, sections 2.2.1 and 2.2.2."""
    assert estimate(_arrays(order, chunks=chunks)).bubble_s == pytest.approx(idle)


@pytest.mark.parametrize(("microbatches", "took"), [(1, 12.0), (3, 14.0), (4, 15.0), (6, 21.0)])
def test_interleaving_takes_any_number_of_microbatches(microbatches: int, took: float) -> None:
    """Fewer than stages follow each other by 1/v; from there on the bubble is (p - 1)(f + b) / v."""
    arrays = _arrays(Order.ALTERNATING, microbatches=microbatches, chunks=3)
    assert estimate(arrays).step_time_s == pytest.approx(took)


def test_split_backward_idles_as_published() -> None:
    """Bubble (p - 1)(T_F + T_B - T_W) of ZB-H1: Qi et al., arXiv:2401.10241, table 2."""
    assert estimate(_arrays(Order.SPLIT_BACKWARD)).bubble_s == pytest.approx(3.0)


def test_a_slow_link_sets_the_period() -> None:
    """A round trip of p microbatches bounds 1F1B's period (greatest cycle mean)."""
    fast = _arrays(Order.ALTERNATING, microbatches=400)
    slow = dataclasses.replace(fast, send_s=np.array([2.0]))
    per_microbatch = (estimate(slow).step_time_s - estimate(fast).step_time_s) / 400
    assert per_microbatch == pytest.approx(2 * 2.0 * 3 / 4, rel=0.02)


def test_transfer_in_pieces_hides_behind_work() -> None:
    """Two-machine flow shop (Johnson 1954): the last piece, and all that transfers take longer than work."""
    moved, work, pieces = np.array([4.0, 8.0]), np.array([8.0, 4.0]), np.array([4, 4])
    assert exposed_s(moved, work, pieces) == pytest.approx([1.0, 8.0 - 4.0 + 1.0])


def _sharded(pieces: int, embedding: float) -> StepArrays:
    """Return one stage of 12 blocks and an embedding of so many, gathers and sums as long as their work."""
    share = embedding / (12 + embedding)
    ends_share = np.zeros((1, 3, 2))
    ends_share[:, :, 0] = share
    return dataclasses.replace(
        _arrays(Order.ALTERNATING, stages=1),
        blocks=np.full((1, 3), 12.0),
        gather_s=np.ones((1, 3)),
        sum_s=np.ones((1, 3)),
        ends_share=ends_share,
        gathers=np.full(1, 2.0),
        sums_each=np.ones(1, dtype=bool),
        pieces=np.full(1, float(pieces)),
    )


def test_equal_pieces_hide_what_is_gathered_and_summed() -> None:
    """Gathers and sums of 3 beside work of 3: only the ends, of one block each, keep the two apart."""
    even, uneven = (float(estimate(_sharded(10, one)).pipeline_s[0]) / 8 for one in (0.0, 4.0))
    assert 3.0 <= even < 3.0 * 1.05
    # While an embedding as large as four blocks moves, a block's work is all that hides it.
    assert uneven > even * 1.1
    assert uneven < 3.0 + 3.0 * 4 / 16


def test_waiting_for_launches_makes_up_for_units_that_collectives_hold() -> None:
    """Passes lose what collectives take of their units, less what they wait for the host anyway."""
    alone = dataclasses.replace(
        _arrays(Order.ALTERNATING, stages=1),
        sum_s=np.ones((1, 3)),
        sums_each=np.ones(1, dtype=bool),
        taken_s=np.full((1, 3, 2), 2.0),
    )
    took_s = [
        float(estimate(dataclasses.replace(alone, slack_s=np.full((1, 3, 2), slack))).pipeline_s[0]) / 8
        for slack in (0.0, 0.2, 5.0)
    ]
    # A sum of 1 beside passes of 2 that take 4 beside it all along: half a second later.
    assert took_s == pytest.approx([3.5, 3.3, 3.0])


def test_sums_that_wait_for_sends_hide_behind_the_last_pass_alone():
    four = np.full((1, 3), 4.0)
    beside = dataclasses.replace(_arrays(Order.ALTERNATING, chunks=2), sum_s=four, pieces=np.array([8]))
    after = dataclasses.replace(beside, sums_last=np.ones(1, dtype=bool))
    chunk_s = 1.0  # the last backward pass, through one of two chunks
    assert estimate(after).gradients_s[0] == pytest.approx(4.0 - chunk_s)
    assert estimate(beside).gradients_s[0] == pytest.approx(2.0 / 8 + 7 * (2.0 - chunk_s) / 8)


def test_dark_time_is_paid_by_every_change() -> None:
    """Changes of circuits that nothing hides add up."""
    still = _arrays(Order.ALTERNATING)
    moving = dataclasses.replace(still, reconfiguration_s=np.array([0.5]), changes_once=np.array([2.0]))
    assert estimate(moving).step_time_s - estimate(still).step_time_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    "kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER]
)
def test_lines_are_the_engines_prices_at_any_payload(kind: CollectiveKind) -> None:
    """Every way costs latency + payload x slope (Hockney 1994), so lines know all payloads."""
    layout = RankLayout(tp=4, dp=16, pp=1)
    fabric = RailFabric(endpoints=64, scale_up=load_scale_up("nvlink4"))
    operator = collective(kind, 16, 1.0, phase=Phase.UPDATE, name="g")
    traffic = traffic_alone(layout, fabric, {})
    lines = collective_lines(operator, traffic, 0)
    for payload in (1e3, 3e5, 7e7, 2e10):
        whole = dataclasses.replace(operator, payload_bytes=payload)
        alone_s = traffic.plan(whole, 0).alone_s
        assert lines.time_s(payload) == pytest.approx(alone_s, rel=1e-9)
        port_s = outside_bytes(kind, 16, 2, payload) / fabric.nic.bandwidth_bytes_per_s
        assert alone_s >= port_s


def test_nodes_share_what_must_leave_them() -> None:
    """Between k nodes of g ranks a port carries 1/g of the nodes' bound (Chan et al. 2007, table 1)."""
    assert outside_bytes(CollectiveKind.ALL_REDUCE, 16, 16, 1.0) == 0.0
    assert outside_bytes(CollectiveKind.ALL_REDUCE, 16, 4, 8.0) == pytest.approx(2 * 3 / 4 * 8.0 / 4)
    assert outside_bytes(CollectiveKind.ALL_TO_ALL, 16, 4, 8.0) == pytest.approx(12 / 16 * 8.0)
