"""Example files of `docs/import.md`, made from the models of `optical.transfer` and a little noise.

Run ``python make_examples.py`` in this folder to make them anew; a test holds the files to it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from optical.transfer.models import crossing, scattering_matrix
from simulator.units import SPEED_OF_LIGHT_M_PER_S, to_si

TERAHERTZ = to_si("x_hz", 1.0, "THz")
GIGAHERTZ = to_si("x_hz", 1.0, "GHz")
SEED = 16
"""Key of all noise in the files."""
PORTS = ("in0", "in1", "out0", "out1")


def crossing_text() -> str:
    """Return a crossing of two waveguides over the C band, measured with noise of -56 dB in each field.

    Notes
    -----
    Its tapers are made for 1,550 nm: the loss grows with the square of the distance from it.
    """
    draws = np.random.default_rng(SEED)
    hertz = np.linspace(191.4, 195.4, 41) * TERAHERTZ
    rows = ["! waveguide crossing, C band; fields at the planes of its tapers", "! ports in0 in1 out0 out1"]
    rows.append("# GHz S RI R 50")
    for one in hertz:
        wavelength_um = SPEED_OF_LIGHT_M_PER_S / one * 1e6
        loss_db = 0.06 + 200.0 * (wavelength_um / 1.55 - 1.0) ** 2
        matrix = scattering_matrix(crossing(wl=wavelength_um, loss_db=loss_db, crosstalk_db=32.0), PORTS)
        matrix = matrix + _noise(draws, 4)
        rows += _rows(one / GIGAHERTZ, matrix)
    return "\n".join(rows) + "\n"


def _noise(draws: np.random.Generator, ports: int) -> NDArray[np.complex128]:
    """Return reciprocal noise of a network analyser."""
    raw = draws.normal(size=(2, ports, ports)) * 1e-3
    noise = raw[0] + 1j * raw[1]
    return np.asarray((noise + noise.T) / 2.0)


def _rows(frequency: float, matrix: NDArray[np.complex128]) -> list[str]:
    """Return one frequency of a Touchstone file; of two ports, columns stand one after the other."""
    lines = [matrix.T.ravel()] if len(matrix) == 2 else list(matrix)
    cells = [" ".join(f"{field.real:.5f} {field.imag:.5f}" for field in line) for line in lines]
    return [f"{frequency:.3f} {cells[0]}", *cells[1:]]


def drive_text() -> str:
    """Return the response of a modulator to its voltage: two poles, of its electrodes and of its driver."""
    rows = ["! modulator with its driver, response of the light to the voltage", "# GHz S RI R 50"]
    for gigahertz in np.linspace(0.1, 40.0, 134):
        response = 0.8 / ((1 + 1j * gigahertz / 14.0) * (1 + 1j * gigahertz / 45.0))
        rows += _rows(gigahertz, np.array([[0.1, 0.0], [response, 0.2]], dtype=complex))
    return "\n".join(rows) + "\n"


def comb_text() -> str:
    """Return 21 lines of an electro-optic comb, 100 GHz apart, flat in their middle."""
    draws = np.random.default_rng(SEED)
    rows = ["frequency_thz,power_dbm,linewidth_khz,rin_db_per_hz"]
    for place in range(-10, 11):
        level = 14.0 - 0.004 * place**4 + 0.3 * draws.normal()
        rows.append(f"{193.4 + 0.1 * place:.4f},{level:.2f},40,{-148.0 - 0.2 * abs(level - 14.0):.1f}")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write the files into this folder."""
    folder = Path(__file__).parent
    (folder / "crossing.s4p").write_text(crossing_text())
    (folder / "drive.s2p").write_text(drive_text())
    (folder / "comb.csv").write_text(comb_text())


if __name__ == "__main__":
    main()
