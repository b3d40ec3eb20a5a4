import math
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ParameterError, check_positive, check_range
from simulator.parameter_tree import get_at, numeric_leaves, parse_assignment, replace_at


class Policy(StrEnum):
    GREEDY = "greedy"
    STATIC = "static"


@dataclass(frozen=True, kw_only=True)
class Laser:
    name: str = "laser"
    power_w: float = 0.1
    wall_plug_efficiency: float = 0.2
    loss_db: float = 3.0

    def __post_init__(self):
        check_positive(self, "power_w")
        check_range(self, "wall_plug_efficiency", low=0.0, high=1.0)


@dataclass(frozen=True, kw_only=True)
class Core:
    laser: Laser
    rows: int = 64
    symbol_rate_hz: float = 5e9
    calibrated: bool = True
    policy: Policy = Policy.GREEDY
    fallback: Policy | None = None
    limit_w: float | None = None
    spare: Laser | None = None
    phases: np.ndarray = field(default_factory=lambda: np.zeros(3))
    area_m2: float = field(init=False, default=1.0)


@dataclass(frozen=True, kw_only=True)
class Memory:
    bandwidth_bytes_per_s: float = 3e12


@dataclass(frozen=True, kw_only=True)
class System:
    name: str
    core: Core
    spare: Memory
    used: Memory
    lasers: tuple[Laser, ...] = ()
    stages: tuple[Memory, ...] = ()
    sizes: tuple[int, ...] = (4, 4)


@pytest.fixture
def system():
    memory = Memory()
    return System(
        name="s",
        core=Core(laser=Laser()),
        spare=memory,
        used=memory,
        lasers=(Laser(name="red"), Laser(name="blue 1.5")),
        stages=(memory, Memory()),
    )


def test_leaves_are_numbers_only(system):
    assert set(numeric_leaves(system)) == {
        "core.laser.power_w",
        "core.laser.wall_plug_efficiency",
        "core.laser.loss_db",
        "core.rows",
        "core.symbol_rate_hz",
        "spare.bandwidth_bytes_per_s",
        "used.bandwidth_bytes_per_s",
        *(
            f"lasers.{n}.{f}"
            for n in ("red", "blue 1.5")
            for f in ("power_w", "wall_plug_efficiency", "loss_db")
        ),
        "stages.0.bandwidth_bytes_per_s",
        "stages.1.bandwidth_bytes_per_s",
    }


def test_every_leaf_can_be_read_and_set_at_its_own_path(system):
    for path, value in numeric_leaves(system).items():
        changed = replace_at(system, path, value * 0.5)
        assert get_at(changed, path) == value * 0.5
        assert get_at(system, path) == value


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_what_is_set_is_what_is_read(value):
    core = Core(laser=Laser())
    assert get_at(replace_at(core, "power_w", repr(value)), "laser.power_w") == value


def test_an_unambiguous_ending_is_enough(system):
    assert replace_at(system, "rows", "128").core.rows == 128
    assert replace_at(system, "red.power_w", 0.3).lasers[0].power_w == 0.3
    assert replace_at(system, "blue 1.5.power_w", 0.3).lasers[1].power_w == 0.3


def test_an_ending_must_end_at_a_dot(system):
    with pytest.raises(ParameterError, match=r"did you mean 'core\.rows'"):
        replace_at(system, "ows", 1)


def test_an_ambiguous_ending_lists_the_candidates(system):
    with pytest.raises(
        ParameterError, match=r"fits 3 parameters.*core\.laser\.power_w.*lasers\.red\.power_w"
    ):
        get_at(system, "power_w")


def test_a_shared_object_changes_everywhere_and_its_twin_does_not(system):
    changed = replace_at(system, "used.bandwidth_bytes_per_s", "4 TB/s")
    assert changed.spare.bandwidth_bytes_per_s == 4e12
    assert changed.spare is changed.used is changed.stages[0]
    assert changed.stages[1].bandwidth_bytes_per_s == 3e12


