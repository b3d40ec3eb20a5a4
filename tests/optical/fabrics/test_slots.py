"""Rounds of matchings played slot by slot, against the means of the law."""

from dataclasses import replace

import numpy as np
import pytest

from optical.fabrics.rotor import Rotation, completion_s, lit_s, round_bytes

ROUND = Rotation(ends=16, lanes=4, reconfiguration_s=1e-5, hold_ratio=40.0)
RATE = 1.25e9


def test_at_most_one_lane_is_dark_at_a_time():
    """Mellette et al., Opera, NSDI 2020, section 4: turns are staggered, so that one lane turns at a time."""
    begin, end = lit_s(ROUND).T
    for instant_s in np.linspace(0.0, ROUND.round_s, 997, endpoint=False):
        seen = (begin <= instant_s) & (instant_s < end)
        wrapped = (begin <= instant_s + ROUND.round_s) & (instant_s + ROUND.round_s < end)
        assert ROUND.lanes - 1 <= np.sum(seen | wrapped) <= ROUND.lanes


@pytest.mark.parametrize(("ends", "lanes", "hold_ratio"), [(16, 4, 40.36), (17, 4, 3.0), (128, 6, 1.5)])
def test_small_packets_fill_what_is_lit(ends, lanes, hold_ratio):
    """RotorNet, SIGCOMM 2017: a lane is lit for 1 - r / slot of the time."""
    one = Rotation(ends=ends, lanes=lanes, reconfiguration_s=1e-5, hold_ratio=hold_ratio)
    carried = round_bytes(one, RATE, 1.0) / (RATE * one.slot_s)
    assert carried == pytest.approx(np.full(ends, one.duty), rel=1e-3)
    lost = round_bytes(one, RATE, 1e4) / (RATE * one.slot_s)
    assert np.all(lost <= carried)
    assert np.all(lost > carried - 1e4 / (RATE * one.slot_s))


def test_an_exchange_ends_within_a_round_of_the_mean_rate():
    """Uniform traffic runs at duty / slots of a lane to each peer; the last slot is anywhere in a round."""
    size = 5e7
    fluid_s = size / (RATE * ROUND.peer_share)
    times = completion_s(ROUND, size, RATE, 1.0)
    assert len(times) == ROUND.ends - 1
    assert np.all(np.abs(times - fluid_s) < ROUND.round_s)
    assert np.all(completion_s(ROUND, size, RATE, 9000.0) >= times)
    assert np.all(
        completion_s(replace(ROUND, reconfiguration_s=2e-5, hold_ratio=20.0), size, RATE, 1.0).mean()
        > times.mean()
    )


def test_one_slot_carries_a_small_exchange_at_the_rate_of_a_lane():
    begin = lit_s(ROUND)[1:, 0]
    assert completion_s(ROUND, 1e4, RATE, 1000.0) == pytest.approx(begin + 1e4 / RATE)
