"""Origin of every number of a step's record: formula, numbers it follows from, parameters that enter it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from heliograph.parameters import Parameter
from heliograph.records import COLUMNS
from heliograph.report import format_quantity, format_si
from heliograph.report_page.page import Formula, Number, parameter_formulas
from simulator.units import dimension_of

SIMULATED, DERIVED, ASSUMED = "simulated", "derived", "assumed"
"""Status of a number of a record: of an event simulation, a closed form, or standing on assumed prices."""


@dataclass(frozen=True, kw_only=True)
class _Law:
    """Law of one column."""

    text: str
    status: str
    source: str
    follows: tuple[str, ...] = ()
    """Columns, or mappings of parts, that it follows from."""
    inputs: tuple[str, ...] = ()
    """Patterns of the paths of parameters that enter it."""


TABLE = Path(__file__).with_name("laws.csv")
"""Laws of columns, of categories of time by how a name begins, of parts of the energy by their first word."""


def read_laws(kind: str) -> dict[str, _Law]:
    """Return the laws of columns (``column``), categories of time (``time``) or parts of the energy."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return {
            row["name"]: _Law(
                text=row["text"],
                status=row["status"],
                source=row["source"],
                follows=tuple(row["follows"].split()),
                inputs=tuple(row["inputs"].split()),
            )
            for row in csv.DictReader(stream)
            if row["of"] == kind
        }


LAWS: Mapping[str, _Law] = MappingProxyType(read_laws("column"))
"""Laws of the columns of `heliograph.records.COLUMNS` that are numbers."""
TIME_LAWS: Mapping[str, _Law] = MappingProxyType(read_laws("time"))
"""Law of each category of time, by how its name begins."""
PART_LAWS: Mapping[str, _Law] = MappingProxyType(read_laws("energy"))
"""Law of a part of the energy by its first word; parameters of others go by that word."""


def step_formulas(
    record: Mapping[str, Any], parameters: Sequence[Parameter], *, owner: str = ""
) -> dict[str, Formula]:
    """Return what every number of a step's record unfolds to, and the parameters behind them.

    Parameters
    ----------
    record : mapping
        As `StepResult.record` gives it.
    parameters : sequence of Parameter
        Of the system as it was run.
    owner : str
        First part of the keys, ``owner/column`` and ``owner/path``; the system's name if not given.
    """
    own = owner or str(record["system"])
    paths = [one.path for one in parameters]
    found: dict[str, Formula] = {}

    def keys(patterns: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{own}/{path}" for path in paths if any(fnmatchcase(path, one) for one in patterns))

    for column, law in LAWS.items():
        if not is_number(record.get(column)):
            continue
        follows = [f"{own}/{one}" for one in law.follows if is_number(record.get(one))]
        for parts in (record.get(one) for one in law.follows):
            follows += [f"{own}/{column}/{part}" for part in parts] if isinstance(parts, Mapping) else []
        found[f"{own}/{column}"] = Formula(
            label=f"{COLUMNS[column]} ({own})",
            text=law.text,
            status=law.status,
            source=law.source,
            value=told(column, record[column]),
            follows=tuple(follows),
            inputs=keys(law.inputs),
        )
    for part, seconds in record.get("time_by_category_s", {}).items():
        law = next(law for start, law in TIME_LAWS.items() if part.startswith(start))
        found[f"{own}/step_time_s/{part}"] = Formula(
            label=f"{part} ({own})",
            text=law.text,
            status=law.status,
            source=law.source,
            value=format_si(seconds, "s"),
            inputs=keys(law.inputs),
        )
    for part, joules in record.get("energy_by_component_j_per_token", {}).items():
        found[f"{own}/energy_per_token_j/{part}"] = Formula(
            label=f"{part} ({own})",
            text="(energy of its events in the step + its static power \u00d7 accelerators \u00d7 step time) "
            "/ tokens; tokens of a step = global_batch \u00d7 sequence_length of the plan",
            status=DERIVED,
            source=LAWS["energy_per_token_j"].source,
            value=format_si(joules, "J"),
            follows=(f"{own}/step_time_s",),
            inputs=keys(part_inputs(part)) or keys(("photonic.*",)),
        )
    for part, many in record.get("memory_by_kind_bytes", {}).items():
        found[f"{own}/memory_bytes/{part}"] = Formula(
            label=f"{part} ({own})",
            text="bytes of it on the fullest stage, by the plan's axes, sharding and recomputation",
            status=DERIVED,
            source=LAWS["memory_bytes"].source,
            value=format_si(many, "B"),
        )
    return found | parameter_formulas(own, parameters)


def part_inputs(part: str) -> tuple[str, ...]:
    """Return the patterns of the parameters that enter a part of the energy."""
    first = part.split(maxsplit=1)[0]
    return PART_LAWS[first].inputs if first in PART_LAWS else (f"photonic.*{first}*",)


def told(column: str, value: object) -> str:
    """Return a value of a column with its unit."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "" if value is None else str(value)
    if column in _SHOWN:
        return _SHOWN[column](float(value))
    if column.endswith("_usd"):
        return f"{value:,.4g} USD" if value < THOUSAND else f"{value:,.0f} USD"
    unit = (dimension_of(column.rpartition(".")[2]) or ("", "1"))[1]
    return f"{value:,.6g}" if unit == "1" else format_quantity(float(value), unit)


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


_SHOWN: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "model_flop_utilisation": _percent,
        "dropped_share": _percent,
        "tokens_per_s": _whole,
        "run_steps": _whole,
        "core_lifetime_steps": _whole,
        "energy_per_token_j": lambda value: format_si(value, "J/token"),
        "usd_per_million_tokens": lambda value: f"{value:#.3g} USD",
        "snr_db": lambda value: f"{value:.2f} dB",
        "effective_bits": lambda value: f"{value:.2f} bit",
    }
)
"""Columns that are told in their own way."""
THOUSAND = 1e3
"""Dollars from which on cents are not told."""


def numbers(column: str, value: object, key: str) -> Number:
    """Return a value of a column as a cell that unfolds."""
    order = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return Number(text=told(column, value) or "\u2013", value=order, key=key if order is not None else "")


def is_number(value: object) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