def test_a_path_to_a_shared_object_is_not_ambiguous():
    memory = Memory()
    one = System(name="s", core=Core(laser=Laser()), spare=memory, used=memory)
    assert replace_at(one, "bandwidth_bytes_per_s", 1.0).used.bandwidth_bytes_per_s == 1.0


def test_what_is_not_touched_stays_the_same_object(system):
    changed = replace_at(system, "core.laser.loss_db", 1.0)
    assert changed.lasers is system.lasers
    assert changed.core.phases is system.core.phases


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("symbol_rate_hz", "10 GHz", 10e9),
        ("symbol_rate_hz", "10GBaud", 10e9),
        ("core.laser.loss_db", "-1.5 dB", -1.5),
        ("core.laser.power_w", "20 mW", 20e-3),
        ("core.laser.wall_plug_efficiency", "40 %", 0.4),
        ("core.symbol_rate_hz", " 1_000e6 ", 1e9),
        ("core.symbol_rate_hz", "inf", math.inf),
        ("core.rows", "1e2", 100),
        ("core.rows", 32.0, 32),
    ],
)
def test_units_are_converted_by_the_suffix(system, path, text, expected):
    value = get_at(replace_at(system, path, text), path)
    assert value == pytest.approx(expected)
    assert type(value) is type(expected)


def test_an_enumeration_is_set_by_value(system):
    assert replace_at(system, "core.policy", "static").core.policy is Policy.STATIC
    with pytest.raises(ParameterError, match="did you mean 'static'"):
        replace_at(system, "core.policy", "statik")


def test_what_is_absent_can_be_set_and_made_absent_again(system):
    assert get_at(system, "fallback") is None
    one = replace_at(replace_at(system, "fallback", "static"), "limit_w", "3 kW")
    assert (one.core.fallback, one.core.limit_w) == (Policy.STATIC, 3e3)
    none = replace_at(replace_at(one, "fallback", "none"), "limit_w", "None")
    assert (none.core.fallback, none.core.limit_w) == (None, None)
    with pytest.raises(ParameterError, match="must be a number, with or without a unit; got 'none'"):
        replace_at(system, "core.symbol_rate_hz", "none")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("core.lasr.power_w", 1, "did you mean 'core.laser.power_w'"),
        ("lazer.power_w", 1, "did you mean 'core.laser.power_w'"),
        ("core.laser", 1, r"it holds several; write one of core\.laser\.power_w"),
        ("core.rows", "2.5", "must be a whole number; got 2.5"),
        ("core.rows", "inf", "must be a whole number"),
        ("core.rows", True, "must be a number; got True"),
        ("core.symbol_rate_hz", "nan", "must be a number; got nan"),
        ("core.symbol_rate_hz", float("nan"), "must be a number"),
        ("core.symbol_rate_hz", "fast", "with or without a unit; got 'fast'"),
        ("core.symbol_rate_hz", "5 W", "unit 'W' does not fit"),
        ("core.rows", "5 dB", "unit 'dB' does not fit 'rows', which is dimensionless"),
        ("core.laser.power_w", -1, "power_w must be above 0; got -1"),
        ("core.laser.wall_plug_efficiency", "140 %", "at most 1; got 1.4"),
        ("core.calibrated", 0, "no parameter 'core.calibrated'"),
        ("core.spare", "none", "no parameter 'core.spare'"),
        ("core.area_m2", 0, "no parameter 'core.area_m2'"),
        ("", 1, "no parameter ''"),
    ],
)
def test_a_bad_value_or_path_is_one_sentence(system, path, value, message):
    with pytest.raises(ParameterError, match=message) as caught:
        replace_at(system, path, value)
    assert "\n" not in str(caught.value)


def test_an_assignment_splits_at_the_first_equals_sign():
    assert parse_assignment(" a.b = 1.5e9 ") == ("a.b", "1.5e9")
    assert parse_assignment("a=b=c") == ("a", "b=c")


@pytest.mark.parametrize("text", ["a.b", "=3", "a.b=", "", "="])
def test_half_an_assignment_is_refused(text):
    with pytest.raises(ParameterError, match="is not an assignment"):
        parse_assignment(text)
