"""Failed ports of circuit switches: their lanes, their chassis, and the lanes lent in their place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optical.fabrics.circuits import DARK
from optical.fabrics.switches import OpticalSwitch, switch_chassis, switch_stages
from simulator.errors import ParameterError


def lend_lanes(tx_peer: np.ndarray, pairs: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """Return lanes in which pairs whose every lane is down have one that others can spare.

    Parameters
    ----------
    tx_peer : numpy.ndarray
        Destination of each lane as if no port were down, shape [E, lanes].
    pairs : numpy.ndarray
        Source and destination of the circuits that are wanted, distinct, shape [P, 2].
    failed : numpy.ndarray
        Ports that are down, ``endpoint * lanes + lane``, shape [n].

    Returns
    -------
    numpy.ndarray
        Shape [E, lanes]. A pair takes the first lane that works at both ends and is idle there, or serves
        pairs that keep another working one; a pair that finds none keeps its dead lanes, and so waits.
    """
    lanes = tx_peer.shape[1]
    works: np.ndarray = ~np.isin(np.arange(tx_peer.size), failed).reshape(-1, lanes)
    sends = tx_peer.copy()
    dead = (sends != DARK) & ~(works & works[sends, np.arange(lanes)])
    sends[dead] = DARK
    for source, destination in pairs.tolist():
        if (sends[source] == destination).any():
            continue
        lane = _spare_lane(sends, works[source] & works[destination], source, destination)
        if lane == DARK:
            free = dead[source] & (tx_peer[source] == destination)
            free &= ~(sends == destination).any(axis=0)
            sends[source, free] = destination
            continue
        sends[sends[:, lane] == destination, lane] = DARK
        sends[source, lane] = destination
    return sends


def _spare_lane(sends: np.ndarray, works: np.ndarray, source: int, destination: int) -> int:
    """Return a lane that a pair may have, or `DARK`: idle ones first, then those that others can miss."""
    found = DARK
    for lane in np.flatnonzero(works).tolist():
        other = int(sends[source, lane])
        senders = np.flatnonzero(sends[:, lane] == destination)
        if other == DARK and not senders.size:
            return int(lane)
        missed = other == DARK or (sends[source] == other).sum() > 1
        missed = missed and all((sends[sender] == destination).sum() > 1 for sender in senders)
        if missed and found == DARK:
            found = int(lane)
    return found


def chassis_of(switch: OpticalSwitch, rail: int, planes: int) -> np.ndarray:
    """Return the chassis that each port of each plane is on, shape [planes, rail].

    Parameters
    ----------
    switch : OpticalSwitch
        The switches, all alike.
    rail : int
        Ends that a plane joins.
    planes : int
        Planes; small ones share a chassis.

    Notes
    -----
    Numbered as `optical.fabrics.switches.switch_chassis` counts them; in a plane of three stages, inputs come
    first, then outputs, then middles. There the input's chassis is given; the output's is `edges` further.
    """
    ports, plane = switch.usable_ports, np.arange(planes)[:, None]
    place = np.arange(rail)[None, :]
    if switch_stages(switch, rail) == 1:
        return np.broadcast_to(plane // (ports // rail), (planes, rail)).copy()
    return plane * (switch_chassis(switch, rail, planes) // planes) + place // ports


def chassis_ports(switch: OpticalSwitch, rail: int, planes: int, chassis: int) -> np.ndarray:
    """Return plane and place of every port that is lost with a chassis, shape [n, 2].

    Notes
    -----
    An end whose light is cut one way is down both ways. A plane of three stages with m middles carries any
    matching of m ends an edge (Clos, Bell Syst. Tech. J. 32, 1953; rearrangeable by König's theorem), so with
    fewer middles the last ends of a full edge go dark.
    """
    first = chassis_of(switch, rail, planes)
    if switch_stages(switch, rail) == 1:
        return np.argwhere(first == chassis)
    ports = switch.usable_ports
    plane, kind = divmod(chassis, switch_chassis(switch, rail, planes) // planes)
    edges = -(-rail // ports)
    if kind < 2 * edges:
        places = np.flatnonzero(np.arange(rail) // ports == kind % edges)
    else:
        held = min(ports // edges, ports - (kind - 2 * edges) * (ports // edges))
        places = np.flatnonzero(np.arange(rail) % ports >= ports - held)
    return np.stack([np.full(places.size, plane), places], axis=1)


def check_spares(switch: OpticalSwitch, chassis: Sequence[int]) -> None:
    """Check that the spare ports of every chassis are enough for its failed ones.

    Parameters
    ----------
    switch : OpticalSwitch
        The switches, all alike.
    chassis : sequence of int
        Chassis of each port that a spare should replace.

    Raises
    ------
    ParameterError
        If a chassis has fewer spares.
    """
    for one in sorted(set(chassis)):
        wanted = list(chassis).count(one)
        if wanted > switch.spare_ports:
            msg = (
                f"{wanted} ports of switch {one} should be replaced, and '{switch.name}' keeps "
                f"{switch.spare_ports} spare ports (fabric.switch.spare_ports); replace fewer, or repair them"
            )
            raise ParameterError(msg)
