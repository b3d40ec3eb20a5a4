"""How much goes direct and how much over relays, where every pair of ends has a circuit of the same rate.

Rates are in those of a direct circuit, so that an end with N - 1 circuits sends at most N - 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOBODY = np.empty(0, dtype=np.int64)
"""No ends."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Relays:
    """What flows of equal rate do when they have the circuits to themselves."""

    rate: float
    """Rate of each flow, in those of a direct circuit."""
    direct: float
    """Part of it that goes direct, in those of a direct circuit."""
    carried: np.ndarray
    """What each end relays of a unit of every flow's indirect part, in flows, shape [N]."""

    @property
    def relayed_share(self) -> float:
        """Share of the bytes that cross two circuits."""
        return 1.0 - self.direct / self.rate


def relay_surplus(flows: np.ndarray, barred: np.ndarray = NOBODY) -> Relays:
    """Return the rates when direct circuits are filled first and the rest goes over idle ones.

    Parameters
    ----------
    flows : numpy.ndarray
        Flows from each end to each other, shape [N, N], diagonal zero, at least one.
    barred : numpy.ndarray
        Ends that relay nothing, shape [n]; none of them sends or receives.

    Notes
    -----
    Relays of s -> d are all ends i for which neither s -> i nor i -> d has flows of its own; they share its
    surplus evenly. A circuit carries first hops of flows from its source and second hops of flows to its
    destination; the fullest one limits all. So the rates can be had, whatever else RotorLB might find.

    References
    ----------
    Mellette et al., "RotorNet", SIGCOMM 2017, section 4 (RotorLB: direct first, then indirect).
    """
    direct = 1.0 / float(flows.max())
    idle = (flows == 0).astype(float)
    np.fill_diagonal(idle, 0.0)
    idle[barred] = idle[:, barred] = 0.0
    relays = idle @ idle
    if (relays[flows > 0] == 0.0).any():
        return Relays(rate=direct, direct=direct, carried=np.zeros(len(flows)))
    part = np.divide(flows, relays, out=np.zeros(flows.shape), where=flows > 0)
    first, second = (part @ idle.T) * idle, (idle.T @ part) * idle
    return Relays(rate=direct + 1.0 / float((first + second).max()), direct=direct, carried=first.sum(axis=0))


def relay_always(flows: np.ndarray, barred: np.ndarray = NOBODY) -> Relays:
    """Return the rates when every byte goes by way of an end drawn at random among all but its source.

    Parameters
    ----------
    flows : numpy.ndarray
        Flows from each end to each other, shape [N, N], diagonal zero, at least one.
    barred : numpy.ndarray
        Ends that relay nothing, shape [n]; none of them sends or receives.

    Notes
    -----
    The draw is the destination for one byte in N - 1, which then crosses one circuit.

    References
    ----------
    Ballani et al., "Sirius", SIGCOMM 2020, section 4 (Valiant load balancing).
    """
    ends = len(flows) - len(barred)
    sent, received = flows.sum(axis=1), flows.sum(axis=0)
    crossing = sent[:, None] + received[None, :] - flows
    np.fill_diagonal(crossing, 0.0)
    crossing[barred] = crossing[:, barred] = 0.0
    rate = (ends - 1) / float(crossing.max())
    carried = np.zeros(len(flows)) if ends < 3 else (flows.sum() - sent - received) / (ends - 2)
    carried[barred] = 0.0
    return Relays(rate=rate, direct=rate / (ends - 1), carried=carried)
