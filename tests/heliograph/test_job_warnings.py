"""Warnings about a result, from worker processes too, as one line of a command."""

import pickle
import warnings

import pytest

from experiments import names
from experiments.__main__ import main
from heliograph.processes import run_all
from simulator.errors import ClippingWarning, SuspectWarning


def dubious(share):
    warnings.warn(ClippingWarning(f"{share:.0%} is clipping", share), stacklevel=1)
    return share


@pytest.mark.slow
def test_a_worker_s_warnings_reach_who_asked():
    found = {}
    with pytest.warns(ClippingWarning) as caught:
        run_all((0.2, 0.3), dubious, found.__setitem__, lambda: (max(found) + 0.1,))
    assert found == {0.2: 0.2, 0.3: 0.3, 0.4: 0.4}
    assert sorted(one.message.share for one in caught) == [0.2, 0.3, 0.4]


def test_a_warning_survives_a_pipe():
    again = pickle.loads(pickle.dumps(ClippingWarning("clips", 0.25)))
    assert (str(again), again.share) == ("clips", 0.25)


def test_a_command_prints_the_worst_of_what_clips_and_each_other_warning_once(monkeypatch, capsys):
    def listing(what):
        for share in (0.1, 0.4, 0.2):
            dubious(share)
        for _ in range(2):
            warnings.warn("too good", SuspectWarning, stacklevel=1)
        return {"one": "of them"}

    monkeypatch.setattr(names, "listing", listing)
    assert main(["list", "systems"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "heliograph: warning: too good",
        "heliograph: warning: 40% is clipping (the worst of several)",
    ]
