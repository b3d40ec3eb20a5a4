"""Scattering models of single parts that a circuit solver such as SAX can call unchanged.

Each is a plain function of keyword arguments with defaults and returns {(port in, port out): field}, both
ways of every path, over the shape of `wl`. Here alone, at this edge, `wl`, `length` and `radius` are
micrometres: solvers hand wavelengths and layout settings over under these names, and drop settings whose
name they do not find. Everything else is SI and carries its unit. Wavelengths are concrete numbers, not
traced ones. Laws that every scattering dictionary must obey stand beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from optical.devices import Crossing, PassiveElement, PhaseShifter, Waveguide, device_table
from optical.transfer.elements import (
    Complex,
    HalfCoupler,
    Real,
    add_drop_ring,
    all_pass_ring,
    amplitude,
    coupler_angle,
    coupler_matrix,
    mzi_matrix,
    propagation,
    require,
    silicon_strip,
    transfer_table,
)
from optical.transfer.mesh import Mesh, MeshErrors
from simulator.errors import ParameterError, nearest
from simulator.units import to_si

Scattering = dict[tuple[str, str], Complex]
"""(port in, port out) -> field transfer over wavelength; a pair that is absent is zero."""


def reciprocal(forward: Mapping[tuple[str, str], Complex]) -> Scattering:
    """Return a scattering dictionary with every path in both directions."""
    return {(a, b): value for (a, b), value in forward.items()} | {
        (b, a): value for (a, b), value in forward.items()
    }


def scattering_of_transfer(transfer: Complex) -> Scattering:
    """Return the reciprocal scattering dictionary of a transfer matrix without reflections.

    Parameters
    ----------
    transfer : numpy.ndarray
        Fields out over fields in, shape (..., outputs, inputs).

    Returns
    -------
    dict
        Ports in0, in1, ... and out0, out1, ...
    """
    outputs, inputs = transfer.shape[-2:]
    forward = {(f"in{j}", f"out{i}"): transfer[..., i, j] for j in range(inputs) for i in range(outputs)}
    return reciprocal(forward)


def ports_of(scattering: Mapping[tuple[str, str], Complex]) -> tuple[str, ...]:
    """Return the ports of a scattering dictionary, sorted."""
    return tuple(sorted({port for pair in scattering for port in pair}))


def scattering_matrix(
    scattering: Mapping[tuple[str, str], Complex], ports: Sequence[str] | None = None
) -> Complex:
    """Return the matrix of a scattering dictionary, shape (..., ports, ports), row = out, column = in.

    Parameters
    ----------
    scattering : mapping
        Pair of ports -> field.
    ports : sequence of str, optional
        Order of the ports; sorted by name if not given.

    Raises
    ------
    ParameterError
        If the dictionary has a port that `ports` lacks.
    """
    order = ports_of(scattering) if ports is None else tuple(ports)
    for port in ports_of(scattering):
        if port not in order:
            msg = f"port '{port}' of the circuit is not listed; {nearest(port, order, noun='port')}"
            raise ParameterError(msg)
    shape = np.broadcast_shapes(*(np.shape(value) for value in scattering.values()))
    matrix = np.zeros((*shape, len(order), len(order)), dtype=complex)
    for (a, b), value in scattering.items():
        matrix[..., order.index(b), order.index(a)] = value
    return matrix


MICROMETRE_M = to_si("wavelength_m", 1.0, "um")
_MODE = silicon_strip()
_REFERENCE_UM = _MODE.wavelength_m / MICROMETRE_M
_GUIDE_DB_PER_M = device_table().build(Waveguide, "si_waveguide").loss_db_per_m
_COUPLER_DB = device_table().build(PassiveElement, "directional_coupler").insertion_loss_db
_SHIFTER_DB = device_table().build(PhaseShifter, "phase_shifter").insertion_loss_db
_BRANCH_DB = device_table().build(PassiveElement, "y_branch").insertion_loss_db
_CROSSING = device_table().build(Crossing, "crossing")
_DISPERSION = transfer_table().build(HalfCoupler, "half_coupler").dispersion


def wavelength_ratio(wl: ArrayLike) -> Real:
    """Return wavelengths in micrometres over the reference wavelength of the platform."""
    require("wl", wl, 0.0)
    return np.asarray(wl, dtype=float) / _REFERENCE_UM


def waveguide(
    *,
    wl: ArrayLike = _REFERENCE_UM,
    length: float = 10.0,
    loss_db_per_m: float = _GUIDE_DB_PER_M,
    rise_k: float = 0.0,
) -> Scattering:
    """Return the scattering of a silicon strip; ports in0, out0.

    Parameters
    ----------
    wl : array_like
        Wavelength, micrometre.
    length : float
        Length, micrometre.
    loss_db_per_m : float
        Propagation loss.
    rise_k : float
        Temperature rise.
    """
    return reciprocal({("in0", "out0"): _guided(wl, length, loss_db_per_m, rise_k)})


def _guided(wl: ArrayLike, length: float, loss_db_per_m: float, rise_k: float) -> Complex:
    """Return the field behind a length of silicon strip, both in micrometres."""
    wavelength = np.asarray(wl, dtype=float) * MICROMETRE_M
    return propagation(_MODE, wavelength, length * MICROMETRE_M, loss_db_per_m=loss_db_per_m, rise_k=rise_k)


def phase_shifter(
    *, wl: ArrayLike = _REFERENCE_UM, phase_rad: float = 0.0, loss_db: float = _SHIFTER_DB
) -> Scattering:
    """Return the scattering of a phase shifter; ports in0, out0.

    Parameters
    ----------
    wl : array_like
        Wavelength, micrometre.
    phase_rad : float
        Phase at the reference wavelength; elsewhere it scales with 1/wavelength, as a fixed change of
        index does.
    loss_db : float
        Insertion loss.
    """
    field = amplitude(loss_db) * np.exp(1j * phase_rad / wavelength_ratio(wl))
    return reciprocal({("in0", "out0"): np.asarray(field)})


def coupler(
    *,
    wl: ArrayLike = _REFERENCE_UM,
    coupling: float = 0.5,
    error_rad: float = 0.0,
    dispersion: float = _DISPERSION,
    loss_db: float = _COUPLER_DB,
) -> Scattering:
    """Return the scattering of a directional coupler; ports in0, in1, out0, out1.

    Parameters
    ----------
    wl : array_like
        Wavelength, micrometre.
    coupling : float
        Power coupled across at the reference wavelength, 0 to 1.
    error_rad : float
        Splitting error, as an angle.
    dispersion : float
        Exponent of the coupling angle over wavelength.
    loss_db : float
        Insertion loss.
    """
    angle = coupler_angle(coupling, wavelength_ratio(wl), error_rad=error_rad, dispersion=dispersion)
    return scattering_of_transfer(amplitude(loss_db) * coupler_matrix(angle))


def mzi(
    *,
    wl: ArrayLike = _REFERENCE_UM,
    theta_rad: float = 0.0,
    phi_rad: float = 0.0,
    first_rad: float = 0.0,
    second_rad: float = 0.0,
    dispersion: float = _DISPERSION,
    loss_db: float = 2.0 * _COUPLER_DB + _SHIFTER_DB,
) -> Scattering:
    """Return the scattering of an interferometer; ports in0, in1, out0, out1.

    Parameters
    ----------
    wl : array_like
        Wavelength, micrometre.
    theta_rad, phi_rad : float
        Phases between the couplers and at the upper input, at the reference wavelength.
    first_rad, second_rad : float
        Errors of the couplers' angles.
    dispersion : float
        Exponent of the coupling angles over wavelength.
    loss_db : float
        Loss of the whole, the same on both paths; by default two couplers and a shifter.
    """
    ratio = wavelength_ratio(wl)
    first = coupler_angle(0.5, ratio, error_rad=first_rad, dispersion=dispersion) - math.pi / 4.0
    second = coupler_angle(0.5, ratio, error_rad=second_rad, dispersion=dispersion) - math.pi / 4.0
    return scattering_of_transfer(
        amplitude(loss_db) * mzi_matrix(theta_rad / ratio, phi_rad / ratio, first, second)
    )


def ring_all_pass(
    *,
    wl: ArrayLike = _REFERENCE_UM,
    radius: float = 10.0,
    coupling: float = 0.03,
    loss_db_per_m: float = _GUIDE_DB_PER_M,
    rise_k: float = 0.0,
    dispersion: float = _DISPERSION,
) -> Scattering:
    """Return the scattering of a ring on one bus; ports in0, out0.

    Parameters
    ----------
    wl : array_like
        Wavelength, micrometre.
    radius : float
        Radius, micrometre.
    coupling : float
        Power coupled into the ring, 0 to 1.
    loss_db_per_m : float
        Propagation loss in the ring.
    rise_k : float
        Temperature rise of the ring, which tunes it.
    dispersion : float
        Exponent of the coupling angle over wavelength.
    """
    angle = coupler_angle(coupling, wavelength_ratio(wl), dispersion=dispersion)
    turn = _guided(wl, 2.0 * math.pi * radius, loss_db_per_m, rise_k)
    return reciprocal({("in0", "out0"): all_pass_ring(turn, angle)})


def ring_add_drop(
    *,
    wl: ArrayLike = _REFERENCE_UM,
    radius: float = 10.0,
    coupling: float = 0.03,
    drop_coupling: float = 0.03,
    loss_db_per_m: float = _GUIDE_DB_PER_M,
    rise_k: float = 0.0,
    dispersion: float = _DISPERSION,
) -> Scattering:
    """Return the scattering of a ring between two buses; in0 input, out0 through, in1 add, out1 drop.

    Parameters
    ----------
    wl : array_like
        Wavelength, micrometre.
    radius : float
        Radius, micrometre.
    coupling, drop_coupling : float
        Power coupled between ring and first, second bus, 0 to 1.
    loss_db_per_m : float
        Propagation loss in the ring.
    rise_k : float
        Temperature rise of the ring, which tunes it.
    dispersion : float
        Exponent of the coupling angles over wavelength.
    """
    ratio = wavelength_ratio(wl)
    first = coupler_angle(coupling, ratio, dispersion=dispersion)
    second = coupler_angle(drop_coupling, ratio, dispersion=dispersion)
    half_turn = _guided(wl, 2.0 * math.pi * radius * 0.5, loss_db_per_m, rise_k)
    return scattering_of_transfer(add_drop_ring(half_turn, first, second))


def crossing(
    *,
    wl: ArrayLike = _REFERENCE_UM,
    loss_db: float = _CROSSING.insertion_loss_db,
    crosstalk_db: float = _CROSSING.crosstalk_db,
) -> Scattering:
    """Return the scattering of a waveguide crossing; in0 to out0 and in1 to out1 are the straight ways.

    Parameters
    ----------
    wl : array_like
        Wavelength, micrometre; only its shape matters.
    loss_db : float
        Insertion loss of the straight way.
    crosstalk_db : float
        Power into each side arm below the input, positive.

    Raises
    ------
    ParameterError
        If loss and crosstalk together would amplify some input.

    Notes
    -----
    The leak stands in quadrature to the straight way, t + 2 i x for the even input, so it is passive as
    long as t^2 + 4 x^2 <= 1.
    """
    straight, side = float(amplitude(loss_db)), float(amplitude(crosstalk_db))
    if straight**2 + 4.0 * side**2 > 1.0:
        msg = f"crossing: {crosstalk_db:g} dB of crosstalk and {loss_db:g} dB of loss would amplify; "
        msg += "raise loss_db or crosstalk_db until 10^(-loss/10) + 4 x 10^(-crosstalk/10) <= 1"
        raise ParameterError(msg)
    ones = np.ones(np.shape(wl), dtype=complex)
    through: Complex = np.asarray(straight * ones, dtype=complex)
    ways: Scattering = {("in0", "out0"): through, ("in1", "out1"): through}
    sides = (("in0", "in1"), ("in0", "out1"), ("in1", "out0"), ("out0", "out1"))
    return reciprocal(ways | {pair: 1j * side * ones for pair in sides})


def y_splitter(*, wl: ArrayLike = _REFERENCE_UM, loss_db: float = _BRANCH_DB) -> Scattering:
    """Return the scattering of a symmetric Y junction; ports in0, out0, out1.

    Parameters
    ----------
    wl : array_like
        Wavelength, micrometre; only its shape matters.
    loss_db : float
        Loss beyond the even division of power.

    Notes
    -----
    Backwards, each arm reaches the stem with half of its power: the odd part of two fields is radiated.
    """
    arm = np.asarray(amplitude(loss_db) * math.sqrt(0.5) * np.ones(np.shape(wl)), dtype=complex)
    return reciprocal({("in0", "out0"): arm, ("in0", "out1"): arm})


class MeshModel(Protocol):
    """Scattering of a programmed mesh over wavelength."""

    def __call__(self, *, wl: ArrayLike = ..., loss_db: float = ..., dispersion: float = ...) -> Scattering:
        """Return the scattering; `loss_db` is that of one interferometer."""
        ...


def mesh_model(mesh: Mesh, errors: MeshErrors | None = None) -> MeshModel:
    """Return the scattering model of a programmed mesh; ports in0, in1, ... and out0, out1, ..."""

    def model(
        *,
        wl: ArrayLike = _REFERENCE_UM,
        loss_db: float = 2.0 * _COUPLER_DB + _SHIFTER_DB,
        dispersion: float = _DISPERSION,
    ) -> Scattering:
        ratio = wavelength_ratio(wl)
        transfer = mesh.matrix(errors, loss_db=loss_db, wavelength_ratio=ratio, dispersion=dispersion)
        return scattering_of_transfer(transfer)

    return model
