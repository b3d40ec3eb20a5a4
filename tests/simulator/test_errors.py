"""Hints of errors about names (near ones, else the likest, each once), and numbers held to their ranges."""

from dataclasses import dataclass, make_dataclass, replace

import pytest

from optical.cores import load_core
from optical.fabrics.switches import load_switch
from simulator.errors import (
    MOST_SHOWN,
    Checked,
    Count,
    Finite,
    ParameterError,
    Positive,
    Share,
    nearest,
    repeated,
)
from simulator.parameter_tree import get_at, numeric_leaves, path_of, shown_paths


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("H100", ("h100", "v100", "a100"), "did you mean 'h100'?"),
        ("Crossbar", ("crossbar", "homodyne"), "did you mean 'crossbar'?"),
        ("zzz", ("b", "a", "a"), "known names: a, b"),
    ],
)
def test_a_name_is_found_whatever_its_case_and_listed_once(name, known, hint):
    assert nearest(name, known) == hint


@pytest.mark.parametrize(("noun", "plural"), [("policy", "policies"), ("basis", "bases"), ("core", "cores")])
def test_nouns_have_their_plural(noun, plural):
    assert nearest("", ["x"], noun=noun).startswith(f"known {plural}: ")


def test_of_many_names_the_likest_are_listed():
    known = [f"z{number:02d}" for number in range(40)] + ["abcdefghijkl"]
    hint = nearest("abc", known)
    assert hint.startswith("known names: abcdefghijkl, ")
    assert hint.count(",") == MOST_SHOWN


def test_known_parameters_are_listed_once_and_the_likest_first():
    with pytest.raises(ParameterError) as caught:
        get_at(load_core("crossbar"), "waltz")
    _, _, listed = str(caught.value).partition("known parameters: ")
    names = listed.removesuffix(", ...").split(", ")
    assert len(set(names)) == len(names) > 3


def test_paths_are_written_shortest_and_found_as_written():
    core = load_core("homodyne+hybrid+block")
    full = list(numeric_leaves(core))
    written = shown_paths(full)
    assert any(path != short for path, short in written.items())
    assert len(set(written.values())) == len(full)
    assert {path_of(core, short) for short in written.values()} == set(full)
    with pytest.raises(ParameterError, match=f"did you mean '{written[path_of(core, 'laser_power_w')]}'"):
        get_at(core, "laser_powr_w")


@pytest.mark.parametrize("path", ["reconfiguration_s", "switch.reconfiguration_s"])
def test_a_derived_number_names_those_that_it_follows_from(path):
    switch = load_switch("palomar-mems")
    tree = switch if "." not in path else dataclass_of(switch=switch)
    with pytest.raises(ParameterError, match=r"it follows from other numbers; set one of .*switch_s"):
        get_at(tree, path)


def dataclass_of(**parts):
    return make_dataclass("Tree", parts)(**parts)


def test_the_first_value_that_stands_again_is_told():
    assert repeated(["a", "b", "b", "a"]) == "b"
    assert repeated(iter([1, 2, 3])) is None
    assert repeated([[1], [1]]) == [1]  # lists have no hash


@dataclass(frozen=True, kw_only=True)
class Kept(Checked):
    name: str = "x"
    loss_db: float = 0.0
    ports: Count = 1
    gain_db: Finite = -3.0
    share: Share = 1.0
    swing_v: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class KeptLonger(Kept):
    rate_hz: Positive = 1.0


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("loss_db", -1.0, "loss_db must be at least 0; got -1"),
        ("loss_db", None, "loss_db must be a number; got None"),
        ("ports", 0, "ports must be at least 1; got 0"),
        ("gain_db", float("nan"), "gain_db must be finite; got nan"),
        ("share", 1.5, "share must be at least 0 and at most 1; got 1.5"),
        ("swing_v", 0.0, "swing_v must be above 0; got 0"),
        ("rate_hz", 0.0, "rate_hz must be above 0; got 0"),
    ],
)
def test_a_number_is_held_to_the_range_of_its_type(field, value, said):
    with pytest.raises(ParameterError, match=f"KeptLonger 'x': {said}"):
        KeptLonger(**{field: value})


def test_numbers_within_their_range_are_taken_and_those_that_may_be_none():
    assert replace(KeptLonger(swing_v=2.0), swing_v=None, gain_db=-200.0).swing_v is None
