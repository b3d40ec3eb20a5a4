"""What moves when the faults of a published simulator are put right, each by its name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from heliograph.report import ReportRow, table_text
from optical.published.lightening_transformer import FAULTS, Correction, LighteningTransformer
from optical.published.lightening_workloads import Workload, load_workload, total_cost

WORKLOAD = "deit-b"
"""Workload whose energy and time are shown."""
BITS = (4, 8)
"""Bits at which they are shown."""
TOGETHER = "all faults together"
"""Label of the last line."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """By how much numbers change when a rule is put right; all are fractions of the published one."""

    correction: str
    """Which rule."""
    bits: int
    """Bits of the accelerator."""
    power: float
    """Change of the power."""
    energy: float
    """Change of a workload's energy."""
    time: float
    """Change of a workload's time."""

    def record(self) -> dict[str, Any]:
        """Return the effect as plain data."""
        return dict(vars(self))


def effects(machine: LighteningTransformer, workload: Workload) -> tuple[Effect, ...]:
    """Return the effect of each correction alone, and of all faults together at the end.

    Parameters
    ----------
    machine : LighteningTransformer
        The accelerator; what it already puts right is dropped.
    workload : Workload
        Whose energy and time are compared.

    Notes
    -----
    Reading the sensitivity per wavelength is another reading, not a fault; it is no part of the last line.
    """
    sets = [(one.value, (one,)) for one in Correction] + [(TOGETHER, FAULTS)]
    before = _figures(machine.corrected(), workload)
    found = []
    for label, corrections in sets:
        after = _figures(machine.corrected(*corrections), workload)
        power, energy, time = (new / old - 1.0 for new, old in zip(after, before, strict=True))
        found.append(Effect(correction=label, bits=machine.bits, power=power, energy=energy, time=time))
    return tuple(found)


def _figures(machine: LighteningTransformer, workload: Workload) -> tuple[float, ...]:
    cost = total_cost(machine, workload)
    return math.fsum(machine.power_parts_w().values()), cost.energy_j, cost.time_s


def shown_effects() -> tuple[Effect, ...]:
    """Return the effects on LT-B at 4 and at 8 bits."""
    workload = load_workload(WORKLOAD)
    return tuple(one for bits in BITS for one in effects(LighteningTransformer(bits=bits), workload))


def corrections_record() -> list[dict[str, Any]]:
    """Return the effects as plain data."""
    return [one.record() for one in shown_effects()]


def corrections_text() -> str:
    """Return the table of effects as text."""
    by_bits = [[one for one in shown_effects() if one.bits == bits] for bits in BITS]
    columns = [f"{what} {bits}b" for bits in BITS for what in ("power", "energy", "latency")]
    rows = [
        ReportRow(
            label=pair[0].correction,
            values=tuple(_signed(value) for one in pair for value in (one.power, one.energy, one.time)),
            section=pair[0].correction == TOGETHER,
        )
        for pair in zip(*by_bits, strict=True)
    ]
    title = f"Lightening-Transformer LT-B put right, rule by rule (change of power, and of {WORKLOAD})"
    return table_text(title, columns, rows, width=130)


def _signed(value: float) -> str:
    return "0" if value == 0.0 else f"{value:+.2%}"
