"""Every photonic core keeps every law: those with a name, and one from outside, which lives in the tests."""

import functools
import re
import subprocess
import sys

import pytest

from heliograph.core_laws import (
    LAWS,
    LAWS_OF_NUMBERS,
    every_number_moves_some_answer,
    faults_of,
    laws_of,
    unit_of,
)
from optical.cores import CORES, load_core
from optical.cores.rescues import RESCUES
from simulator.errors import ParameterError
from simulator.parameter_tree import replace_at
from tests.conformance.free_space import NOT_THERE, FreeSpace
from tests.conformance.lithium_niobate import LithiumNiobate

UNUSED = {
    "residue": {
        "core.core.temporal_accumulation",
        "core.core.summed",
        "core.core.summing.pair_load",
        "core.core.adc_range_sigma",
        "core.core.adc.nominal_bits",
        "core.core.chip_seed",
    },
    "phase_residue": {"core.core.adc.nominal_bits", "core.core.segment_dac.nominal_bits"},
}
"""Numbers of a wrapped core that its number format settles: residues fix the length of a sum (the core's own
entry tries it), the ADC's range is a modulus, and only its effective bits tell how well one is read; phases
are set and read to the nearest step, so that again only effective bits tell how often it is the wrong one.
What a chip adds counts as noise that makes a remainder misread, whichever chip it is. With one pair on each
amplifier, none loads it further."""


@functools.cache
def built(name):
    """Return a unit of a core by name, or the error that kept it from being built."""
    try:
        return unit_of(load_core(name))
    except Exception as error:
        return error


@pytest.fixture
def unit(name):
    found = built(name)
    if isinstance(found, Exception):
        pytest.fail(f"core '{name}' cannot be built: {type(found).__name__}: {found}", pytrace=False)
    return found


RESCUED = (*(f"crossbar+{one}" for one in RESCUES), "crossbar+hybrid+rotation+block", "ring_bank+hybrid")
"""A core with each rescue around it and with several, and one that loads weights."""
NAMES = (*CORES, *RESCUED)
"""Cores as this file is read, before other tests register theirs."""
each_core = pytest.mark.parametrize("name", NAMES)


@each_core
def test_a_core_answers_to_its_name(name, unit):
    assert unit.core.name == name, (
        f"the entry '{name}' of CORES builds a core that is called '{unit.core.name}'; give its field `name` "
        "the entry's name, or tables, messages and these tests take one for the other"
    )


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@each_core
def test_a_core_keeps(law, name, unit):
    if law not in laws_of(unit):
        pytest.skip("of samples that err a little every time, not of residue numbers")
    assert not list(law(unit))


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS_OF_NUMBERS, ids=lambda law: law.__name__)
@each_core
def test_a_core_keeps_of_its_numbers(law, name, unit):
    assert not list(law(unit, UNUSED.get(name, frozenset())))


@pytest.mark.slow
@pytest.mark.parametrize(("core_class", "unused"), [(LithiumNiobate, ()), (FreeSpace, NOT_THERE)])
def test_a_core_from_outside_keeps_every_law(core_class, unused):
    assert not faults_of(core_class.default(), unused=unused)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"ring.settling_s": 0.5}, {"wavelengths": 6, "modulator.bandwidth_hz": 8e9}],
    ids=["weights of half a second", "short sums of slow symbols"],
)
def test_a_slow_core_keeps_every_law_that_its_kind_keeps(changes):
    """Neither a load that hides memory and ports nor a sum whose first element is full scale is a fault."""
    core = load_core("ring_bank")
    for path, value in changes.items():
        core = replace_at(core, path, value)
    assert not faults_of(core)


def test_dead_numbers_are_told_all_at_once():
    told = every_number_moves_some_answer(unit_of(FreeSpace.default()), ())
    dead = {text.partition(":")[0] for text in told}
    assert all(any(f"{one}.".startswith(f"{path}.") for one in dead) for path in NOT_THERE)
    assert len(dead) > len(NOT_THERE)


def test_a_number_that_is_not_there_cannot_be_called_unused():
    with pytest.raises(ParameterError, match=r"core\.waveguides"):
        faults_of(FreeSpace.default(), unused=["core.waveguides"])


@pytest.mark.slow
def test_a_core_that_cannot_be_built_fails_alone():
    """In a run of its own: every other core is still collected and tested, and one sentence tells why."""
    arguments = ("-p", "tests.conformance.broken_core", __file__, "-k", "keeps_the_seam", "-q", "--no-header")
    command = (sys.executable, "-m", "pytest", *arguments, "-p", "no:cacheprovider", "-p", "no:xdist")
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    passed, failed = re.search(r"(\d+) passed, .* (\d+) error", found.stdout).groups()
    assert (int(passed), int(failed)) == (len(NAMES), 1), found.stdout + found.stderr
    assert re.search(r"broken_core\.py:\d+: Broken 'crossbar': rows must be at least 1; got 0", found.stdout)
