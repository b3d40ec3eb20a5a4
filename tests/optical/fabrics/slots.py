"""Simulation of a round of matchings, slot by slot and byte by byte, for the fluid model of rotor fabrics."""

import numpy as np


def finished_s(rotation, demand_bytes, lane_bytes_per_s):
    """Return when each pair's bytes have arrived, shape [N, N]: direct ones first, the rest over relays.

    RotorLB (Mellette et al., SIGCOMM 2017, section 4): a lane first carries what its end relays, then its
    own, then offers what is left of it to others' destinations, as far as the relay has room for it.
    """
    ends, lanes = rotation.ends, rotation.lanes
    step_s = rotation.slot_s / lanes
    own, relayed = demand_bytes.astype(float), np.zeros((ends, ends))
    origin = np.zeros((ends, ends, ends))  # relay, destination, source
    left = demand_bytes.astype(float)
    done_s = np.zeros((ends, ends))
    room = lane_bytes_per_s * (rotation.slot_s - rotation.reconfiguration_s)
    here = np.arange(ends)
    time_s, step = 0.0, 0
    while left.max() > 1.0:
        slot, turning = divmod(step, lanes)
        for lane in range(lanes):
            place = (slot if lane <= turning else slot - 1) % rotation.slots
            shift = rotation.shifts[lane, place]
            if shift == 0:
                continue
            lit_s = step_s - (rotation.reconfiguration_s if lane == turning else 0.0)
            peer = (here + shift) % ends
            free = np.full(ends, lane_bytes_per_s * lit_s)
            first = np.minimum(free, relayed[here, peer])
            parts = origin[here, peer]
            parts = parts * (first / np.maximum(parts.sum(axis=1), 1e-30))[:, None]
            origin[here, peer] -= parts
            relayed[here, peer] -= first
            for one in here:
                left[:, peer[one]] -= parts[one]
            free -= first
            second = np.minimum(free, own[here, peer])
            own[here, peer] -= second
            left[here, peer] -= second
            free -= second
            for one in here:
                spare, relay = free[one], peer[one]
                for to in np.argsort(-own[one]):
                    much = min(spare, own[one, to], room - relayed[relay, to] - own[relay, to])
                    if to in (one, relay) or much <= 0.0:
                        continue
                    own[one, to] -= much
                    relayed[relay, to] += much
                    origin[relay, to, one] += much
                    spare -= much
        time_s += step_s
        step = (step + 1) % (lanes * rotation.slots)
        just = (left <= 1.0) & (done_s == 0.0) & (demand_bytes > 0)
        done_s[just] = time_s
    return done_s
