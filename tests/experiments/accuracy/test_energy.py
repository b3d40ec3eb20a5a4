"""`heliograph accuracy energy`: dim light takes more tokens, bright light more joules."""

import itertools
import math

import pytest

from experiments.accuracy import front as energy
from experiments.accuracy.front import EnergyToLoss, ToEqualLoss
from experiments.study import Progress
from heliograph.accuracy.law import Form
from simulator.errors import ParameterError


@pytest.fixture(scope="module")
def found():
    """Return the default core at four powers for a model of 8 billion parameters: two seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy, "LIGHT_FACTORS", (2**-7.0, 0.25, 1.0, 1e3))
        study = ToEqualLoss(system=("photonic_packet",), workload="llama-3-8b", accelerators=16)
        yield study.run(Progress())


@pytest.mark.slow
def test_dimmer_light_saves_on_a_token_and_takes_more_of_them(found):
    assert len(found.points) == 3
    for dim, bright in itertools.pairwise(found.points):
        assert dim.energy_j < bright.energy_j
        assert dim.snr_db < bright.snr_db
        for place, band in dim.tokens.items():
            assert band.low <= band.middle <= band.high
            assert band.middle >= bright.tokens[place].middle
    assert "overflow" in found.missing[0]  # of a thousand times the light


@pytest.mark.slow
def test_the_least_is_between_dark_and_bright(found):
    for parameters in found.sizes.values():
        best = found.least("photonic_packet", parameters, Form.EFFECTIVE)
        assert best is not None
        least = best.to_loss(parameters, Form.EFFECTIVE).middle
        assert all(least <= one.to_loss(parameters, Form.EFFECTIVE).middle for one in found.points)
        assert best is not found.points[0]


@pytest.mark.slow
def test_what_the_forms_disagree_on_gets_no_verdict(found):
    text = found.report()[1].rows[0]
    ends = [one.between(found.sizes["llama-3-8b"]) for one in found.points]
    assert min(high for _, high in ends) == math.inf  # by the additive term no number of tokens does
    assert text.note == "not resolved"
    assert isinstance(found, EnergyToLoss)
    assert len(found.rows()) == 3 * 2 * len(Form)
    assert len(found.figure().axes) == 2


def test_a_system_without_light_is_refused():
    with pytest.raises(ParameterError, match="no laser to turn"):
        ToEqualLoss(system=("gpu_packet",), workload="llama-3-8b", accelerators=16).run(Progress())
