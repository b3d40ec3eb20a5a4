"""Cores by name: one from outside joins with a call, or is refused with the reason in one sentence."""

from dataclasses import dataclass

import pytest

from optical.cores import CORES, AnalogCore, load_core, register_core, resized, unregister_core
from simulator.errors import ParameterError
from tests.conformance.lithium_niobate import LithiumNiobate


@pytest.fixture
def name():
    """Name that is free, and free again afterwards."""
    yield "lithium_niobate"
    if "lithium_niobate" in CORES:
        unregister_core("lithium_niobate")


def test_a_core_from_outside_is_found_by_name(name):
    register_core(name, LithiumNiobate)
    core = load_core(name)
    assert isinstance(core, LithiumNiobate)
    assert list(CORES)[-1] == name
    assert CORES[name].summary.startswith("Time-multiplexed homodyne core")
    assert resized(core, {side: 32 for side in CORES[name].sides}).receivers == 32 * 32


def test_a_taken_name_is_refused(name):
    register_core(name, LithiumNiobate)
    for taken in (name, "crossbar"):
        with pytest.raises(ParameterError, match=f"a core '{taken}' is registered already; take another"):
            register_core(taken, LithiumNiobate)
    with pytest.raises(ParameterError, match="needs a name"):
        register_core("", LithiumNiobate)


@dataclass(frozen=True, kw_only=True)
class Half(AnalogCore):
    """Half a core."""

    @classmethod
    def default(cls):
        raise NotImplementedError


def test_a_class_that_does_not_answer_the_seam_is_refused(name):
    with pytest.raises(ParameterError, match=r"class Half does not answer .*; it lacks .*peak_macs.*parts"):
        register_core(name, Half)
    for wrong in (int, "crossbar", load_core("crossbar")):
        with pytest.raises(ParameterError, match=r"does not answer `optical\.cores\.Core`; it lacks name, "):
            register_core(name, wrong)
    assert name not in CORES


@pytest.mark.parametrize(
    ("default", "says"),
    [
        (lambda: 3, r"default\(\) returns 3, which is no core"),
        (lambda: 1 / 0, r"fails, ZeroDivisionError at .*test_registry\.py:\d+: division"),
    ],
)
def test_a_core_from_outside_that_cannot_be_built_is_one_sentence(name, monkeypatch, default, says):
    monkeypatch.setattr(LithiumNiobate, "default", staticmethod(default))
    register_core(name, LithiumNiobate)
    with pytest.raises(ParameterError, match=says):
        load_core(name)


def test_names_that_could_not_be_asked_for_are_refused():
    for odd in ("a b", "a:b", "a@b", "a+b", "a,b"):
        with pytest.raises(ParameterError, match="without blanks and"):
            register_core(odd, LithiumNiobate)


def test_only_a_core_from_outside_is_taken_off_again(name):
    register_core(name, LithiumNiobate)
    unregister_core(name)
    assert name not in CORES
    for wrong in (name, "crossbar"):
        with pytest.raises(ParameterError, match=f"'{wrong}' is no core from outside; registered are none"):
            unregister_core(wrong)
