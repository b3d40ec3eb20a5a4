"""Scattering of parts from Touchstone files and models: values read, and refusals with their line."""

import builtins
import importlib
import math

import numpy as np
import pytest

from optical.transfer.models import coupler, crossing, scattering_matrix
from optical.transfer.scattering import read_touchstone, sampled
from simulator.errors import ParameterError
from simulator.units import SPEED_OF_LIGHT_M_PER_S

PORTS = ("in0", "in1", "out0", "out1")
BAND_HZ = np.linspace(193.0e12, 194.0e12, 11)
WAVELENGTHS_UM = SPEED_OF_LIGHT_M_PER_S / BAND_HZ * 1e6


def fields(model=crossing, **settings):
    return scattering_matrix(model(wl=WAVELENGTHS_UM, **settings), PORTS)


def written(path, matrix, frequency_hz=BAND_HZ, comments=(), unit=("GHz", 1e9)):
    """Write a Touchstone file by hand, one row of the matrix a line, and return its path."""
    rows = [*(f"! {comment}" for comment in comments), f"# {unit[0]} S RI R 50"]
    for hertz, one in zip(frequency_hz, matrix, strict=True):
        cells = [" ".join(f"{value.real:.12g} {value.imag:.12g}" for value in row) for row in one]
        if len(one) == 2:  # two ports stand on one line, column by column
            cells = [" ".join(f"{value.real:.12g} {value.imag:.12g}" for value in one.T.ravel())]
        rows += [f"{hertz / unit[1]:.9g} {cells[0]}", *cells[1:]]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_file_gives_the_fields_that_were_written(tmp_path):
    found = read_touchstone(written(tmp_path / "cross.s4p", fields()))
    assert found.frequency_hz == pytest.approx(BAND_HZ)
    assert np.allclose(found.matrix, fields())
    assert found.power("out0", "in0") == pytest.approx(10**-0.002 * np.ones(11))
    assert not found.electrical


def test_columns_are_inputs(tmp_path):
    lossy = np.array([[[0, 0.5], [0.5, 0]]] * 11, dtype=complex)
    lossy[:, 0, 0] = 0.1
    found = read_touchstone(written(tmp_path / "two.s2p", lossy))
    assert found.field("in0", "in0") == pytest.approx(0.1 * np.ones(11))
    assert found.field("out0", "in0") == pytest.approx(0.5 * np.ones(11))


def test_a_comment_names_the_ports(tmp_path):
    order = [0, 2, 1, 3]
    turned = fields()[:, order][:, :, order]
    plain = read_touchstone(written(tmp_path / "a.s4p", turned))
    named = read_touchstone(written(tmp_path / "b.s4p", turned, comments=["ports in0 out0 in1 out1"]))
    assert plain.power("out0", "in0")[0] == pytest.approx(1e-4)
    assert named.power("out0", "in0")[0] == pytest.approx(10**-0.002)


def test_a_model_gives_what_its_file_gives(tmp_path):
    found = sampled(crossing, "crossing", BAND_HZ)
    read = read_touchstone(written(tmp_path / "cross.s4p", fields()))
    for out in PORTS:
        assert found.power(out, "in0") == pytest.approx(read.power(out, "in0"))


def test_half_power_is_found_between_points():
    class Narrow:
        def __call__(self, *, wl):
            offset = SPEED_OF_LIGHT_M_PER_S / (wl * 1e-6) - 193.5e12
            field = 1 / (1 + 1j * offset / 20e9)
            return {("in0", "out0"): field, ("out0", "in0"): field}

    band = np.linspace(193.0e12, 194.0e12, 4001)
    found = sampled(Narrow(), "narrow", band)
    assert found.half_power_hz(found.power("out0", "in0"), 193.5e12) == pytest.approx(20e9, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: 1.1 * s, r"cross\.s4p:2: amplifies some input by 0\.8. dB .* passive part cannot"),
        (np.triu, r"cross\.s4p:2: the way from .* is unlike the way back"),
        (lambda s: np.where(s == s[0, 0, 2], np.nan, s), r"cross\.s4p:2: a field is no finite number"),
    ],
)
def test_what_no_passive_part_does_is_refused_with_its_line(tmp_path, change, words):
    with pytest.raises(ParameterError, match=words):
        read_touchstone(written(tmp_path / "cross.s4p", change(fields())))


