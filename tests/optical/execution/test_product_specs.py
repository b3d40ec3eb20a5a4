import dataclasses
import json
import math

import pytest

from optical.cores import CORES, load_core
from optical.execution import AnalogSpec, Mode, ProductSpecs, Rounding, Scale
from simulator.errors import ParameterError
from simulator.operators import Phase


@pytest.mark.parametrize("name", CORES)
def test_the_specifications_of_every_core_survive_json(name):
    specs = ProductSpecs.of(load_core(name).analog, row_block=64)
    assert ProductSpecs.from_json(specs.to_json()) == specs


def test_infinite_bits_are_strict_json():
    text = ProductSpecs.ideal().to_json()
    assert math.isinf(ProductSpecs.from_json(text).forward.dac_bits)
    json.loads(text, parse_constant=pytest.fail)


def test_each_phase_has_its_own():
    spec = AnalogSpec.ideal()
    by_phase = {phase: dataclasses.replace(spec, analog_length=n) for n, phase in enumerate(Phase, start=1)}
    specs = ProductSpecs.of(by_phase.__getitem__)
    for phase in (Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT):
        assert getattr(specs, phase.value) == by_phase[phase]


@pytest.mark.parametrize(
    ("mode", "training", "noisy"),
    [
        (Mode.INFERENCE, True, ()),
        (Mode.INFERENCE, False, ("forward",)),
        (Mode.AWARE, True, ("forward",)),
        (Mode.AWARE, False, ("forward",)),
        (Mode.HARDWARE, True, ("forward", "grad_input", "grad_weight")),
    ],
)
def test_a_mode_says_where_errors_enter(mode, training, noisy):
    acting = ProductSpecs.of(load_core("crossbar").analog).within(mode, training=training)
    names = ("forward", "grad_input", "grad_weight")
    assert tuple(name for name in names if getattr(acting, name) != AnalogSpec.ideal()) == noisy


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda plain: plain["forward"].pop("dac_bits"), r"ProductSpecs\.forward lacks 'dac_bits'"),
        (lambda plain: plain.update(backward=1), "has no field 'backward'"),
        (lambda plain: plain["forward"].update(scale="tile"), r"forward\.scale cannot be 'tile'"),
        (lambda plain: plain.update(row_block=1.5), "row_block cannot be 1.5"),
        (lambda plain: plain.update(row_block=0), "row_block"),
        (lambda plain: plain.update(forward=3), "forward must hold"),
        (lambda plain: plain.update(exact_tiles="inf"), "exact_tiles cannot be 'inf'; it takes a bool"),
        (lambda plain: plain["forward"].update(dac_bits=True), "dac_bits cannot be True; it takes a float"),
        (lambda plain: plain["forward"].update(dac_bits="8"), "dac_bits cannot be '8'; it takes a float"),
        (lambda plain: plain["forward"].update(rin_variance="inf"), "rin_variance must be finite; got inf"),
    ],
)
def test_a_wrong_record_is_refused_by_its_field(change, says):
    plain = json.loads(ProductSpecs.ideal().to_json())
    change(plain)
    with pytest.raises(ParameterError, match=says):
        ProductSpecs.from_json(json.dumps(plain))


def test_what_is_no_json_is_refused():
    with pytest.raises(ParameterError, match="line 1, column 2"):
        ProductSpecs.from_json("{")


def test_choices_stay_choices():
    spec = dataclasses.replace(AnalogSpec.ideal(), scale=Scale.TENSOR, rounding=Rounding.STOCHASTIC)
    again = ProductSpecs.from_json(ProductSpecs.same(spec).to_json()).forward
    assert (again.scale, again.rounding) == (Scale.TENSOR, Rounding.STOCHASTIC)
    assert isinstance(again.scale, Scale)


def test_a_choice_by_its_text_is_refused():
    """Comparisons by identity would take it for none of the members."""
    with pytest.raises(ParameterError, match=r"AnalogSpec: scale must be a Scale"):
        dataclasses.replace(AnalogSpec.ideal(), scale="block")
