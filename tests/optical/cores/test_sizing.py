"""A laser is just bright enough for the precision asked for, and every core can be built in other sizes."""

import math

import pytest

from optical.cores import CORES, load_core, resized
from optical.cores.sizing import LASER, Product, core_precision, most_precision, with_laser_for
from simulator.errors import LinkError, ParameterError
from simulator.operands.statistics import OperandKind, average, operands_of
from simulator.parameter_tree import get_at, replace_at

each_core = pytest.mark.parametrize("name", CORES)
GAUSSIAN, OUTLIERS = (operands_of(kind) for kind in (OperandKind.GAUSSIAN, OperandKind.OUTLIERS))
PRODUCTS = (
    Product(operands=GAUSSIAN, length=512, weight=3.0),
    Product(operands=GAUSSIAN, length=4096, weight=1.0),
)


def power_w(core):
    return get_at(core, LASER)


@each_core
@pytest.mark.parametrize("short_of_cap_db", [1.0, 6.0])
def test_light_is_just_enough(name, short_of_cap_db):
    core = load_core(name)
    target_db = most_precision(core, PRODUCTS)[0].snr_db - short_of_cap_db
    sized = with_laser_for(core, target_db, PRODUCTS)
    assert core_precision(sized, PRODUCTS).snr_db == pytest.approx(target_db, abs=1e-3)
    dimmer = replace_at(sized, LASER, 0.99 * power_w(sized))
    assert core_precision(dimmer, PRODUCTS).snr_db < target_db
    again = with_laser_for(replace_at(core, LASER, 0.5 * power_w(core)), target_db, PRODUCTS)
    assert power_w(again) == pytest.approx(power_w(sized), rel=1e-3)


@each_core
def test_no_light_exceeds_the_cap(name):
    core = load_core(name)
    best, _ = most_precision(core, PRODUCTS)
    assert core_precision(core, PRODUCTS).snr_db < best.snr_db + 1e-9
    with pytest.raises(LinkError, match=f"dB are the most, kept from more by {best.worst}"):
        with_laser_for(core, best.snr_db + 0.1, PRODUCTS)


def test_too_much_light_is_told_with_its_reason():
    with pytest.raises(LinkError, match=r"more light is refused: .*overflow"):
        with_laser_for(load_core("homodyne"), 60.0, PRODUCTS)


def test_noise_is_averaged_with_the_weights_of_the_products():
    core = load_core("crossbar")
    found = [core_precision(core, (one,)) for one in PRODUCTS]
    expected = (3.0 * found[0].total + found[1].total) / 4.0
    assert core_precision(core, PRODUCTS).total == pytest.approx(expected)
    assert average(zip((3.0, 1.0), found, strict=True)).total == pytest.approx(expected)
    with pytest.raises(ParameterError, match="at least one product"):
        core_precision(core, ())


def test_larger_channels_need_more_light():
    core = load_core("block_float")
    each = [with_laser_for(core, 15.0, (Product(operands=one, length=1024),)) for one in (GAUSSIAN, OUTLIERS)]
    assert power_w(each[1]) > 1.2 * power_w(each[0])


@each_core
def test_larger_arrays_need_more_light_and_do_more(name):
    core = load_core(name)
    if name == "pcm_crossbar":  # 128 lines must fit between two resonances of 4.7 THz
        core = replace_at(core, "line_spacing_hz", 36e9)
    sides = {path: 2 * get_at(core, path) for path in CORES[name].sides}
    larger = resized(core, sides)
    assert {path: get_at(larger, path) for path in sides} == sides
    assert larger.peak_macs_per_s >= 2.0 * core.peak_macs_per_s
    sized = [with_laser_for(one, 5.0, PRODUCTS) for one in (core, larger)]
    assert power_w(sized[1]) > power_w(sized[0])
    assert power_w(larger) == power_w(core)


@pytest.mark.parametrize("target_db", [math.inf, math.nan])
def test_impossible_targets_are_refused(target_db):
    with pytest.raises(ParameterError, match="must be a finite number of decibels"):
        with_laser_for(load_core("crossbar"), target_db, PRODUCTS)
