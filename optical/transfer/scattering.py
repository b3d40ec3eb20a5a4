"""Scattering dictionaries, as circuit solvers take them, and the laws that any of them must obey."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from optical.transfer.elements import Complex
from simulator.errors import ParameterError, nearest

Scattering = dict[tuple[str, str], Complex]
"""(port in, port out) -> field transfer over wavelength; a pair that is absent is zero."""


def reciprocal(forward: Mapping[tuple[str, str], Complex]) -> Scattering:
    """Return a scattering dictionary with every way also taken backwards."""
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


def transfer_of_scattering(scattering: Mapping[tuple[str, str], Complex]) -> Complex:
    """Return the transfer matrix from in0, in1, ... to out0, out1, ..., shape (..., outputs, inputs)."""
    ports = ports_of(scattering)
    entries = sorted((port for port in ports if port.startswith("in")), key=lambda port: int(port[2:]))
    exits = sorted((port for port in ports if port.startswith("out")), key=lambda port: int(port[3:]))
    full = scattering_matrix(scattering, (*entries, *exits))
    return full[..., len(entries) :, : len(entries)]


def largest_gain(matrix: Complex) -> float:
    """Return the greatest field gain of any input, the largest singular value; at most 1 if passive."""
    return float(np.linalg.norm(matrix, ord=2, axis=(-2, -1)).max())
