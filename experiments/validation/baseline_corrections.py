"""What moves when the rules of Lightening-Transformer's baselines are put right, each by its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.validation.corrections import BITS, TOGETHER
from heliograph.report import ReportRow, table_text
from optical.published.lightening_baseline_costs import baseline_total_cost
from optical.published.lightening_baselines import (
    BANK_FAULTS,
    MESH_FAULTS,
    SHARED_FAULTS,
    AnyCorrection,
    BaselineCorrection,
    BaselineMesh,
    BaselineRingBank,
)
from optical.published.lightening_workloads import Workload, load_workload

WORKLOAD = "deit-t"
"""Workload whose energy and time are shown."""
PUBLISHED = "as published"
"""Label of the first line."""
_BANK_ROWS = (*BANK_FAULTS, BaselineCorrection.RINGS_SETTLE, BaselineCorrection.ONE_PHOTODIODE)
_MESH_ROWS = (*MESH_FAULTS, BaselineCorrection.ONE_PHOTODIODE)


@dataclass(frozen=True, kw_only=True)
class BaselineEffect:
    """What a baseline takes with some rules put right."""

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
    workload = load_workload(WORKLOAD)
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
            label=pair[0].correction,
            values=(
                f"{pair[0].area_m2 * _MM2_PER_M2:.2f} mm2",
                *(text for one in pair for text in _figures(one)),
            ),
            section=pair[0].correction == TOGETHER,
        )
        for pair in zip(*by_bits, strict=True)
    ]
    title = f"Its baseline, the {effects[0].system}, put right, rule by rule ({WORKLOAD})"
    return table_text(title, columns, rows, width=130)


def _figures(one: BaselineEffect) -> tuple[str, str]:
    return f"{one.energy_j * _MILLI:.4g} mJ", f"{one.time_s * _MILLI:.4g} ms"


_MILLI = 1e3
"""Milliunits per unit."""
_MM2_PER_M2 = 1e6
"""Square millimetres per square metre."""
