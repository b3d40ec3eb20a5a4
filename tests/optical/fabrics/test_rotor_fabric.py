"""Fabrics of matchings in a fixed round: the fluid model against laws, and against every slot."""

import math
from dataclasses import replace

import numpy as np
import pytest
import simpy

from optical.fabrics.rotor import (
    Relaying,
    Rotation,
    RotorFabric,
    least_lanes,
    lit_s,
    relay_always,
    relay_surplus,
)
from optical.fabrics.switches import load_optics, load_switch
from simulator.engine.network import FlowGroup, Network
from simulator.errors import LinkError, ParameterError
from simulator.interfaces import Flows
from simulator.topology.scale_up import load_nic
from tests.builders import SINGLE
from tests.optical.fabrics.slots import finished_s

RACKS = 16
ROTOR = replace(load_switch("rotor"), switch_s=10e-6, relock_s=0.0, control_s=0.0, positions=4)
FABRIC = RotorFabric(
    endpoints=RACKS,
    scale_up=SINGLE,
    nic=replace(load_nic("connectx-7"), bandwidth_bytes_per_s=5e9, efficiency=1.0),
    switch=ROTOR,
    lanes=4,
    hold_ratio=4 * 100.9e-6 / 10e-6,
)
"""Sixteen racks under four rotors with 10 us of dark time and superslices of 100.9 us."""


def together_s(fabric, sources, destinations, size_bytes):
    env = simpy.Environment()
    network = Network(env, fabric, ())
    flows = Flows(
        sources=np.asarray(sources), destinations=np.asarray(destinations), size_bytes=size_bytes, axis="ep"
    )
    env.run(env.process(network.carry(FlowGroup(index=0, flows=flows, demand=()), size_bytes, 1)))
    return env.now


def everyone(n):
    one, other = (side.ravel() for side in np.indices((n, n)))
    return one[one != other], other[one != other]


def patterns():
    shifted = (np.arange(RACKS), (np.arange(RACKS) + 3) % RACKS)
    return {
        "uniform": (everyone(RACKS), 10e6),
        "permutation": (shifted, 80e6),
        "half of a permutation": ((np.arange(8), np.arange(8, 16)), 80e6),
        "one flow": ((np.array([2]), np.array([9])), 100e6),
        "one to all": ((np.zeros(15, dtype=int), np.arange(1, 16)), 8e6),
    }


def test_duty_and_uniform_throughput_follow_rotornet():
    """Mellette et al. 2017: duty 1 - r/(u T); here 0.9752, and 15/16 of it for uniform traffic, 0.914."""
    rotation = FABRIC.rotation
    assert rotation.duty == pytest.approx(0.9752, abs=5e-5)
    assert FABRIC.port_bytes_per_s / 5e9 == pytest.approx(0.914, abs=5e-4)
    assert rotation.round_s == pytest.approx(16 * 100.9e-6)


def test_all_to_all_is_just_below_the_measured_packets():
    """Public packet simulator of Opera's authors at these settings: 167.4 ms, utilisation 0.9025 of 0.914.

    The fluid has no queues and no control messages: it must be faster, by no more than a few per cent.
    """
    wire = 48e6 * 1500 / 1436  # 3 MB from each of four hosts to each of four, with headers
    found = together_s(FABRIC, *everyone(RACKS), wire)
    assert 0.97 * 167.4e-3 < found < 167.4e-3


@pytest.mark.parametrize("name", patterns())
def test_the_fluid_agrees_with_every_slot(name):
    """Both serve direct bytes first and relay what is left; the slots pay for unlucky order.

    A relay's rest in the last rounds, which the fluid spreads evenly, and room that a relay keeps for its own
    bytes, cost the slots up to a tenth.
    """
    (sources, destinations), size = patterns()[name]
    demand = np.zeros((RACKS, RACKS))
    demand[sources, destinations] = size
    slots = finished_s(FABRIC.rotation, demand, FABRIC.lane_bytes_per_s).max()
    assert together_s(FABRIC, sources, destinations, size) == pytest.approx(slots, rel=0.1)


