"""Tables beside `heliograph validate network`: cost and failures with reasons, and bandwidths of NCCL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from electronic.fabrics.reductions import all_reduce_time_s
from experiments.validation.cells import Record, read_records
from experiments.validation.collective_simulator.tables import runs_text
from experiments.validation.collectives import NEEDS as COLLECTIVE_COLUMNS
from experiments.validation.collectives import bus_bytes, validate_collectives
from experiments.validation.network import NEEDS, validate_network
from experiments.validation.network_costs import RULES as COST_RULES
from experiments.validation.network_differences import differences_text
from experiments.validation.network_domains import RULES as DOMAIN_RULES
from experiments.validation.network_failures import RULES as FAILURE_RULES
from experiments.validation.network_slices import slices_text
from experiments.validation.outcomes import Outcome
from experiments.validation.traces import traces_text
from heliograph.report import ReportRow, table_text
from simulator.operators import CollectiveKind

REFERENCE = Path(__file__).parent / "reference"
"""Tables that ship."""
GIGABYTE = 1e9
"""Bytes by which NCCL quotes bandwidth."""
ALGORITHMS = ("NVLS", "Ring")
"""What a row's setting may name; a row that names both is of the first from 2 MiB on."""
RECALLED_CLAIMS = (
    {
        "system": "TopoOpt",
        "metric": "Ideal switch cost / TopoOpt cost",
        "value": "3.2",
        "unit": "x",
        "config": "recalled, not judged",
        "source": "Wang et al., TopoOpt, NSDI 2023",
    },
)
"""Claims that nobody has looked up, shown beside the others and counted nowhere."""


@dataclass(frozen=True, kw_only=True)
class Ring:
    """A published bus bandwidth of the ring where the switches could add but did not."""

    gpu: str
    """GPU."""
    ranks: int
    """How many, in one node."""
    size_bytes: int
    """Long message."""
    measured_gb_per_s: float
    """Published."""
    source: str
    """Publication."""


RINGS = (
    Ring(gpu="h200", ranks=8, size_bytes=2**34, measured_gb_per_s=367.61, source="Bekman, ML Engineering"),
    Ring(gpu="h100", ranks=8, size_bytes=2**34, measured_gb_per_s=370.0, source="nccl-tests issue 212"),
)
"""Rings beside the in-network reductions of the same GPUs."""


@cache
def _claims() -> tuple[Outcome, ...]:
    modelled = {**COST_RULES, **DOMAIN_RULES, **FAILURE_RULES}
    records = read_records(REFERENCE / "network.csv", needs=NEEDS)
    own = [record for record in records if _matches(record, modelled)]
    own += [Record(f"recalled:{place}", dict(one)) for place, one in enumerate(RECALLED_CLAIMS, 1)]
    return validate_network(own)


def _matches(record: Record, modelled: Iterable[tuple[str, str]]) -> bool:
    system, metric = record.text("system"), record.text("metric")
    return bool(system) and any(re.match(m, metric) and re.match(s, system) for s, m in modelled)


def claims_record() -> list[dict[str, Any]]:
    """Return cost, power and failures against what is published, with assumptions and reasons."""
    return [one.record() | {"why": one.hint} for one in _claims()]


def claims_text() -> str:
    """Return the same as a table, and below it what is assumed and why ours differs."""
    rows = [
        ReportRow(
            label=one.id,
            values=(_short(one.measured), _short(one.predicted), f"{one.relative_error or 0.0:+.0%}"),
        )
        for one in _claims()
    ]
    title = "Cost, power and failures: published, and from our bills of materials"
    lines = [
        f"  {one.id}: {'; '.join(part for part in (*one.assumed, one.hint) if part)}\n" for one in _claims()
    ]
    table = table_text(title, ("published", "ours", "difference"), rows, width=140)
    return f"{table}\nWhat each rests on, and why it differs:\n{''.join(lines)}"


@cache
def collectives_record() -> list[dict[str, Any]]:
    """Return, of every published series of all-reduces, the bus bandwidth of its longest message."""
    records = read_records(REFERENCE / "collectives.csv", needs=COLLECTIVE_COLUMNS)
    series: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        series.setdefault((record.text("source"), record.text("gpu")), []).append(record)
    found = []
    for (source, gpu), rows in series.items():
        longest = max(rows, key=lambda record: record.number("bytes") or 0.0)
        errors = [one.relative_error for one in validate_collectives(rows) if one.relative_error is not None]
        one = validate_collectives([longest])[0]
        if one.measured is None or one.predicted is None:
            continue
        ranks = longest.whole("n_gpus_one_node") or longest.needed("n_gpus")
        moved = bus_bytes(CollectiveKind.ALL_REDUCE, ranks, longest.needed("bytes")) / GIGABYTE
        config = longest.text("config")
        found.append(
            {
                "source": source,
                "series": f"{ranks} {gpu}, {next((a for a in ALGORITHMS if a in config), 'ring or tree')}",
                "rows": len(errors),
                "measured_gb_per_s": moved / one.measured,
                "predicted_gb_per_s": moved / one.predicted,
                "mean_abs_error": sum(map(abs, errors)) / len(errors),
            }
        )
    return [*found, *(_ring_alone(one) for one in RINGS)]


def _ring_alone(one: Ring) -> dict[str, Any]:
    nbytes = float(one.size_bytes)
    moved = bus_bytes(CollectiveKind.ALL_REDUCE, one.ranks, nbytes) / GIGABYTE
    predicted = moved / all_reduce_time_s(one.gpu, one.ranks, nbytes, in_network=False)
    return {
        "source": one.source,
        "series": f"{one.ranks} {one.gpu.upper()}, Ring, NVLS off",
        "rows": 1,
        "measured_gb_per_s": one.measured_gb_per_s,
        "predicted_gb_per_s": predicted,
        "mean_abs_error": abs(one.measured_gb_per_s / predicted - 1.0),
    }


def collectives_text() -> str:
    """Return the same as a table."""
    rows = [
        ReportRow(
            label=one["series"],
            values=(
                str(one["rows"]),
                f"{one['measured_gb_per_s']:.1f}",
                f"{one['predicted_gb_per_s']:.1f}",
                f"{one['mean_abs_error']:.1%}",
            ),
            note=one["source"],
        )
        for one in collectives_record()
    ]
    title = "NCCL all-reduce: bus bandwidth of the longest message, GB/s; mean error over all sizes"
    return table_text(title, ("rows", "published", "ours", "mean error"), rows, width=120)


def beside_text(outcomes: Iterable[Outcome]) -> str:
    """Return all tables beside the published networks, first that of the runs among some rows."""
    return "\n".join(
        text
        for text in (
            runs_text(outcomes),
            traces_text(),
            claims_text(),
            differences_text(),
            slices_text(),
            collectives_text(),
        )
        if text
    )


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
