"""What steps lose where sums share links with the traffic inside passes."""

import dataclasses

import numpy as np
import pytest

from simulator.step_estimate import Order, StepArrays
from workloads.search.contention import AXES, PassTraffic, Slowdowns, beside_sums

WORK_S, WAITED_S = 3.0, 1.0


def arrays(sum_s: float) -> StepArrays:
    """Return one plan of one stage whose gradients are summed for every microbatch."""
    half, zero = np.full((1, 3), (WORK_S + WAITED_S) / 2), np.zeros((1, 3))
    none = np.zeros(1)
    return StepArrays(
        order=np.array([Order.ALTERNATING]),
        stages=np.ones(1),
        microbatches=np.full(1, 8),
        chunks=np.ones(1),
        forward_s=half,
        inputs_s=half,
        weights_s=zero,
        whole_s=np.array([[half[0, 0], half[0, 0], 0.0]]),
        period_s=none,
        send_s=none,
        gather_s=zero,
        sum_s=np.full((1, 3), sum_s),
        blocks=np.ones((1, 3)),
        ends_s=np.zeros((1, 3, 2, 3)),
        ends_share=np.zeros((1, 3, 2)),
        gathers=none,
        sums_each=np.ones(1, dtype=bool),
        pieces=np.ones(1),
        taken_s=np.zeros((1, 3, 2)),
        slack_s=np.zeros((1, 3, 2)),
        update_s=zero,
        reconfiguration_s=none,
        changes_each=none,
        changes_once=none,
        sums_last=none.astype(bool),
    )


def traffic(slower: float) -> PassTraffic:
    """Return tensor-parallel traffic of one second per microbatch."""
    even, none = np.full((1, 2), WAITED_S / 2), np.zeros((1, 2))
    slowed = {axis: np.full(1, slower if axis == "tp" else 1.0) for axis in AXES}
    return PassTraffic(
        blocks=np.ones((1, 3)),
        layers=1,
        waited_s={axis: even if axis == "tp" else none for axis in AXES},
        ring_s=none,
        ring_work_s=none,
        slowdowns=Slowdowns(inside=slowed, sums=slowed),
    )


def passes_s(one: StepArrays) -> float:
    """Return the passes of one microbatch."""
    return float((one.forward_s + one.inputs_s + one.weights_s)[0, 1])


def test_sums_on_links_of_their_own_cost_nothing() -> None:
    """Slowdown one: no piece changes."""
    before = arrays(2.0)
    after = beside_sums(before, traffic(1.0))
    for item in dataclasses.fields(before):
        assert getattr(after, item.name) == pytest.approx(getattr(before, item.name))


def test_a_shared_link_is_never_faster_than_its_capacity() -> None:
    """Equal shares of one link: it carries w + b, so that both end no sooner (conservation of work)."""
    for sum_s in (0.5, 2.0, 4.0, 40.0):
        after = beside_sums(arrays(sum_s), traffic(2.0))
        end_s = max(passes_s(after), float(after.sum_s[0, 1]))
        assert end_s >= WAITED_S + sum_s - 1e-12
        assert end_s <= WORK_S + WAITED_S + sum_s + 1e-12


def test_more_sums_delay_passes_more_up_to_all_their_traffic() -> None:
    """Monotone in the sums; where these never end, every second of traffic takes two."""
    delays = [
        passes_s(beside_sums(arrays(sum_s), traffic(2.0))) - WORK_S - WAITED_S
        for sum_s in (0.0, 1.0, 2.0, 100.0)
    ]
    assert delays[0] == 0.0
    assert np.all(np.diff(delays) > 0.0)
    assert delays[-1] == pytest.approx(WAITED_S)
    assert float(beside_sums(arrays(100.0), traffic(2.0)).sum_s[0, 1]) == pytest.approx(100.0 + WAITED_S)
