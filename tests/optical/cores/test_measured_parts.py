"""Measured parts in cores: a file gives the numbers that it was made of, and each of them counts."""

import dataclasses
import math

import numpy as np
import pytest

from heliograph.parameters import parameters_of
from heliograph.systems.parts import with_part
from heliograph.systems.system import system
from optical.cores import load_core
from optical.cores.analog import crossing_mixing
from optical.devices import Crossing, MeasuredCrossing, MeasuredRouter
from optical.transfer.models import crossing as crossing_model
from optical.transfer.models import scattering_matrix
from simulator.errors import ParameterError
from simulator.parameter_tree import get_at
from tests.optical.transfer.test_scattering import PORTS, written

MODELS = """
from functools import partial
from optical.transfer import models

crossing = partial(models.crossing, loss_db=0.08, crosstalk_db=30.0)
coupler = partial(models.coupler, coupling=0.4, loss_db=0.5, dispersion=0.0)
branch = partial(models.y_splitter, loss_db=0.25)

def guide(*, wl, length=3000.0):
    return models.waveguide(wl=wl, length=length, loss_db_per_m=150.0)

def ring(*, wl):
    return models.ring_add_drop(wl=wl, radius=5.0, coupling=0.1, drop_coupling=0.1, loss_db_per_m=300.0)

def filtered(*, wl):
    offset = 299792458.0 / (wl * 1e-6) - 193.4144890e12
    field = 0.99 / (1 + 1j * offset / 15e9)
    zero = 1e-3 * field
    ways = {("in0", "out0"): field, ("in1", "out1"): field, ("in0", "out1"): zero, ("in0", "in1"): zero}
    return ways | {(b, a): value for (a, b), value in ways.items()}

def body(*, wl):
    return {("in0", "out0"): 0.7, ("out0", "in0"): 0.7}

number = 3
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "models.py").write_text(MODELS)
    band_hz = np.linspace(192.9e12, 193.9e12, 21)
    wl = 299792458.0 / band_hz * 1e6
    matrix = scattering_matrix(crossing_model(wl=wl, loss_db=0.08, crosstalk_db=30.0), PORTS)
    written(tmp_path / "crossing.s4p", matrix, band_hz)
    hertz = np.linspace(0.1e9, 40e9, 400)
    response = np.zeros((400, 2, 2), dtype=complex)
    response[:, 1, 0] = 3.0 / (1 + 1j * hertz / 9e9)
    written(tmp_path / "drive.s2p", response, hertz)
    return tmp_path


def changed(core, field, file):
    return with_part(load_core(core), field, str(file))


def test_a_crossing_has_loss_and_crosstalk_of_its_file(folder):
    before, after = load_core("crossbar"), changed("crossbar", "crossing", folder / "crossing.s4p")
    assert isinstance(after.crossing, MeasuredCrossing)
    assert after.crossing.insertion_loss_db == pytest.approx(0.08, abs=1e-6)
    assert after.crossing.crosstalk == pytest.approx(1e-3)
    assert after.crossing.area_m2 == before.crossing.area_m2
    assert after.link.loss_db - before.link.loss_db == pytest.approx(11 * (0.08 - 0.043), abs=1e-6)
    assert after.link.mixing - before.link.mixing == pytest.approx(0.5 * (1e-3 - 1e-5) * 11)


@pytest.mark.parametrize(("rows", "columns"), [(12, 12), (4, 16)])
def test_crosstalk_at_crossings_is_what_fields_of_a_whole_array_have(rows, columns):
    """Fields go from crossing to crossing, leak at each, and meet at every node: the mean over nodes."""
    rng, draws, share = np.random.default_rng(7), 600, 1e-4
    a, b = rng.uniform(-1, 1, (rows, draws)), rng.uniform(-1, 1, (columns, draws))
    wrong = np.zeros((rows, columns))
    phase = np.exp(1j * rng.uniform(0, 2 * math.pi, (2, rows, columns, draws)))
    along_row, along_column = a.astype(complex), b.astype(complex)  # as they come to the next node
    for i in range(rows):
        for j in range(columns):
            read = np.real(along_row[i] * np.conj(along_column[j]))
            wrong[i, j] = np.mean((read - a[i] * b[j]) ** 2)
            over, down = along_row[i].copy(), along_column[j].copy()
            along_row[i] = over + math.sqrt(share) * phase[0, i, j] * down
            along_column[j] = down + math.sqrt(share) * phase[1, i, j] * over
    product = np.mean(a**2) * np.mean(b**2)
    crossing = Crossing(name="one", insertion_loss_db=0.0, area_m2=0.0, crosstalk_db=40.0)
    expected = crossing_mixing(crossing, rows, columns)
    assert wrong.mean() / product == pytest.approx(expected, rel=0.1)


def test_file_and_model_agree(folder):
    file = changed("homodyne", "crossing", folder / "crossing.s4p")
    model = changed("homodyne", "crossing", folder / "models.py:crossing")
    assert file.link.loss_db == pytest.approx(model.link.loss_db, abs=1e-6)
    assert file.link.mixing == pytest.approx(model.link.mixing, rel=1e-6)


def test_an_uneven_coupler_loses_signal(folder):
    after = changed("crossbar", "coupler", folder / "models.py:coupler")
    uneven_db = -10 * math.log10(2 * math.sqrt(0.4 * 0.6))
    assert after.coupler.insertion_loss_db == pytest.approx(0.5 + uneven_db, abs=1e-3)


def test_a_splitter_loses_beyond_its_division(folder):
    assert changed(
        "crossbar", "branch", folder / "models.py:branch"
    ).branch.insertion_loss_db == pytest.approx(0.25)


def test_a_waveguide_has_the_loss_of_its_length(folder):
    after = changed("crossbar", "waveguide", folder / "models.py:guide")
    assert after.waveguide.loss_db_per_m == pytest.approx(150.0)


def test_a_ring_is_read_from_its_resonance(folder):
    after = changed("crossbar", "router", folder / "models.py:ring")
    router = after.router
    assert isinstance(router, MeasuredRouter)
    group_hz = 299792458.0 / (2 * math.pi * 5e-6 * 4.2)
    assert router.free_spectral_range_hz == pytest.approx(group_hz, rel=0.02)
    # of two couplers of 0.1 the finesse is pi sqrt(r) / (1 - r), r = 0.9; couplers disperse, hence a tenth
    finesse = math.pi * math.sqrt(0.9) / (1 - 0.9)
    assert router.free_spectral_range_hz / router.linewidth_hz == pytest.approx(finesse, rel=0.1)
    assert router.dropped(0.0) == pytest.approx(1.0, abs=1e-3)
    assert router.dropped(router.linewidth_hz / 2) == pytest.approx(0.5, rel=0.02)
    bank = dataclasses.replace(load_core("ring_bank"), wavelengths=8)
    weights = with_part(bank, "ring", str(folder / "models.py:ring")).ring
    assert weights.finesse == pytest.approx(finesse, rel=0.1)
    assert weights.carrier_hz == pytest.approx(bank.ring.carrier_hz, rel=0.01)


def test_a_drop_beside_the_resonance_is_the_measured_one(folder):
    after = changed("crossbar", "router", folder / "models.py:ring")
    floor = dataclasses.replace(after.router, share=tuple(max(one, 0.3) for one in after.router.share))
    crossings = crossing_mixing(after.crossing, after.rows, after.columns)
    floored = dataclasses.replace(after, router=floor).link.mixing
    assert floored - crossings > 2 * (after.link.mixing - crossings)


def test_a_narrow_part_slows_symbols(folder):
    narrow = changed("homodyne", "crossing", folder / "models.py:filtered")
    assert narrow.crossing.bandwidth_hz == pytest.approx(15e9, rel=0.02)
    wide = dataclasses.replace(narrow, crossing=dataclasses.replace(narrow.crossing, bandwidth_hz=math.inf))
    assert narrow.link.receiver.gain < wide.link.receiver.gain
    assert narrow.link.receiver.interference > wide.link.receiver.interference


def test_body_and_drive_of_a_modulator_come_from_two_files(folder):
    after = changed("crossbar", "modulator", f"{folder}/models.py:body+{folder}/drive.s2p")
    assert after.modulator.insertion_loss_db == pytest.approx(-20 * math.log10(0.7))
    assert after.modulator.bandwidth_hz == pytest.approx(9e9, rel=1e-3)
    assert after.modulator.extinction_ratio_db == load_core("crossbar").modulator.extinction_ratio_db


def test_a_modulator_by_name_takes_a_file_too(folder):
    after = changed("crossbar", "modulator", f"mzm_tfln_2018+{folder}/drive.s2p")
    assert after.modulator.half_wave_v is not None
    assert after.modulator.bandwidth_hz == pytest.approx(9e9, rel=1e-3)


@pytest.mark.parametrize(
    ("field", "file", "words"),
    [
        ("crossing", "models.py:guide", r"guide: has 2 ports, and a crossing has 4: in0, in1, out0, out1"),
        ("coupler", "models.py:branch", r"branch: has 3 ports, and a coupler has 4"),
        ("crossing", "drive.s2p", r"drive\.s2p: ends at 4e\+10 Hz, so it is no light; a crossing"),
        ("modulator", "models.py:number", r"is no function"),
        ("crossing", "models.py:missing", r"has no 'missing'"),
        ("waveguide", "models.py:body", r"does not tell the waveguide's length"),
        ("adder", "models.py:body", r"no scattering matrix says what a core needs of a adder"),
        ("crossing", "nothing.s4p", r"no file '.*nothing.s4p'"),
        ("nonsense", "crossing.s4p", r"no part 'nonsense' for .*; write one of amplifier, laser, branch"),
        ("amplifier", "crossing.s4p", r"nothing stands in 'amplifier' yet"),
        ("crossing", "models.py:coupler", r"leaves by a side arm"),
    ],
)
def test_what_does_not_fit_is_refused(folder, field, file, words):
    with pytest.raises(ParameterError, match=words):
        changed("crossbar", field, folder / file)


def test_lines_beyond_the_file_are_refused(folder):
    away = dataclasses.replace(load_core("crossbar").chip.grid, wavelength_m=1.31e-6)
    core = dataclasses.replace(
        load_core("crossbar"), chip=dataclasses.replace(load_core("crossbar").chip, grid=away)
    )
    with pytest.raises(
        ParameterError, match=r"crossing\.s4p:2: covers 1\.929e\+14 to 1\.939e\+14 Hz, and the light"
    ):
        with_part(core, "crossing", str(folder / "crossing.s4p"))


def test_a_system_and_its_file_take_files(folder):
    (folder / "mine.toml").write_text(
        'base = "photonic_ocs"\ncore = "crossbar"\n[photonic.core]\n'
        'crossing = "crossing.s4p"\nwavelengths = 10\n'
    )
    built = system(str(folder / "mine.toml"))
    by_hand = system("photonic_ocs", core="crossbar").with_(
        {"core.crossing": str(folder / "crossing.s4p"), "core.wavelengths": 10}
    )
    for one in (built, by_hand):
        assert get_at(one, "crossing.insertion_loss_db") == pytest.approx(0.08, abs=1e-6)
        assert get_at(one, "crossing.crosstalk") == pytest.approx(1e-3)


def test_a_fault_names_the_line_of_the_system_file_too(folder):
    (folder / "mine.toml").write_text(
        'base = "photonic_ocs"\ncore = "crossbar"\n\n[photonic.core]\ncrossing = "drive.s2p"\n'
    )
    with pytest.raises(ParameterError, match=r"mine\.toml:5: .*drive\.s2p: ends at"):
        system(str(folder / "mine.toml"))


def test_numbers_of_a_file_say_so(folder):
    found = {one.path: one for one in parameters_of(changed("crossbar", "crossing", folder / "crossing.s4p"))}
    loss = found["crossing.insertion_loss_db"]
    assert (loss.status, loss.source) == ("measured", "crossing.s4p, at the lines of the core")
    assert found["crossing.area_m2"].status == "published"
