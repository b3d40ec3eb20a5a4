"""Several dies and their yield: links take energy, time, area and money, spares area, defects money."""

import dataclasses
import math

import pytest

from heliograph.systems import build_system
from optical.devices.devices import device_table
from optical.devices.electronics import DieYield
from simulator.operators import MatMul, Phase
from simulator.parameter_tree import replace_at

UNIT = build_system("photonic_packet:homodyne", accelerators=1, basis="count").photonic
YIELD = device_table().build(DieYield, "die_yield")
WIDE = MatMul(name="wide", layer=0, batch=1, m=8192, k=8192, n=8192, phase=Phase.FORWARD)


def halved(unit, dies=4):
    """Return a unit whose dies are so small that it is cut into several."""
    return replace_at(unit, "electronics.link.field_area_m2", unit.footprint_m2 / (dies - 0.5))


def test_several_dies_cost_energy_area_and_packaging():
    one = replace_at(UNIT, "electronics.link.field_area_m2", 2 * UNIT.footprint_m2)
    several = halved(UNIT)
    assert (one.dies, several.dies) == (1, 4)
    assert several.area_m2 == pytest.approx(one.area_m2 + 4 * several.electronics.link.area_m2)
    assert "die links" in several.cost(WIDE).energy_j
    dear = replace_at(several, "electronics.link.package_usd", 1150.0)
    assert dear.price_usd - several.price_usd == pytest.approx(4 * 1000.0)


def test_slow_links_between_dies_bound_a_product():
    several = halved(UNIT)
    slow = replace_at(several, "electronics.link.bandwidth_bytes_per_s", 1e9)
    assert slow.cost(WIDE).time_s > 10 * several.cost(WIDE).time_s
    assert slow.cost(WIDE).bound == "memory"


def test_yield_without_spares_is_that_of_all_clusters_together():
    assert YIELD.share(4, 1e-4) == pytest.approx(math.exp(-0.1 * 4))


def test_a_spare_of_four_is_a_binomial_tail():
    spared, works = dataclasses.replace(YIELD, spares=0.25), math.exp(-0.1)
    assert spared.share(4, 1e-4) == pytest.approx(works**5 + 5 * works**4 * (1 - works))


def test_defects_make_a_chip_dearer_and_spares_make_it_larger():
    dirty = replace_at(UNIT, "electronics.die_yield.defects_per_cm2", 0.5)
    assert dirty.price_usd > UNIT.price_usd
    spared = replace_at(UNIT, "electronics.die_yield.spares", 0.25)
    assert spared.area_m2 == pytest.approx(1.25 * UNIT.area_m2, rel=0.05)
    assert spared.die_yield > UNIT.die_yield
    assert spared.peak_power_w == pytest.approx(UNIT.peak_power_w, rel=0.05)