def test_relays_halve_a_permutation_and_spare_uniform_traffic():
    """Valiant: each byte crosses twice; what n - 1 direct circuits carry comes on top (RotorLB)."""
    alone = Network(simpy.Environment(), FABRIC, ())
    rates = {}
    for name, ((sources, destinations), size) in patterns().items():
        flows = Flows(sources=sources, destinations=destinations, size_bytes=size, axis="ep")
        rates[name] = alone.alone(FlowGroup(index=0, flows=flows, demand=()))[1] / FABRIC.port_bytes_per_s
    assert rates["permutation"] == pytest.approx((1 + 1 / 15) / 2)
    assert rates["half of a permutation"] == pytest.approx(8 / 15)  # 64 of 240 circuits lead across
    assert 15 * rates["uniform"] == pytest.approx(1.0)
    assert rates["one flow"] == pytest.approx(1.0)
    assert 15 * rates["one to all"] == pytest.approx(1.0)


def test_relaying_always_makes_all_traffic_alike():
    """Sirius (Ballani et al. 2020): uniform traffic and a permutation get about half of the ports.

    Uniform bytes go direct once in n - 1 draws; a permutation's circuits without flows of their own bind.
    """
    fabric = replace(FABRIC, relaying=Relaying.ALWAYS)
    port_s = 15 * 20e6 / fabric.port_bytes_per_s
    wait_s = 2 * fabric.hop_latency_s + fabric.rotation.wait_s
    assert together_s(fabric, *everyone(RACKS), 20e6) == pytest.approx(port_s * (2 - 1 / 15) + wait_s)
    assert together_s(fabric, *patterns()["permutation"][0], 15 * 20e6) == pytest.approx(2 * port_s + wait_s)


@pytest.mark.parametrize("share", [relay_surplus, relay_always])
def test_no_circuit_carries_more_than_it_can(share):
    """Any pattern: totals over any cut and over each end's circuits stay within them."""
    rng = np.random.default_rng(5)
    for flows_each in (1, 3, 7, 15):
        flows = np.zeros((RACKS, RACKS))
        for _ in range(flows_each):
            flows[np.arange(RACKS), (np.arange(RACKS) + rng.integers(1, RACKS, RACKS)) % RACKS] += 1
        found = share(flows)
        taken = flows.sum(axis=1) * found.rate + found.carried * (found.rate - found.direct)
        assert taken.max() <= (RACKS - 1) * (1 + 1e-9)
        for _ in range(50):
            side = rng.permutation(RACKS) < rng.integers(1, RACKS)
            crossing = flows[np.ix_(side, ~side)].sum() * found.rate
            assert crossing <= side.sum() * (~side).sum() * (1 + 1e-9)


def test_guard_time_costs_its_share_of_a_slot():
    """Sirius: overhead guard / (guard + slot); a tenth where a guard of 3.84 ns is a tenth of the whole."""
    gratings = load_switch("sirius-awgr")
    rotation = Rotation(ends=100, lanes=4, reconfiguration_s=gratings.step_s, hold_ratio=10.0)
    assert gratings.step_s == pytest.approx(3.84e-9)
    guard, useful = rotation.reconfiguration_s, rotation.slot_s - rotation.reconfiguration_s
    assert 1 - rotation.duty == pytest.approx(guard / (guard + useful))
    assert rotation.round_s < 1e-6


@pytest.mark.parametrize(("ends", "lanes"), [(16, 4), (64, 8), (108, 6), (128, 8)])
def test_lanes_lit_at_once_are_an_expander_within_moore(ends, lanes):
    """Opera (Mellette et al. 2020): u - 1 lit matchings reach all; the Moore bound limits how soon."""
    rotation = Rotation(ends=ends, lanes=lanes, reconfiguration_s=1e-5, hold_ratio=10.0)
    left, least, degree = ends - 1, 0, lanes - 1
    for hop in range(1, ends):
        here = min(left, degree**hop)
        least, left = least + hop * here, left - here
    assert least / (ends - 1) <= rotation.mean_hops <= 1.6 * least / (ends - 1)
    assert (rotation.hops < ends).all()
    assert sorted(set(rotation.shifts.ravel())) == list(range(ends))


def test_small_transfers_do_not_wait_and_pay_with_capacity():
    opera = replace(FABRIC, bulk_bytes=15e6)
    shifted = patterns()["permutation"][0]
    assert together_s(opera, *shifted, 1e4) < 0.1 * together_s(FABRIC, *shifted, 1e4)
    hops = opera.rotation.mean_hops
    uniform = everyone(RACKS)
    wire_s = 15 * 1e7 / opera.port_bytes_per_s
    assert together_s(opera, *uniform, 1e7) == pytest.approx(
        wire_s * hops + opera.rotation.most_hops * opera.hop_latency_s
    )
    assert together_s(opera, *uniform, 2e7) == together_s(FABRIC, *uniform, 2e7)


