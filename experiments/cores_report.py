"""`heliograph cores`: what is told of all cores together, as a table, as plain data and as files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core import PICOJOULE
from experiments.cores import CoresStudy, Variant
from experiments.cores_winners import NOBODY, best_size, present, shown_gpus, winners
from experiments.plain import csv_text, make_directory, write_atomically
from experiments.report import ReportRow
from optical.cores import CORES

SIGNAL = "a full-scale sample at the ADC, with light, converters and wrong weights"
"""What effective bits refer to."""
SHOWN_REUSE = (64, 4096, 65536)
"""Reuse that the table shows, or the nearest that was asked for; a choice."""


def shown_places(found: CoresStudy) -> list[int]:
    """Return the places of the reuse that the table shows."""
    nearest = [int(np.argmin(np.abs(np.log(np.array(found.reuse) / uses)))) for uses in SHOWN_REUSE]
    return list(dict.fromkeys(nearest))


def heads(found: CoresStudy) -> list[str]:
    """Return the heads of the table's columns."""
    uses = [f"reuse {found.reuse[place]:,}" for place in shown_places(found)]
    return ["lit for", "most bits", "set by", *uses, "best size", "takes"]


def study_rows(found: CoresStudy) -> list[ReportRow]:
    """Return a study as lines of a table, cores first, then the GPUs."""
    places = shown_places(found)
    rows = []
    for name in CORES:
        now, best = present(found, name), best_size(found, name, places[-1])
        cap, cause = found.caps[name]
        rows.append(
            ReportRow(
                label=name,
                values=(
                    f"{now.bits:g} bits",
                    f"{cap:.2f}",
                    cause,
                    *(_picojoules(now.j_per_mac[place]) for place in places),
                    "none fits" if best is None else sides_text(best),
                    "" if best is None else _picojoules(best.j_per_mac[places[-1]]),
                ),
            )
        )
    for place, price in enumerate(shown_gpus(found)):
        rows.append(
            ReportRow(
                label=price.name,
                values=(
                    f"{price.significand_bits:g} bits",
                    f"{price.significand_bits:.2f}",
                    "significand",
                    *(_picojoules(price.j_per_mac[one]) for one in places),
                    "",
                    "",
                ),
                section=place == 0,
            )
        )
    return rows


def sides_text(one: Variant) -> str:
    """Return the size of an array in words of few letters."""
    return " x ".join(str(count) for count in one.sides.values())


def _picojoules(energy_j: float) -> str:
    return "\u2013" if np.isnan(energy_j) else f"{energy_j / PICOJOULE:,.3g} pJ"


def summary_lines(found: CoresStudy) -> list[str]:
    """Return what a table does not hold, in sentences."""
    lines = [
        "Energy per multiply-accumulate with buffer and memory, each core lit for its bits. Bits are those "
        f"of {SIGNAL}; a GPU's are the significand's.",
        "Reuse: products that each element of either operand takes part in, hence vectors that pass a load.",
    ]
    for quantity, word in (("j_per_mac", "energy"), ("s_per_mac", "time")):
        won = winners(found, quantity)
        reached = won.core != NOBODY
        if not reached.any():
            lines.append(f"No core reaches {found.bits[0]:g} bits.")
            break
        lit = reached & ~won.gpu_wins
        who = (*CORES, "memory sets it for all")
        counts = {name: int(np.sum(lit & (won.core == place))) for place, name in enumerate(who)}
        names = ", ".join(f"{name} {count / reached.sum():.0%}" for name, count in counts.items() if count)
        top = max(bits for bits, row in zip(found.bits, reached, strict=True) if row.any())
        lines.append(
            f"Least {word} where some core reaches the bits (up to {top:g}): {names or 'no core'}; "
            f"{found.gpu} {won.gpu_wins.sum() / reached.sum():.0%}."
        )
    return lines


def write(found: CoresStudy, directory: Path) -> list[Path]:
    """Write pictures (png and svg) and every point in them (csv); return what was written.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    from experiments.cores_figures import energy_by_reuse, energy_by_size  # noqa: PLC0415 - slow
    from experiments.cores_map import winner_maps  # noqa: PLC0415

    make_directory(directory)
    written = [
        *energy_by_size(found, directory / "cores_size"),
        *energy_by_reuse(found, directory / "cores_reuse"),
        *winner_maps(found, directory / "cores_map"),
    ]
    tables = {"size": _points(found.sizes, found.reuse), "map": _points(found.maps, found.reuse)}
    tables["gpus"] = _gpu_points(found)
    for name, rows in tables.items():
        written.append(directory / f"cores_{name}.csv")
        write_atomically(written[-1], csv_text(rows))
    return written


def record(found: CoresStudy) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        "gpu": found.gpu,
        "basis": str(found.basis),
        "bits_refer_to": SIGNAL,
        "caps": {name: {"bits": bits, "set_by": cause} for name, (bits, cause) in found.caps.items()},
        "size": _points(found.sizes, found.reuse),
        "map": _points(found.maps, found.reuse),
        "gpus": _gpu_points(found),
    }


def _points(variants: Iterable[Variant], reuse: Sequence[int]) -> list[dict[str, object]]:
    """Return a row for every variant and reuse; what does not work, with its reason and no numbers."""
    rows: list[dict[str, object]] = []
    for one in variants:
        common: dict[str, object] = {
            "core": one.core,
            "size": sides_text(one),
            "factor": one.factor,
            "target_bits": one.bits,
            "outcome": str(one.outcome),
            "laser_power_w": _told(one.laser_power_w),
            "cores": one.cores,
        }
        for place, uses in enumerate(reuse):
            rows.append(
                common
                | {
                    "reuse": uses,
                    "energy_j_per_mac": _told(one.j_per_mac[place]),
                    "time_s_per_mac": _told(one.s_per_mac[place]),
                    "memory_bound": bool(one.memory_bound[place]),
                    "reason": one.reason,
                }
            )
    return rows


def _gpu_points(found: CoresStudy) -> list[dict[str, object]]:
    return [
        {
            "gpu": price.gpu,
            "format": price.format,
            "significand_bits": price.significand_bits,
            "reuse": uses,
            "energy_j_per_mac": float(price.j_per_mac[place]),
            "time_s_per_mac": float(price.s_per_mac[place]),
        }
        for price in found.gpus
        for place, uses in enumerate(found.reuse)
    ]


def _told(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
