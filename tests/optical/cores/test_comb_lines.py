"""Lines of a comb as the source of a core: the weakest counts, and lines that do not fit are refused."""

from pathlib import Path

import numpy as np
import pytest

from electronic.gpu import load_gpu
from heliograph.systems.parts import with_part
from heliograph.systems.sanity_checks import light_limits
from heliograph.systems.system import system
from optical.accelerator import PhotonicUnit
from optical.cores import load_core
from optical.cores.measured_parts import read_comb
from simulator.errors import ParameterError
from simulator.parameter_tree import replace_at

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "comb.csv"


def table(path, powers_mw=(1.0,) * 12, *, spacing_ghz=50.0, header="frequency_thz,power_mw", more=""):
    rows = [f"{193.4 + 1e-3 * spacing_ghz * at:.6f},{power}{more}" for at, power in enumerate(powers_mw)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def lit(core, path):
    return with_part(core if not isinstance(core, str) else load_core(core), "comb", str(path))


def test_an_even_comb_changes_power_and_grid_alone(tmp_path):
    before = load_core("crossbar")
    after = lit(before, table(tmp_path / "even.csv", spacing_ghz=60.0))
    assert after.laser_power_w == pytest.approx(1e-3)
    assert after.comb.conversion_efficiency == pytest.approx(before.comb.conversion_efficiency)
    assert after.line_spacing_hz == pytest.approx(60e9)
    assert np.mean(after.lines_hz) == pytest.approx(193.4e12 + 5.5 * 60e9)
    assert after.laser == before.laser


def test_the_weakest_line_counts_and_the_rest_is_lost(tmp_path):
    powers = [0.1, *[2.0] * 11, 1.0, 0.1]
    after = lit("crossbar", table(tmp_path / "uneven.csv", powers))
    before = load_core("crossbar")
    assert after.laser_power_w == pytest.approx(1e-3)
    share = 12 * 1.0 / sum(powers)
    assert after.comb.conversion_efficiency == pytest.approx(before.comb.conversion_efficiency * share)
    power_w = read_comb(tmp_path / "uneven.csv").power_w
    assert power_w.max() / power_w.min() == pytest.approx(20)


def test_wavelengths_and_dbm_are_the_same_lines(tmp_path):
    hertz = 193.4e12 + 50e9 * np.arange(12)
    rows = [f"{299792458.0 / one * 1e9:.9f},3.0" for one in hertz]
    (tmp_path / "nm.csv").write_text("\n".join(["wavelength_nm,power_dbm", *rows]) + "\n")
    found = read_comb(tmp_path / "nm.csv")
    assert found.frequency_hz == pytest.approx(hertz, rel=1e-9)
    assert found.power_w == pytest.approx(10**0.3 * 1e-3)


def test_noise_of_the_noisiest_line_reaches_the_budget(tmp_path):
    header = "frequency_thz,power_mw,rin_db_per_hz"
    quiet = lit("crossbar", table(tmp_path / "a.csv", [40.0] * 12, header=header, more=",-150"))
    loud = lit("crossbar", table(tmp_path / "b.csv", [40.0] * 12, header=header, more=",-125"))
    assert loud.link.receiver.rin_ratio == pytest.approx(quiet.link.receiver.rin_ratio * 10**2.5)


def test_lines_of_a_phase_change_crossbar_and_of_a_ring_bank(tmp_path):
    after = lit("pcm_crossbar", table(tmp_path / "many.csv", [3.0] * 64, spacing_ghz=40.0))
    assert after.line_spacing_hz == pytest.approx(40e9)
    bank = load_core("ring_bank")
    fits = table(tmp_path / "bank.csv", [3.0] * bank.wavelengths, spacing_ghz=bank.line_spacing_hz / 1e9)
    assert lit(bank, fits).laser_power_w == pytest.approx(3e-3)
    with pytest.raises(
        ParameterError, match=r"spreads 16 lines .* over the free spectral range of its rings"
    ):
        lit(bank, table(tmp_path / "wrong.csv", [3.0] * bank.wavelengths, spacing_ghz=30.0))


def test_a_system_lit_by_a_table_is_not_sized():
    built = system("photonic_ocs:crossbar", {"core.comb": str(EXAMPLE)}, accelerators=8)
    assert built.laser_power_w == pytest.approx(8.63e-3, rel=1e-3)
    assert built.lighting is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("frequency_thz,colour\n193,1\n", r"x\.csv:1: column 'colour' is unknown"),
        ("frequency_thz\n193\n", r"x\.csv:1: give one column power_mw or power_dbm; there are 0"),
        ("frequency_thz,wavelength_nm,power_mw\n", r"x\.csv:1: give one column frequency_thz .* there are 2"),
        ("frequency_thz,power_mw\n193,1\n193.1,dim\n", r"x\.csv:3: power_mw is 'dim'; write a finite number"),
        ("frequency_thz,power_mw\n193,-1\n", r"x\.csv:2: power_mw is '-1'; .* above zero"),
        ("frequency_thz,power_mw\n193,1,2\n", r"x\.csv:2: has 3 cells, and the header 2"),
        ("frequency_thz,power_mw\n", r"x\.csv: has a header and no line"),
        ("frequency_thz,power_mw\n193,1\n", r"x\.csv: has 1 lines, and 12 are needed"),
    ],
)
def test_what_is_no_comb_is_refused(tmp_path, text, words):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ParameterError, match=words):
        lit("crossbar", tmp_path / "x.csv")


def test_a_missing_line_is_told(tmp_path):
    rows = [f"{193.4 + 0.05 * at:.4f},1" for at in range(13) if at != 6]
    (tmp_path / "gap.csv").write_text("\n".join(["frequency_thz,power_mw", *rows]) + "\n")
    with pytest.raises(ParameterError, match=r"a gap of 1e\+11 Hz stands among gaps of 5\.45"):
        lit("crossbar", tmp_path / "gap.csv")


def test_lines_beyond_the_rings_resonances_are_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"and the resonances of .* repeat every"):
        lit("crossbar", table(tmp_path / "wide.csv", spacing_ghz=450.0))


def test_wide_lines_are_refused(tmp_path):
    header = "frequency_thz,power_mw,linewidth_khz"
    with pytest.raises(ParameterError, match=r"lines of 5e\+07 Hz turn by 0\.25 rad within a symbol"):
        lit("crossbar", table(tmp_path / "wide.csv", header=header, more=",50000"))


def test_a_table_is_given_to_a_comb():
    with pytest.raises(ParameterError, match=r"is a table of a comb's lines; give it to the comb"):
        with_part(load_core("crossbar"), "crossing", str(EXAMPLE))


@pytest.mark.parametrize(
    ("comb", "line_mw"), [("comb_qd_mll_2024", 3.03), ("comb_dfb_array_2025", 25.0), ("comb_dark_pulse", 1.0)]
)
def test_a_comb_by_name_tells_when_more_is_asked_of_a_line(comb, line_mw):
    """Buyalo 2024: 270 mW in 89 lines; Nie 2025: above 25 mW from each of eight lasers."""
    said = []
    for power_mw in (0.9 * line_mw, 1.1 * line_mw):
        core = replace_at(with_part(load_core("crossbar"), "comb", comb), "laser_power_w", power_mw / 1e3)
        unit = PhotonicUnit(core=core, cores=core.cluster, memory=load_gpu("h100").memory, sram_bytes=1e6)
        said.append(any("are asked of a line" in str(one) for one in light_limits(unit)))
    assert said == [False, True]
