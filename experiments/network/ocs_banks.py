"""Optical circuit switches side by side, as the options of a schedule name them."""

from __future__ import annotations

from optical.fabrics.switches import load_optics, load_switch
from optical.scheduling.ocs_bank import OcsBank

SWITCH = "silicon-photonic-mzi"
"""Switch whose reconfiguration time is the delay where nobody gives one."""
OPTICS = "lane-100g"
"""Transceiver whose line rate a circuit has where nobody gives one."""


def bank_of(
    switch: str, planes: int, *, reconfiguration_s: float | None = None, rate_bytes_per_s: float | None = None
) -> OcsBank:
    """Return switches side by side.

    Parameters
    ----------
    switch : str
        Technology that sets the delay.
    planes : int
        How many.
    reconfiguration_s : float, optional
        Delay instead of the switch's, s.
    rate_bytes_per_s : float, optional
        Rate of a circuit instead of the transceiver's, B/s.

    Raises
    ------
    ParameterError
        If there is no such switch, or a number cannot be.
    """
    own_s, own_rate = load_switch(switch).reconfiguration_s, load_optics(OPTICS).bandwidth_bytes_per_s
    return OcsBank(
        rate_bytes_per_s=own_rate if rate_bytes_per_s is None else rate_bytes_per_s,
        reconfiguration_s=own_s if reconfiguration_s is None else reconfiguration_s,
        switches=planes,
    )
