import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from electronic.devices import load_packet_switch, load_scale_up, load_transceiver
from electronic.fabrics.packets import SHIPPED, RailFabric
from simulator.errors import LinkError, ParameterError
from simulator.fabric import missing_members
from simulator.interfaces import Flows
from simulator.topology.scale_up import load_nic

SIZES = (2, 8, 16, 64, 128, 256, 1024, 8192)


def one(source, destination):
    return Flows(sources=np.array([source]), destinations=np.array([destination]), size_bytes=1e6)


def alone_s(fabric, flows):
    graph, links = fabric.graph(None), fabric.route(None, flows)[0]
    links = links[links >= 0]
    return flows.size_bytes / graph.capacity_bytes_per_s[links].min() + graph.latency_s[links].sum()


def test_it_is_a_fabric():
    assert missing_members(RailFabric(endpoints=64)) == ()


def test_same_rail_shares_a_leaf_and_other_rails_climb():
    fabric = RailFabric(endpoints=256)
    assert fabric.leaves == 8
    assert (fabric.route(None, one(0, 248))[0] >= 0).sum() == 2
    assert (fabric.route(None, one(0, 249))[0] >= 0).sum() == 4
    assert (fabric.route(None, one(0, 7))[0] >= 0).sum() == 2
    assert (fabric.route(None, one(3, 3))[0] >= 0).sum() == 0


@pytest.mark.parametrize("endpoints", SIZES)
def test_no_leaf_takes_more_than_its_ports(endpoints):
    fabric = RailFabric(endpoints=endpoints)
    assert np.bincount(fabric.edges).max() <= fabric.downlinks
    assert np.bincount(fabric.edges).min() > 0


@pytest.mark.parametrize("endpoints", SIZES)
def test_every_link_of_a_route_exists_and_carries(endpoints):
    fabric = RailFabric(endpoints=endpoints)
    rng = np.random.default_rng(1)
    flows = Flows(
        sources=rng.integers(endpoints, size=500),
        destinations=rng.integers(endpoints, size=500),
        size_bytes=1.0,
    )
    links = fabric.route(None, flows)
    capacity = fabric.graph(None).capacity_bytes_per_s
    assert links.max() < len(capacity)
    assert (capacity[links[links >= 0]] > 0).all()


@pytest.mark.parametrize(("endpoints", "levels"), [(64, 1), (256, 2), (2048, 2), (8192, 3), (98304, 4)])
def test_levels_follow_size(endpoints, levels):
    assert RailFabric(endpoints=endpoints).levels == levels


def test_a_fourth_level_is_two_levels_of_spines_that_split_and_one_that_joins():
    """With a radix of 8, four levels join 128 leaves of four (a full tree, r (r / 2)^3 ends)."""
    small = replace(load_packet_switch("switch-400g"), radix=8)
    fabric, lower = RailFabric(endpoints=512, switch=small), RailFabric(endpoints=128, switch=small)
    assert (fabric.levels, lower.levels) == (4, 3)
    assert fabric.switches == 128 + 128 + 128 + 64
    assert fabric.trunks == 3 * 512
    assert fabric.bill()["transceiver"].count == 2 * 4 * 512
    far = [
        each.graph(None).latency_s[each.route(None, one(0, each.endpoints - 8))].sum()
        for each in (fabric, lower)
    ]
    hop_s = fabric.switch.latency_s + fabric.transceiver.link_latency_s
    assert far[0] - far[1] == pytest.approx(2 * hop_s)
    with pytest.raises(ParameterError, match="4 levels of radix 8 take 128"):
        RailFabric(endpoints=520, switch=small)


def test_too_many_endpoints_for_four_levels_is_refused():
    with pytest.raises(ParameterError, match="larger radix"):
        RailFabric(endpoints=8 * 10000, switch=replace(load_packet_switch("switch-400g"), radix=8))


def test_a_fibre_too_long_for_its_modules_is_refused():
    with pytest.raises(LinkError, match="the greatest loss is fibre"):
        RailFabric(endpoints=64, transceiver=replace(load_transceiver("dr4-400g"), fibre_m=5000.0))


def test_incomplete_node_is_refused():
    with pytest.raises(ParameterError, match="try 16 or 24"):
        RailFabric(endpoints=20)


def test_oversubscription_halves_the_climb_and_costs_less():
    full, half = RailFabric(endpoints=1024), RailFabric(endpoints=1024, oversubscription=2.0)
    assert half.cost_usd < full.cost_usd
    assert half.static_w < full.static_w
    per_port = [
        fabric.graph(None).capacity_bytes_per_s[4 * 1024] / np.bincount(fabric.edges)[0]
        for fabric in (full, half)
    ]
    assert per_port[1] == pytest.approx(per_port[0] / 2)
    with pytest.raises(ParameterError, match="oversubscription"):
        RailFabric(endpoints=64, oversubscription=0.5)


def test_bill_adds_up_and_counts_both_ends_of_links():
    fabric = RailFabric(endpoints=1024)
    bill = fabric.bill()
    assert bill["transceiver"].count == 2 * (1024 + 1024)
    assert bill["packet switch"].count == 32 + 16
    assert fabric.static_w == pytest.approx(sum(item.count * item.w_each for item in bill.values()))
    assert fabric.cost_usd == pytest.approx(sum(item.count * item.usd_each for item in bill.values()))


def test_energy_is_dynamic_only_and_grows_with_bytes():
    fabric = RailFabric(endpoints=16)
    inside, outside = fabric.transfer_energy_j(one(0, 1)), fabric.transfer_energy_j(one(0, 8))
    assert inside == pytest.approx(8e6 * fabric.scale_up.energy_j_per_bit)
    assert outside == pytest.approx(2 * 8e6 * fabric.nic.energy_j_per_bit)
    assert fabric.transfer_energy_j(one(3, 3)) == 0.0


def outputs(fabric):
    pairs = [one(0, 1), one(0, 5), one(0, 8), one(0, 9)]
    return [
        fabric.static_w,
        fabric.cost_usd,
        *(alone_s(fabric, pair) for pair in pairs),
        *(fabric.transfer_energy_j(pair) for pair in pairs),
        *((item.count, item.fibre_ends) for item in fabric.bill().values()),
    ]


DEVICES = {
    "scale_up": load_scale_up("nvlink4"),
    "nic": load_nic("connectx-7"),
    "switch": load_packet_switch("switch-400g"),
    "transceiver": load_transceiver("dr4-400g"),
}


@pytest.mark.parametrize(
    ("part", "parameter"),
    [
        (part, item.name)
        for part, device in DEVICES.items()
        for item in dataclasses.fields(device)
        if item.name not in {"name", "copy_bytes_per_s", "protocols", "adders"}  # the library's, not a link's
        and item.name not in SHIPPED  # need many flows: test_spreading
    ],
)
def test_no_knob_is_dead(part, parameter):
    value = getattr(DEVICES[part], parameter)
    moved = (
        value // 2
        if isinstance(value, int)
        else max(1.0, value / 1.2)
        if parameter == "group_index"
        else value / 2
    )
    plain = RailFabric(endpoints=256)
    changed = replace(plain, **{part: replace(DEVICES[part], **{parameter: moved})})
    assert outputs(changed) != outputs(plain)
