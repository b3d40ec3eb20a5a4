"""Cut of a chip into dies: costs of links, spares, defects and dicing; the cheapest cut is taken."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from heliograph.systems import build_system
from optical.devices.devices import device_table
from optical.devices.electronics import NOTHING, Block, DieYield, Wafer
from simulator.errors import ParameterError
from simulator.operators import MatMul, Phase
from simulator.parameter_tree import replace_at

UNIT = build_system("photonic_packet:homodyne", accelerators=1, basis="count").photonic
YIELD = device_table().build(DieYield, "die_yield")
WAFER = device_table().build(Wafer, "wafer")
CLUSTERS = UNIT.cores // UNIT.core.cluster
WIDE = MatMul(name="wide", batch=1, m=8192, k=8192, n=8192, phase=Phase.FORWARD)


def several_dies(dies=4):
    """Return a unit whose clusters are so many that a field of theirs is cut into several dies."""
    field_m2 = math.ceil(CLUSTERS / dies) * UNIT.cluster_footprint_m2 + UNIT.electronics.link.area_m2
    return replace_at(UNIT, "electronics.link.field_area_m2", 1.001 * field_m2)


def one_die():
    """Return the same on a die that no scanner exposes, without spares."""
    unit = replace_at(UNIT, "electronics.link.field_area_m2", 2 * CLUSTERS * UNIT.cluster_footprint_m2)
    return replace_at(unit, "electronics.die_yield.spares", 0.0)


def test_several_dies_cost_energy_area_and_packaging():
    one, several = one_die(), replace_at(several_dies(), "electronics.die_yield.spares", 0.0)
    assert (one.dies, several.dies) == (1, 4)
    assert several.area_m2 == pytest.approx(one.area_m2 + 4 * several.electronics.link.area_m2)
    assert "die links" in several.cost(WIDE).energy_j
    dear = replace_at(several, "electronics.link.package_usd", several.electronics.link.package_usd + 1000.0)
    assert dear.price_usd - several.price_usd == pytest.approx(3 * 1000.0 / 0.99)


def test_slow_links_between_dies_bound_a_product():
    several = several_dies()
    slow = replace_at(several, "electronics.link.bandwidth_bytes_per_s", 1e9)
    assert slow.cost(WIDE).time_s > 10 * several.cost(WIDE).time_s
    assert slow.cost(WIDE).bound == "memory"


def test_yield_without_spares_is_that_of_all_clusters_together():
    assert YIELD.share(4, 4, 1e-4) == pytest.approx(math.exp(-0.1 * 4))


def test_a_spare_of_four_is_a_binomial_tail():
    works = math.exp(-0.1)
    assert YIELD.share(4, 5, 1e-4) == pytest.approx(works**5 + 5 * works**4 * (1 - works))
    assert YIELD.share(4, 5, 1e9) == 0.0  # no area without a defect


@pytest.mark.parametrize("side_m", [8e-3, 20e-3, 28e-3])
def test_the_share_of_a_wafer_is_that_of_the_dies_counted_on_it(side_m):
    """Whole squares of a grid laid over the disc, on average over its offsets."""
    radius_m, pitch_m = WAFER.diameter_m / 2 - WAFER.edge_m, side_m + WAFER.scribe_m
    edges = np.arange(-40, 40)[:, None] + np.array([0.0, 1.0])
    far_m = [pitch_m * np.abs(edges + shift).max(-1) for shift in np.linspace(0.0, 0.5, 6)]
    dies = [(np.hypot.outer(x, y) <= radius_m).sum() for x in far_m for y in far_m]
    share = float(np.mean(dies)) * side_m**2 / (math.pi / 4 * WAFER.diameter_m**2)
    assert WAFER.used(side_m**2) == pytest.approx(share, rel=0.03)


def test_defects_make_a_chip_dearer_and_few_spares_or_many_dies_cheaper():
    """With ever more defects spares come, then smaller dies; without defects one die, and none spare."""
    clean, dirty, foul = (
        replace_at(UNIT, "electronics.die_yield.defects_per_cm2", d) for d in (0.0, 0.1, 1.0)
    )
    assert clean.price_usd < dirty.price_usd < foul.price_usd
    assert clean.cut.built == clean.cut.used
    assert dirty.cut.built > dirty.cut.used
    assert foul.dies >= dirty.dies >= clean.dies
    fixed = replace_at(UNIT, "electronics.die_yield.spares", 0.0)
    assert UNIT.price_usd < fixed.price_usd
    assert UNIT.area_m2 > fixed.area_m2
    assert UNIT.peak_power_w == pytest.approx(fixed.peak_power_w, rel=0.05)


def test_no_cut_of_those_that_fit_is_cheaper():
    """Every size of dies and every number of spares is among them, by the law written out."""
    cluster_m2, link, law = UNIT.cluster_footprint_m2, UNIT.electronics.link, YIELD
    found = {(cut.used, cut.built): cut for cut in UNIT.cuts}
    assert UNIT.price_usd == min(cut.price_usd for cut in UNIT.cuts)
    for used in range(1, CLUSTERS + 1):
        dies = math.ceil(CLUSTERS / used)
        for built in range(used, used + used // 4 + 1):
            die_m2 = built * cluster_m2 + (link.area_m2 if dies > 1 else 0.0)
            if die_m2 > link.field_area_m2 or math.ceil(CLUSTERS / dies) < used:
                continue  # the same dies with fewer clusters in use
            cut = found[used, built]
            assert (cut.dies, cut.die_m2) == (dies, pytest.approx(die_m2))
            if CLUSTERS == dies * used:
                joined = law.works(link.area_m2) if dies > 1 else 1.0
                assert cut.die_yield == pytest.approx(law.share(used, built, cluster_m2) * joined)


def test_the_price_of_a_core_does_not_jump_with_their_number():
    """By 7 % at most where a second die begins; 30 % by the fewest dies that fit, without spares."""
    each = [unit.price_usd / unit.cores for unit in map(UNIT.resized, range(12, 40))]
    assert max(b / a for a, b in itertools.pairwise(each)) < 1.075  # a package of 2,900 USD more
    assert max(each) / min(each) < 1.12


def test_spares_beyond_a_field_are_not_tried():
    law = dataclasses.replace(YIELD, spares=1e9)
    many = dataclasses.replace(UNIT.electronics, die_yield=law)
    cluster = Block(area_m2=UNIT.cluster_footprint_m2, price_usd=100.0, stack_usd=100.0)
    assert max(cut.die_m2 for cut in many.cuts(CLUSTERS, cluster, NOTHING)) <= many.link.field_area_m2


def test_a_chip_of_which_no_die_works_is_refused():
    law = dataclasses.replace(YIELD, defects_per_cm2=1e8)
    with pytest.raises(ParameterError, match=r"no die works: the smallest covers 814 mm2, at 1e\+08 defects"):
        dataclasses.replace(UNIT.electronics, die_yield=law).cuts(
            1, Block(area_m2=8.14e-4, price_usd=27500.0, stack_usd=27500.0), NOTHING
        )


def test_a_chip_like_the_one_whose_price_is_taken_costs_that():
    """One die of the reference's area and yield has the price per area of finished accelerators."""
    more = dataclasses.replace(
        UNIT.electronics, die_yield=dataclasses.replace(YIELD, spares=0.0, reference=YIELD.works(8.14e-4))
    )
    (cut,) = more.cuts(1, Block(area_m2=8.14e-4, price_usd=27500.0, stack_usd=27500.0), NOTHING)
    assert cut.price_usd == pytest.approx(27500.0)


def test_memory_and_package_stand_round_a_stack_once():
    """A second layer costs its silicon, 9 % of what a finished accelerator of its area costs."""
    law = dataclasses.replace(YIELD, spares=0.0, reference=YIELD.works(8.14e-4))
    electronics = dataclasses.replace(UNIT.electronics, die_yield=law)
    single, stacked = (
        electronics.cuts(1, Block(area_m2=8.14e-4, price_usd=count * 27500.0, stack_usd=27500.0), NOTHING)[0]
        for count in (1, 2)
    )
    assert stacked.price_usd - single.price_usd == pytest.approx(law.silicon_share * 27500.0)
