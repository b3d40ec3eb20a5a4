"""Goodput of slices of TPU v4 with circuits between cubes and without, by availability of its hosts."""

from __future__ import annotations

from typing import Any

from heliograph.report import ReportRow, table_text
from simulator.topology.torus import TPU_V4

AVAILABILITIES = (0.99, 0.995, 0.999)
"""Shares of time that a host is up; dimensionless (arXiv:2304.01433, figure 4)."""
SLICE_CUBES = (1, 2, 4, 8, 16, 32, 48, 64)
"""Cubes of a slice: 64 to 4096 chips."""


def slices_record() -> list[dict[str, Any]]:
    """Return goodput by slice and availability, with circuits and without."""
    return [
        {
            "chips": cubes * TPU_V4.nodes_per_cube,
            "host_availability": up,
            "with_circuits": TPU_V4.goodput(cubes, up),
            "without_circuits": TPU_V4.static_goodput(cubes, up),
        }
        for cubes in SLICE_CUBES
        for up in AVAILABILITIES
    ]


def slices_text() -> str:
    """Return the same as a table."""
    found: dict[int, list[str]] = {}
    for one in slices_record():
        cells = found.setdefault(one["chips"], [])
        cells += [f"{one['with_circuits']:.1%}", f"{one['without_circuits']:.1%}"]
    columns = tuple(f"{up:.1%} {how}" for up in AVAILABILITIES for how in ("OCS", "fixed"))
    rows = [ReportRow(label=f"{chips} chips", values=tuple(cells)) for chips, cells in found.items()]
    title = "Goodput of TPU v4's slices by hosts' availability: circuits (OCS), fixed slices"
    return table_text(title, columns, rows, width=120)