@pytest.mark.parametrize("lanes", [RACKS - 1, RACKS])
@pytest.mark.parametrize("bulk_bytes", [0.0, 1e7])
def test_a_lane_for_everyone_never_turns(lanes, bulk_bytes):
    """A lane for every other is enough: nobody needs one to itself. With 8 lanes 9 ends once turned."""
    fabric = replace(FABRIC, lanes=lanes, bulk_bytes=bulk_bytes)
    assert fabric.rotation.duty == 1.0
    assert fabric.rotation.wait_s == 0.0
    sent_s = 1e7 / fabric.lane_bytes_per_s
    assert together_s(fabric, *everyone(RACKS), 1e7) == pytest.approx(sent_s, rel=1e-3)


@pytest.mark.parametrize("name", ["uniform", "permutation", "one flow"])
def test_lanes_for_everyone_twice_are_as_fast(name):
    """A card's rate is shared by its lanes; those beyond a lane for every other once stayed dark."""
    (sources, destinations), size_bytes = patterns()[name]
    once, twice = (
        together_s(replace(FABRIC, lanes=times * (RACKS - 1)), sources, destinations, size_bytes)
        for times in (1, 2)
    )
    assert twice == pytest.approx(once)
    shifts = replace(FABRIC, lanes=2 * (RACKS - 1)).rotation.shifts.ravel()
    assert sorted(shifts) == sorted([*range(1, RACKS)] * 2)


def test_relays_never_carry_less_than_nothing():
    """Sums of the same bytes in other orders differ by their last bit, which once made a usage negative."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        flows = np.zeros((3, 3))
        flows[0, 1:] = generator.exponential(1e9, 2)
        flows[1, 0] = generator.exponential(1e9)
        assert (relay_always(flows).carried >= 0.0).all()


@pytest.mark.parametrize(
    ("ends", "lanes", "slots"), [(16, 4, 4), (17, 4, 4), (26, 8, 4), (9, 8, 1), (5, 1, 4)]
)
def test_a_round_has_a_place_for_every_shift_to_others(ends, lanes, slots):
    rotation = Rotation(ends=ends, lanes=lanes, reconfiguration_s=1e-5, hold_ratio=10.0)
    assert rotation.slots == slots
    begin, end = lit_s(rotation)[1:].T
    assert (begin >= 0.0).all()
    assert (end <= rotation.round_s + rotation.slot_s).all()
    if lanes > 1:
        assert set(range(1, ends)) <= set(rotation.shifts.ravel())


def test_too_few_settings_or_too_little_light_are_errors():
    assert least_lanes(load_switch("rotor"), 128) == 8
    assert least_lanes(load_switch("sirius-awgr"), 128) == 2
    with pytest.raises(ParameterError, match="must be at least 8"):
        RotorFabric(endpoints=128, scale_up=SINGLE, lanes=4)
    with pytest.raises(LinkError, match="optical switches"):
        RotorFabric(endpoints=64, scale_up=SINGLE, switch=load_switch("sirius-awgr"))
    with pytest.raises(ParameterError, match="hold_ratio"):
        replace(FABRIC, hold_ratio=1.0)
    assert math.isfinite(RotorFabric(endpoints=1, scale_up=SINGLE).static_w)


def test_every_number_moves_an_answer():
    base = replace(FABRIC, bulk_bytes=1e6, optics=load_optics("lane-100g-boosted"))

    def answers(fabric):
        few = [together_s(fabric, *patterns()["permutation"][0], size) for size in (1e5, 1e8)]
        return [*few, fabric.static_w, fabric.cost_usd, fabric.budget.launch_dbm]

    before = answers(base)
    changes = [
        {"lanes": 8},
        {"hold_ratio": 20.0},
        {"bulk_bytes": 1e3},
        {"relaying": Relaying.ALWAYS},
        *({"switch": replace(ROTOR, **{name: value})} for name, value in ROTOR_KNOBS.items()),
    ]
    for change in changes:
        assert answers(replace(base, **change)) != before, change


ROTOR_KNOBS = {
    "insertion_loss_db": 2.0,
    "switch_s": 2e-5,
    "relock_s": 1e-6,
    "control_s": 1e-6,
    "static_w": 10.0,
    "move_energy_j": 1.0,
    "port_price_usd": 10.0,
    "ports": 64,
    "spare_ports": 120,
}
