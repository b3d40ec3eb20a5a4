import math
from dataclasses import replace

import numpy as np
import pytest

from optical.fabrics.switches import (
    lane_budget,
    load_optics,
    load_switch,
    switch_chassis,
    switch_names,
    switch_stages,
)
from simulator.errors import LinkError, ParameterError
from simulator.units import watts_from_dbm

PALOMAR, LANE = load_switch("palomar-mems"), load_optics("lane-100g")


def test_all_technologies_load():
    assert set(switch_names()) >= {
        "palomar-mems",
        "polatis-piezo",
        "mems-320",
        "silicon-photonic-mzi",
        "awgr-laser",
        "rotor",
        "liquid-crystal",
    }
    assert [load_switch(name).name for name in switch_names()] == list(switch_names())


def test_reconfiguration_is_control_motion_and_relock():
    assert PALOMAR.reconfiguration_s == pytest.approx(1.2e-3 + 10e-6 + 100e-6)
    for part in ("switch_s", "relock_s", "control_s"):
        slower = replace(PALOMAR, **{part: getattr(PALOMAR, part) + 1e-3})
        assert slower.reconfiguration_s == pytest.approx(PALOMAR.reconfiguration_s + 1e-3)


def test_rotor_waits_for_half_its_positions():
    rotor = load_switch("rotor")
    assert rotor.reconfiguration_s == pytest.approx(rotor.switch_s * 8 + rotor.relock_s + rotor.control_s)


def test_every_technology_closes_with_some_lane():
    for name in switch_names():
        closes = 0
        for optics in load_optics.table.names:
            try:
                lane_budget(load_optics(optics), load_switch(name), 1)
            except LinkError:
                continue
            closes += 1
        assert closes, name


def test_launch_is_sensitivity_and_losses():
    budget = lane_budget(LANE, PALOMAR, 1)
    expected = LANE.sensitivity_dbm + 2.0 + 4 * 0.35 + 0.035 + 2.0
    assert budget.launch_dbm == pytest.approx(expected)
    assert budget.loss_db == pytest.approx(expected - LANE.sensitivity_dbm)
    assert budget.laser_w == pytest.approx(watts_from_dbm(expected) / LANE.laser_efficiency)


def test_three_decibels_more_loss_doubles_the_laser():
    optics = load_optics("lane-100g-boosted")
    plain = lane_budget(optics, PALOMAR, 1)
    lossy = lane_budget(optics, replace(PALOMAR, insertion_loss_db=PALOMAR.insertion_loss_db + 3.0103), 1)
    assert lossy.laser_w == pytest.approx(2 * plain.laser_w, rel=1e-5)


WHOLE = ("circulators", "fibre_m")


@pytest.mark.parametrize(
    "field",
    ["margin_db", "connector_loss_db", "circulators", "fibre_m", "fibre_loss_db_per_m", "sensitivity_dbm"],
)
def test_every_loss_costs_laser_power(field):
    optics = replace(LANE, circulator_loss_db=0.8)
    more = replace(optics, **{field: getattr(optics, field) + (1 if field in WHOLE else 0.1)})
    if field == "fibre_loss_db_per_m":
        more = replace(optics, fibre_loss_db_per_m=0.001)
    assert lane_budget(more, PALOMAR, 1).laser_w > lane_budget(optics, PALOMAR, 1).laser_w


def test_a_link_that_does_not_close_names_the_greatest_loss():
    with pytest.raises(LinkError, match=r"lacks 5\.0 dB; the greatest loss is optical switches \(10\.0 dB\)"):
        lane_budget(LANE, replace(PALOMAR, insertion_loss_db=9.965), 1)


def test_stages_and_chassis_count_ports():
    assert switch_stages(PALOMAR, 128) == 1
    assert switch_stages(PALOMAR, 129) == 3
    assert switch_chassis(PALOMAR, 128, 32) == 32
    assert switch_chassis(PALOMAR, 64, 32) == 16
    assert switch_chassis(PALOMAR, 256, 1) == 2 + 2 + 2
    with pytest.raises(ParameterError, match="larger switch"):
        switch_stages(PALOMAR, 128 * 128 + 1)


@pytest.mark.parametrize(
    ("field", "value"), [("ports", 0), ("spare_ports", 136), ("insertion_loss_db", -1.0), ("positions", 0)]
)
def test_bad_switches_are_refused(field, value):
    with pytest.raises(ParameterError, match=field):
        replace(PALOMAR, **{field: value})


def test_unknown_names_are_refused():
    with pytest.raises(ParameterError, match="did you mean 'palomar-mems'"):
        load_switch("palomar")
    with pytest.raises(ParameterError, match="lane-100g"):
        load_optics("lane-100")


def test_every_number_has_a_range_that_holds_it():
    for row in (*load_switch.table.rows, *load_optics.table.rows):
        assert row.low is None or row.low <= row.value, row.where
        assert row.high is None or row.value <= row.high, row.where


def test_the_slowest_of_many_ports_takes_the_tail_of_one():
    switch = load_switch("palomar-mems")
    fixed_s = switch.control_s + switch.relock_s
    assert switch.turn_s(1) == switch.reconfiguration_s == pytest.approx(fixed_s + switch.switch_s)
    times_s = [switch.turn_s(ports) for ports in (1, 2, 16, 128, 1024)]
    assert times_s == sorted(times_s)
    # Urata et al. 2022: 99 % of motions take less than 3 ms; 0.99 is 2^(-1/n) for 69 ports.
    assert times_s[2] < fixed_s + 3e-3 < times_s[3]
    assert switch.turn_s(69) == pytest.approx(fixed_s + 3e-3, rel=1e-3)
    assert replace(switch, switch_tail=1.0).turn_s(1024) == switch.reconfiguration_s


@pytest.mark.parametrize("ports", [4, 64, 512])
def test_half_of_drawn_moves_end_before_the_time_of_a_move(ports):
    switch = load_switch("palomar-mems")
    spread = math.log(switch.switch_tail) / 2.3263478740408408  # 99th percentile of a normal variable
    draws = 2_000
    slowest = np.random.default_rng(1).normal(size=(draws, ports)).max(axis=1)
    moved_s = switch.control_s + switch.switch_s * np.exp(spread * slowest) + switch.relock_s
    assert (moved_s < switch.turn_s(ports)).mean() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(draws))


def test_commands_one_after_the_other_delay_all_ports_of_a_chassis():
    """The manual of the 320-port switch: about 50 ms a connection, below 200 ms for all."""
    switch = load_switch("mems-320")
    together = replace(switch, command_s=0.0)
    assert switch.turn_s(1) == together.turn_s(1)
    for ports in (2, 64, 320):
        assert switch.turn_s(ports) - together.turn_s(ports) == pytest.approx((ports - 1) * switch.command_s)
    assert switch.turn_s(320) == pytest.approx(200e-3, rel=0.01)
    assert switch.turn_s(640) == switch.turn_s(320)  # on two chassis, each with its controller
