"""A core gets just the light that its bits need, and every kind of core can be built in other sizes."""

import math

import pytest

from optical.cores import CORES, load_core, resized
from optical.cores.sizing import LASER, lit_for_bits, most_bits
from simulator.errors import LinkError, ParameterError
from simulator.parameter_tree import get_at, replace_at

each_core = pytest.mark.parametrize("name", CORES)


def power_w(core):
    return get_at(core, LASER)


@each_core
@pytest.mark.parametrize("short_of_cap", [0.3, 2.0])
def test_light_is_just_enough(name, short_of_cap):
    core = load_core(name)
    target = most_bits(core)[0] - short_of_cap
    lit = lit_for_bits(core, target)
    assert lit.effective_bits == pytest.approx(target, abs=1e-5)
    assert replace_at(lit, LASER, 0.99 * power_w(lit)).effective_bits < target
    assert lit_for_bits(replace_at(core, LASER, 2.0 * power_w(core)), target).effective_bits == pytest.approx(
        target, abs=1e-5
    )


@each_core
def test_no_light_exceeds_the_cap(name):
    core = load_core(name)
    cap, cause = most_bits(core)
    assert core.effective_bits < cap
    assert cause
    with pytest.raises(LinkError, match="are the cap"):
        lit_for_bits(core, cap + 0.01)


@each_core
def test_better_converter_raises_the_cap_that_it_sets(name):
    core = load_core(name)
    cap, cause = most_bits(core)
    better = replace_at(core, "adc.enob_bits", get_at(core, "adc.enob_bits") + 1.0)
    gain = most_bits(better)[0] - cap
    assert 0.45 < gain < 1.0 if cause == "ADC" else gain < 0.1


def test_present_light_of_the_phase_change_array_is_what_its_bits_need():
    core = load_core("pcm_crossbar")
    assert power_w(lit_for_bits(core, core.effective_bits)) == pytest.approx(power_w(core), rel=1e-9)


@each_core
def test_larger_arrays_need_more_light_and_do_more(name):
    core = load_core(name)
    sides = {path: 2 * get_at(core, path) for path in CORES[name].sides}
    larger = resized(core, sides)
    assert {path: get_at(larger, path) for path in sides} == sides
    assert larger.peak_macs_per_s >= 2.0 * core.peak_macs_per_s
    assert power_w(lit_for_bits(larger, 4.5)) > power_w(lit_for_bits(core, 4.5))
    assert power_w(larger) == power_w(core)


@pytest.mark.parametrize("bits", [0.0, -1.0, math.inf])
@pytest.mark.parametrize("name", ["crossbar", "residue"])
def test_impossible_targets_are_refused(name, bits):
    with pytest.raises(ParameterError, match="target_bits must be positive"):
        lit_for_bits(load_core(name), bits)
