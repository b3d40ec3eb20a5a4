"""A round of matchings slot by slot: when each lane is lit, and what whole packets get through.

`optical.rounds` gives means over a round; here the round is played through, turn after turn.

References
----------
Mellette et al., "RotorNet", SIGCOMM 2017, section 4; Opera, NSDI 2020, section 4: turns of the lanes are
staggered, a packet is sent only if it ends before its circuit does.
"""

from __future__ import annotations

import numpy as np

from optical.rounds import Rotation

_ROUNDING = 1e-9
"""Share of a packet by which a slot may be too short through rounding; dimensionless."""


def lit_s(rotation: Rotation) -> np.ndarray:
    """Return when each matching is lit within a round.

    Parameters
    ----------
    rotation : Rotation
        N ends, their lanes and the round.

    Returns
    -------
    numpy.ndarray
        Begin and end of matching i -> i + k, shape [N, 2]; matching k is held by lane k modulo the lanes.

    Notes
    -----
    Lane l begins to turn at l / lanes of a slot, and again a slot later; it is dark while it turns.
    """
    lane, slot = np.arange(rotation.ends) % rotation.lanes, np.arange(rotation.ends) // rotation.lanes
    turn_s = (slot + lane / rotation.lanes) * rotation.slot_s
    return np.stack([turn_s + rotation.dark_s, turn_s + rotation.slot_s], axis=1)


def round_bytes(rotation: Rotation, rate_bytes_per_s: float, packet_bytes: float) -> np.ndarray:
    """Return the bytes that each matching carries from an end in a round, whole packets only, shape [N]."""
    begin, end = lit_s(rotation).T
    packets = np.floor((end - begin) * rate_bytes_per_s / packet_bytes + _ROUNDING)
    return np.asarray(packets * packet_bytes)


def completion_s(
    rotation: Rotation, size_bytes: float, rate_bytes_per_s: float, packet_bytes: float
) -> np.ndarray:
    """Return when the traffic of an end with each other has gone, all pairs sending as much at once.

    Parameters
    ----------
    rotation : Rotation
        N ends, their lanes and the round; lanes must turn.
    size_bytes : float
        Bytes from an end to another, headers included.
    rate_bytes_per_s : float
        Rate of a lane.
    packet_bytes : float
        Packet, header included.

    Returns
    -------
    numpy.ndarray
        Time by shift 1 to N - 1, shape [N - 1].
    """
    begin, _ = lit_s(rotation)[1:].T
    each = round_bytes(rotation, rate_bytes_per_s, packet_bytes)[1:]
    rounds = np.ceil(size_bytes / each) - 1.0
    last_s = (size_bytes - rounds * each) / rate_bytes_per_s
    return np.asarray(rounds * rotation.round_s + begin + last_s)
