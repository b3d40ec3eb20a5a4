"""Whole parts in a tree of dataclasses: found by their paths, exchanged wherever they stand."""

from dataclasses import dataclass, field

import pytest

from simulator.errors import ParameterError
from simulator.parameter_tree import find_place, numeric_leaves, places, put_part


@dataclass(frozen=True, kw_only=True)
class Lamp:
    power_w: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Candle:
    height_m: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Room:
    light: Lamp | Candle
    spare: Lamp | None = None
    size: int = 3
    walls: tuple[Lamp, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class House:
    hall: Room
    attic: Room


HOUSE = House(hall=Room(light=Lamp()), attic=Room(light=Candle()))


def test_places_are_fields_that_hold_a_part_or_could():
    found = {one.path: (one.kinds, one.optional) for one in places(HOUSE)}
    assert found["hall.light"] == ((Lamp, Candle), False)
    assert found["hall.spare"] == ((Lamp,), True)
    assert found["hall"] == ((Room,), False)
    assert "hall.size" not in found


def test_an_ending_that_fits_several_is_refused_and_one_that_fits_none_is_no_place():
    with pytest.raises(ParameterError, match=r"'light' fits 2 parts; write one of hall\.light, attic\.light"):
        find_place(HOUSE, "light")
    assert find_place(HOUSE, "hall.size") is None
    assert find_place(HOUSE, "attic.light").part == Candle()


def test_a_part_is_exchanged_where_it_stands_and_nowhere_else():
    changed = put_part(HOUSE, find_place(HOUSE, "hall.light"), Candle(height_m=0.3))
    assert changed.hall.light == Candle(height_m=0.3)
    assert changed.attic == HOUSE.attic
    filled = put_part(HOUSE, find_place(HOUSE, "attic.spare"), Lamp(power_w=2.0))
    assert filled.attic.spare.power_w == 2.0
    assert put_part(filled, find_place(filled, "attic.spare"), None) == HOUSE


def test_an_object_that_stands_twice_is_exchanged_in_both():
    room = Room(light=Lamp())
    twins = House(hall=room, attic=room)
    changed = put_part(twins, find_place(twins, "light"), Candle())
    assert changed.hall.light == changed.attic.light == Candle()


@pytest.mark.parametrize(("path", "part"), [("hall.spare", Candle()), ("hall.light", None)])
def test_what_does_not_fit_is_refused(path, part):
    with pytest.raises(ParameterError, match=rf"{path} takes Lamp"):
        put_part(HOUSE, find_place(HOUSE, path), part)


def test_numbers_of_a_name_are_those_of_all_with_that_name():
    found = numeric_leaves(HOUSE, "power_w", "height_m")
    assert found == {"hall.light.power_w": 1.0, "attic.light.height_m": 0.1}
    assert found.items() < numeric_leaves(HOUSE).items()