def test_the_line_is_that_of_the_point(tmp_path):
    matrix = fields()
    matrix[7] *= 1.2
    with pytest.raises(ParameterError, match=r"cross\.s4p:30: amplifies"):
        read_touchstone(written(tmp_path / "cross.s4p", matrix))


def test_one_percent_above_one_is_forgiven(tmp_path):
    matrix = 1.005 * fields(loss_db=0.01, crosstalk_db=60.0)
    assert read_touchstone(written(tmp_path / "cross.s4p", matrix)).frequency_hz.size == 11


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# GHz S RI R 50\n193000 0 0 1 0 1 zero 0 0\n", r"x\.s2p:2: 'zero' is no number"),
        ("# GHz S RI R 50\n193000 0 0 1 0 1 0 0 0\n194000 0 0 1\n", r"x\.s2p:3: 2 ports take 9 numbers"),
        ("! ports in0 out1\n# GHz S RI R 50\n", r"x\.s2p:1: ports are in0 out1; name each of in0 out0"),
        ("! length 5 kg\n# GHz S RI R 50\n", r"x\.s2p:1: .*kg.*write ! length 5 mm"),
        (
            "# GHz S RI R 50\n194 0 0 1 0 1 0 0 0\n193 0 0 1 0 1 0 0 0\n",
            r"x\.s2p.*(does not rise|cannot read)",
        ),
    ],
)
def test_what_is_no_touchstone_file_is_refused(tmp_path, text, words):
    (tmp_path / "x.s2p").write_text(text)
    with pytest.raises(ParameterError, match=words):
        read_touchstone(tmp_path / "x.s2p")


def test_five_ports_are_refused(tmp_path):
    (tmp_path / "x.s5p").write_text("# GHz S RI R 50\n")
    with pytest.raises(ParameterError, match="2, 3 or 4 ports are taken, not with 5"):
        read_touchstone(tmp_path / "x.s5p")


def test_without_scikit_rf_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    path = written(tmp_path / "cross.s4p", fields())
    real = importlib.import_module

    def missing(name, *rest):
        if name == "skrf":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ParameterError, match=r"pip install 'heliograph\[touchstone\]'"):
        read_touchstone(path)


def failing(*, wl):
    raise builtins.ValueError("no")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (failing, r"part: ValueError: no; it is called with wl, an array in micrometres"),
        (lambda wl: 3.0, r"part: returns float; a model returns"),
        (lambda wl: {("in0", "out0"): np.ones(3)}, r"has the shape \(3,\) and no number for each of 11"),
        (lambda wl: {("in0", "out0"): 1.0}, r"part at 1\.93e\+14 Hz: the way from .* give both"),
        (lambda wl: {("in0", "out0"): 2.0, ("out0", "in0"): 2.0}, r"amplifies some input by 6\.02 dB"),
    ],
)
def test_what_is_no_model_is_refused(model, words):
    with pytest.raises(ParameterError, match=words):
        sampled(model, "part", BAND_HZ)


def test_a_length_is_the_default_of_the_setting():
    def guide(*, wl, length=250.0):
        return {("in0", "out0"): 0.9, ("out0", "in0"): 0.9}

    assert sampled(guide, "guide", BAND_HZ).length_m == pytest.approx(250e-6)
    assert sampled(coupler, "coupler", BAND_HZ).length_m is None


def test_a_response_below_a_terahertz_may_amplify(tmp_path):
    response = np.array([[[0, 0], [20.0 / (1 + 1j * x), 0]] for x in np.linspace(0, 2, 11)])
    found = read_touchstone(written(tmp_path / "eo.s2p", response, np.linspace(1e8, 60e9, 11)))
    assert found.electrical
    assert math.isclose(found.power("out0", "in0")[0], 400.0)
