"""Changes of Lightening-Transformer's numbers, and its baselines', when faults of its rules are put right."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.validation.peers.lightening_baselines import (
    BANK_FAULTS,
    MESH_FAULTS,
    SHARED_FAULTS,
    AnyCorrection,
    BaselineCorrection,
    BaselineMesh,
    BaselineRingBank,
    baseline_total_cost,
)
from experiments.validation.peers.lightening_transformer import (
    FAULTS,
    Correction,
    LighteningTransformer,
    Workload,
    load_workload,
    total_cost,
)
from heliograph.report import ReportRow, table_text

WORKLOAD = "deit-b"
"""Workload whose energy and time are shown."""
BITS = (4, 8)
"""Bits at which they are shown."""
TOGETHER = "all faults together"
"""Label of the last line."""


BASELINE_WORKLOAD = "deit-t"
"""Workload whose energy and time are shown."""
PUBLISHED = "as published"
"""Label of the first line."""
_BANK_ROWS = (*BANK_FAULTS, BaselineCorrection.RINGS_SETTLE, BaselineCorrection.ONE_PHOTODIODE)
_MESH_ROWS = (*MESH_FAULTS, BaselineCorrection.ONE_PHOTODIODE)
_MILLI = 1e3
"""Milliunits per unit."""
_MM2_PER_M2 = 1e6
"""Square millimetres per square metre."""


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
            pair[0].correction,
            tuple(_signed(value) for one in pair for value in (one.power, one.energy, one.time)),
            section=pair[0].correction == TOGETHER,
        )
        for pair in zip(*by_bits, strict=True)
    ]
    title = f"Lightening-Transformer LT-B put right, rule by rule (change of power, and of {WORKLOAD})"
    return table_text(title, columns, rows, width=130)


def _signed(value: float) -> str:
    return "0" if value == 0.0 else f"{value:+.2%}"


@dataclass(frozen=True, kw_only=True)
class BaselineEffect:
    """Area, energy and time of a baseline with some rules put right."""

    system: str
    """Ring bank or mesh."""
    correction: str
    """Which rules."""
    bits: int
    """Bits."""
    area_m2: float
    """Area."""
    energy_j: float
    """Energy of the workload."""
    time_s: float
    """Time of the workload."""

    def record(self) -> dict[str, Any]:
        """Return the effect as plain data."""
        return dict(vars(self))


def baseline_effects(core: BaselineRingBank | BaselineMesh, workload: Workload) -> tuple[BaselineEffect, ...]:
    """Return what a baseline takes as published, with each correction alone, and with all faults at the end.

    Parameters
    ----------
    core : BaselineRingBank or BaselineMesh
        The baseline; what it already puts right is dropped.
    workload : Workload
        Whose energy and time are compared.

    Notes
    -----
    Other readings, `BaselineCorrection.RINGS_SETTLE` and `ONE_PHOTODIODE`, are no part of the last line.
    """
    own, faults = (_MESH_ROWS, MESH_FAULTS) if isinstance(core, BaselineMesh) else (_BANK_ROWS, BANK_FAULTS)
    sets: list[tuple[str, Sequence[AnyCorrection]]] = [(PUBLISHED, ())]
    sets += [(one.value, (one,)) for one in (*own, *SHARED_FAULTS)]
    sets.append((TOGETHER, (*faults, *SHARED_FAULTS)))
    found = []
    for label, corrections in sets:
        right = dataclasses.replace(core, corrections=frozenset(corrections))
        cost = baseline_total_cost(right, workload)
        found.append(
            BaselineEffect(
                system=core.label,
                correction=label,
                bits=core.bits,
                area_m2=right.area_m2,
                energy_j=cost.energy_j,
                time_s=cost.time_s,
            )
        )
    return tuple(found)


def shown_baseline_effects() -> tuple[BaselineEffect, ...]:
    """Return the effects on both baselines at 4 and at 8 bits."""
    workload = load_workload(BASELINE_WORKLOAD)
    cores = [kind(bits=bits) for kind in (BaselineRingBank, BaselineMesh) for bits in BITS]
    return tuple(one for core in cores for one in baseline_effects(core, workload))


def baselines_record() -> list[dict[str, Any]]:
    """Return the effects as plain data."""
    return [one.record() for one in shown_baseline_effects()]


def baselines_text() -> str:
    """Return the tables of effects as text, one for each baseline."""
    shown = shown_baseline_effects()
    return "\n".join(
        _table([one for one in shown if one.system == label])
        for label in dict.fromkeys(one.system for one in shown)
    )


def _table(effects: Sequence[BaselineEffect]) -> str:
    by_bits = [[one for one in effects if one.bits == bits] for bits in BITS]
    columns = ["area", *(f"{what} {bits}b" for bits in BITS for what in ("energy", "latency"))]
    rows = [
        ReportRow(
            pair[0].correction,
            (
                f"{pair[0].area_m2 * _MM2_PER_M2:.2f} mm2",
                *(text for one in pair for text in _baseline_figures(one)),
            ),
            section=pair[0].correction == TOGETHER,
        )
        for pair in zip(*by_bits, strict=True)
    ]
    title = f"Its baseline, the {effects[0].system}, put right, rule by rule ({BASELINE_WORKLOAD})"
    return table_text(title, columns, rows, width=130)


def _baseline_figures(one: BaselineEffect) -> tuple[str, str]:
    return f"{one.energy_j * _MILLI:.4g} mJ", f"{one.time_s * _MILLI:.4g} ms"
