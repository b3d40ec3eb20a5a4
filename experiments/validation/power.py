"""Power of published training runs, measured at servers or for a whole machine, against ours."""

from __future__ import annotations

import dataclasses
import math
from enum import StrEnum

from experiments.validation.famous import run_of
from experiments.validation.rows import Outcome, Record, SkipError, begun, check_provenance, skipped
from experiments.validation.training import forecast
from heliograph.systems import System
from simulator.errors import HeliographError, nearest

NEEDS = (("id",), ("source",), ("system",), ("model",), ("plan",), ("power_w",), ("reach",))
"""Columns without which a file is no table of power; of each group one."""
HELD = ("scale-up", "nic")
"""Items of a network's bill that stand in servers."""


class Reach(StrEnum):
    """Extent of a measurement."""

    SERVER = "server"
    """A server with all that it holds, its network cards among it."""
    MACHINE = "machine"
    """Servers and the network between them."""


def outcome(record: Record) -> Outcome:
    """Return what becomes of a row of measured power, an accelerator's share in W."""
    blank = begun(record, unit="W")
    try:
        measured = record.number("power_w", strict=True)
        if measured is None:
            msg = "nothing measured is given"
            raise SkipError(msg)
        blank = dataclasses.replace(blank, measured=measured)
        check_provenance(record)
        run = run_of(record)
        system = run.system.with_(_settings(record))
        found = forecast(system, dataclasses.replace(run.config, name="model"), run.plan)
        power_w = found.energy_j / found.step_time_s / system.accelerators
        if _reach(record) is Reach.SERVER:
            power_w -= _outside_w(system)
    except HeliographError as error:
        return skipped(blank, record, error)
    return dataclasses.replace(
        blank, predicted=power_w, assumed=tuple(record.assumed), hint=record.text("notes")
    )


def _reach(record: Record) -> Reach:
    """Return how far a measurement reaches."""
    text = record.text("reach")
    if text not in tuple(Reach):
        msg = f"reach {text or 'is empty'}: {nearest(text, tuple(Reach), noun='reach')}"
        raise SkipError(msg)
    return Reach(text)


def _settings(record: Record) -> dict[str, float | str]:
    """Return the changes of the system that a row asks for, by path."""
    pairs = (one.partition("=") for one in record.text("set").split(",") if one)
    return {path: value for path, _, value in pairs}


def _outside_w(system: System) -> float:
    """Return the power of switches and modules outside of servers, an accelerator's share."""
    bill = system.fabric.bill()
    outside = (item for name, item in bill.items() if name not in HELD)
    return math.fsum(item.count * item.w_each for item in outside) / system.accelerators
