"""`heliograph core check`: whoever writes a core learns every fault of it at once."""

import json
from pathlib import Path

import pytest

from experiments.cli import BAD_INPUT
from experiments.cores import checks
from heliograph.core_laws import LAWS, LAWS_OF_NUMBERS, Fault
from tests.builders import call

CORES = Path(__file__).parents[2] / "conformance"


@pytest.mark.slow
def test_a_core_of_a_file_is_checked_with_what_it_does_not_need(capsys):
    core = f"{CORES / 'free_space.py'}:FreeSpace"
    unused = [
        word for part in ("waveguide", "feed", "branch", "facet") for word in ("--unused", f"core.{part}")
    ]
    code, out, err = call(capsys, "core", "check", core, *unused, "--json")
    found = json.loads(out)
    (fault,) = found["faults"]
    assert fault["law"] == "every_number_moves_some_answer"
    assert fault["fault"].startswith("core.feed_m: ")
    assert (code, len(found["laws"])) == (BAD_INPUT, len(LAWS) + len(LAWS_OF_NUMBERS))
    assert err.endswith(f"core '{core}' breaks 1 of {len(found['laws'])} laws\n")
    code, out, _ = call(capsys, "core", "check", core, *unused, "--unused", "core.feed_m")
    assert (code, out) == (0, f"Core '{core}' keeps all {len(found['laws'])} laws.\n")


def test_all_faults_are_told_and_the_command_ends_as_failed(capsys, monkeypatch):
    faults = [
        Fault(law="a_law", text="first"),
        Fault(law="a_law", text="second"),
        Fault(law="third", text="x"),
    ]
    asked = {law: [one for one in faults if one.law == law].copy for law in ("a_law", "kept", "third")}
    monkeypatch.setattr(checks, "laws_asked", lambda core, unused: asked)
    code, out, err = call(capsys, "core", "check", "crossbar")
    assert (code, out) == (BAD_INPUT, "- a law: first\n- a law: second\n- third: x\n")
    assert err.endswith("heliograph: core 'crossbar' breaks 2 of 3 laws\n")
    _, out, _ = call(capsys, "core", "check", "crossbar", "--csv")
    assert len(out.splitlines()) == 5


def test_a_number_that_no_core_has_is_refused(capsys):
    code, out, err = call(capsys, "core", "check", "crossbar", "--unused", "core.brunch")
    assert (code, out) == (BAD_INPUT, "")
    assert "core.brunch" in err
