"""Files of the tutorial: made by their script, and read as the parts that they were made of."""

import runpy
from pathlib import Path

import pytest

from heliograph.systems.parts import with_part
from optical.cores import load_core

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def test_the_script_makes_the_files():
    script = runpy.run_path(str(EXAMPLES / "make_examples.py"))
    assert (EXAMPLES / "crossing.s4p").read_text() == script["crossing_text"]()
    assert (EXAMPLES / "comb.csv").read_text() == script["comb_text"]()
    assert (EXAMPLES / "drive.s2p").read_text() == script["drive_text"]()


def test_the_crossing_limits_a_large_array():
    before = load_core("homodyne")
    after = with_part(before, "crossing", str(EXAMPLES / "crossing.s4p"))
    assert after.crossing.insertion_loss_db == pytest.approx(0.06, abs=0.02)
    assert after.crossing.crosstalk == pytest.approx(10**-3.2, rel=0.1)
    assert after.link.mixing == pytest.approx(15.5 * after.crossing.crosstalk)


@pytest.mark.parametrize(
    ("field", "file", "number", "value"),
    [
        ("modulator", "drive.s2p", "bandwidth_hz", 13e9),
        ("laser", "models.py:grating", "coupling_loss_db", 3.1),
        ("coupler", "models.py:multimode_coupler", "insertion_loss_db", 0.15),
    ],
)
def test_examples_are_read(field, file, number, value):
    part = getattr(with_part(load_core("homodyne"), field, str(EXAMPLES / file)), field)
    assert getattr(part, number) == pytest.approx(value, rel=0.05)
