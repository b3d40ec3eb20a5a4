"""Results as the terminal shows them: one line per quantity, with where it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from heliograph.parameters import CHOICE, SET
from heliograph.report import ReportRow, ReportTable, format_si, prefix_of
from simulator.fabric import CircuitPolicy
from simulator.results import (
    BUBBLE,
    DARK,
    EXPOSED,
    HOST,
    ISSUE,
    LOADING_BOUND,
    MEMORY_BOUND,
    OTHER_WORK,
    PRODUCTS,
)
from simulator.tables import Status

Record = Mapping[str, Any]

GIGABYTE = 1e9
"""Bytes by which memory is quoted, as its makers do."""
MM2_PER_M2 = 1e6
"""Square millimetres in a square metre."""
DAY_S = 86400.0
"""Seconds in a day."""
HOUR_S = 3600.0
"""Seconds in an hour."""
UNRESOLVED = "not resolved"
"""What a narrow column says of a difference that chance could have made; it counts as none."""
COMPONENTS_SHOWN = 14
"""Energy components that get a line of their own; the others are added up."""


def _share(record: Record, part: str) -> str:
    share = record["time_by_category_s"].get(part, 0.0) / record["step_time_s"]
    return f"{100 * share:.1f} %"


def _memory_wall(record: Record) -> str:
    waits = [s for part, s in record["time_by_category_s"].items() if part.endswith(MEMORY_BOUND)]
    return f"{100 * sum(waits) / record['step_time_s']:.1f} %"


def _loss(record: Record) -> str:
    if "validation_loss" not in record:
        return "not trained"
    return f"{record['validation_loss']:.3f} \u00b1 {record['validation_loss_spread']:.3f}"


def _loss_difference(record: Record) -> str:
    if "loss_difference" not in record:
        return "not trained"
    if not record["loss_difference_resolved"]:
        return UNRESOLVED
    return f"{record['loss_difference']:+.3f} \u00b1 {record['loss_difference_standard_error']:.3f}"


def _steps_to_loss(record: Record) -> str:
    if "steps_to_loss_relative" not in record:
        return "not trained"
    mean, error = record["steps_to_loss_relative"], record["steps_to_loss_standard_error"]
    if not math.isfinite(mean):
        return f"> {record['steps_to_loss_least']:.2f}" if record["steps_to_loss_resolved"] else UNRESOLVED
    if not record["steps_to_loss_resolved"]:
        return UNRESOLVED
    return f"{mean:.2f} \u00b1 {error:.2f}"


def _time_to_loss(record: Record) -> str:
    if "time_to_loss_s" not in record:
        return _untold(record)
    seconds = record["time_to_loss_s"]
    return f"{seconds / DAY_S:,.1f} days" if math.isfinite(seconds) else "not reached"


def _untold(record: Record) -> str:
    return UNRESOLVED if "steps_to_loss_relative" in record else "not trained"


def _energy_to_loss(record: Record) -> str:
    if "energy_to_loss_j" not in record:
        return _untold(record)
    joules = record["energy_to_loss_j"]
    return format_si(joules / HOUR_S, "Wh") if math.isfinite(joules) else "not reached"


def _laser_power(record: Record) -> str:
    return NO_LASER if record["laser_line_w"] is None else format_si(record["laser_line_w"], "W")


def _memory(record: Record) -> str:
    return f"{record['memory_bytes'] / GIGABYTE:.1f} of {record['memory_capacity_bytes'] / GIGABYTE:.0f}"


def _lifetime(record: Record) -> str:
    steps = record.get("core_lifetime_steps")
    return "never" if steps is None else f"{steps:,.1f} steps"


def _dark(record: Record) -> str:
    return _share(record, DARK) if record["circuit_policy"] in set(CircuitPolicy) else NO_CIRCUITS


def _circuits(record: Record) -> str:
    if record["circuit_policy"] not in set(CircuitPolicy):
        return NO_CIRCUITS
    changes = record["reconfigurations"]
    return f"{record['circuit_policy']}, {changes}"


NO_CORES, NO_LASER, NO_CIRCUITS, IN_DIE = "none", "no laser", "no circuits", "in die"
_ABSENT = frozenset((NO_CORES, NO_LASER, NO_CIRCUITS, IN_DIE))
"""Cells for things that a system does not have; a line of such cells only is left out."""


_SIZE: tuple[tuple[str, str, Callable[[Record], str]], ...] = (
    ("accelerator", "", lambda r: str(r["accelerator"])),
    ("photonic cores each", "by --basis", lambda r: str(r["photonic_cores"] or NO_CORES)),
    ("peak of products each", "derived", lambda r: format_si(r["peak_flop_per_s"], "FLOP/s")),
    ("peak power each", "derived", lambda r: format_si(r["accelerator_peak_w"], "W")),
    ("die area each", "derived", lambda r: f"{r['accelerator_area_m2'] * MM2_PER_M2:,.0f} mm\u00b2"),
    ("buffer each", "derived", lambda r: format_si(r["sram_bytes"], "B") if r["sram_bytes"] else IN_DIE),
)
_TIME: tuple[tuple[str, str, Callable[[Record], str]], ...] = (
    ("step time", "simulated", lambda r: format_si(r["step_time_s"], "s")),
    ("throughput, tokens/s", "simulated", lambda r: f"{r['tokens_per_s']:,.0f}"),
    ("model FLOP utilisation", "derived", lambda r: f"{100 * r['model_flop_utilisation']:.1f} %"),
    ("  products", "of the step", lambda r: _share(r, PRODUCTS)),
    ("  other work", "of the step", lambda r: _share(r, OTHER_WORK)),
    ("  waiting for memory", "of the step", _memory_wall),
    ("  exposed communication", "of the step", lambda r: _share(r, EXPOSED)),
    ("  exposed reconfiguration", "of the step", _dark),
    ("  pipeline bubble", "of the step", lambda r: _share(r, BUBBLE)),
    ("circuit policy, moves", "the faster", _circuits),
    ("memory per accelerator, GB", "derived", _memory),
    ("visits to experts dropped", "by capacity", lambda r: f"{100 * r['dropped_share']:.1f} %"),
)
_LOADED = f"{PRODUCTS}, {LOADING_BOUND}"
_AFTER: tuple[tuple[str, str, tuple[str, str, Callable[[Record], str]]], ...] = (
    (_LOADED, PRODUCTS, ("  products, loading longer", "of the step", lambda r: _share(r, _LOADED))),
    (ISSUE, DARK, (f"  {ISSUE}", "of the step", lambda r: _share(r, ISSUE))),
    (HOST, DARK, (f"  {HOST}", "of the step", lambda r: _share(r, HOST))),
)
"""Lines of categories, shown if any record has them: the category, the one before it, the line."""


_FABRIC = ("fabric", "chosen", lambda r: str(r["fabric"]))
"""Line on the fabric, if any is not that of a named system."""
USUAL_FABRICS = ("packet rails", "optical rails")
"""Fabrics of the named systems."""
_WORN = ("cores worn out after", "by endurance", _lifetime)
"""Line on endurance, if any core wears."""


def hardware_price(price_usd: float) -> str:
    """Return the price of a system in millions or, where tenths of them say little, thousands of dollars."""
    if price_usd < MILLION_USD:
        return f"{price_usd / THOUSAND_USD:,.0f} k$"
    return f"{price_usd / MILLION_USD:,.1f} M$"


def tokens_price(price_usd: float) -> str:
    """Return the price of tokens in dollars, with three significant digits where thousandths are fewer."""
    small = 0.0 < price_usd < TENTH_USD
    return f"{price_usd:.{2 - math.floor(math.log10(price_usd)) if small else 3}f} $"


_COST: tuple[tuple[str, str, Callable[[Record], str]], ...] = (
    ("mean power", "derived", lambda r: format_si(r["mean_power_w"], "W")),
    ("hardware", "assumed", lambda r: hardware_price(r["capital_usd"])),
    ("cost per million tokens", "assumed", lambda r: tokens_price(r["usd_per_million_tokens"])),
)
MILLION_USD, THOUSAND_USD = 1e6, 1e3
"""Dollars by which hardware is quoted, and by which small systems are."""
TENTH_USD = 0.1
"""Dollars below which a price of tokens needs more than three decimals."""
_PRECISION: tuple[tuple[str, str, Callable[[Record], str]], ...] = (
    ("signal to noise", "products", lambda r: f"{r['snr_db']:.1f} dB"),
    ("  operands", "stated", lambda r: str(r["operands"])),
    ("  format, or target", "chosen", lambda r: str(r["precision_target"] or r["precision"])),
    ("  laser power a line", "for target", _laser_power),
    ("effective bits, full scale", "one sample", lambda r: f"{r['effective_bits']:.2f}"),
)
_TRAINED: tuple[tuple[str, str, Callable[[Record], str]], ...] = (
    ("small GPT, loss (nats/byte)", "trained", _loss),
    ("  minus exact, same seeds", "mean, s.e.", _loss_difference),
    ("steps to loss, relative", "mean, s.e.", _steps_to_loss),
    ("time to loss", "carried over", _time_to_loss),
    ("energy to loss", "carried over", _energy_to_loss),
)

REDUCED = "reduction_effective_bits"
"""Key of the effective bits of gradients that the fabric adds in light."""
_REDUCED = (
    "  of gradients added in light",
    "light adder",
    lambda r: f"{r[REDUCED]:.2f}" if REDUCED in r else "not in light",
)
"""Line on them, if any fabric does."""


_BINDING: Mapping[str, str] = MappingProxyType(
    {
        PRODUCTS: "products",
        OTHER_WORK: "other",
        EXPOSED: "network",
        DARK: "circuits",
        HOST: "host",
        BUBBLE: "bubble",
        ISSUE: "launches",
    }
)
"""Short words for categories of a step's time."""


def binding(record: Record) -> str:
    """Return the category that takes most of a step's time in a short word, and its share."""
    times: dict[str, float] = {}
    for part, seconds in record["time_by_category_s"].items():
        word = next(
            (short for end, short in _WAITING.items() if part.endswith(end)), _BINDING.get(part, part)
        )
        times[word] = times.get(word, 0.0) + seconds
    most = max(times, key=lambda word: times[word])
    return f"{most} {100.0 * times[most] / record['step_time_s']:.0f}%"


_WAITING: Mapping[str, str] = MappingProxyType({MEMORY_BOUND: "memory", LOADING_BOUND: "loading"})
"""Short words for what products and other work wait for, by the end of the category's name."""

DECIDING: Mapping[str, str] = MappingProxyType(
    {
        "step": "step_time_s",
        "energy": "energy_per_token_j",
        "cost": "usd_per_million_tokens",
        "power": "mean_power_w",
        "price": "capital_usd",
    }
)
"""Columns of the few numbers that decide, with the keys of a record that they show."""


def deciding_table(title: str, records: Sequence[Record], refused: Mapping[str, str]) -> ReportTable:
    """Return the table of the few numbers that decide: a row for each system, at most 80 columns wide.

    Parameters
    ----------
    title : str
        Line above it.
    records : sequence of mapping
        One per system, as `StepResult.record` gives them.
    refused : mapping of str to str
        Systems that did not run, by name; their row is empty, and their sentence for the text beneath.
    """
    columns = [[float(record[key]) for record in records] for key in DECIDING.values()]
    time, energy, power = (prefix_of(max(columns[index])) for index in (0, 1, 3))
    large = max(columns[4]) >= MILLION_USD
    scales = (time[1], energy[1], 1.0, power[1], MILLION_USD if large else THOUSAND_USD)
    heads = (
        f"step {time[0]}s",
        f"energy {energy[0]}J/tok",
        "cost $/Mtok",
        f"power {power[0]}W",
        f"price {'M$' if large else 'k$'}",
        "SNR dB",
        "most time",
    )
    rows = []
    for index, record in enumerate(records):
        cells = [format_si(column[index] / scale) for column, scale in zip(columns, scales, strict=True)]
        rows.append(ReportRow(record["system"], (*cells, f"{record['snr_db']:.1f}", binding(record))))
    none = ("\u2013",) * len(heads)
    rows += [ReportRow(name, none) for name in refused]
    return ReportTable(title, heads, rows, dense=True)


def best_of(records: Sequence[Record]) -> str:
    """Return a sentence on the systems of least time, energy and cost, and on those drowned in noise."""
    drowned = [one["system"] for one in records if one["snr_db"] < 0.0]
    has = "has" if len(drowned) == 1 else "have"
    more = f"{_listed(drowned)} {has} more noise than signal." if drowned else ""
    judged = [one for one in records if one["system"] not in drowned]
    if not judged:
        return more
    found: dict[str, list[str]] = {}
    for word, key in _JUDGED.items():
        best = min(judged, key=lambda one: float(one[key]))
        found.setdefault(best["system"], []).append(word)
    told = "; ".join(f"least {_listed(words)}: {name}" for name, words in found.items())
    return f"{told[0].upper()}{told[1:]}. {more}".rstrip()


def _listed(words: Sequence[str]) -> str:
    """Return words with commas, and with "and" before the last one."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


_JUDGED: Mapping[str, str] = MappingProxyType(
    {"time": "step_time_s", "energy": "energy_per_token_j", "cost": "usd_per_million_tokens"}
)
"""Numbers of which less is better, with the keys of a record that hold them."""


def precision_notes(records: Sequence[Record]) -> list[str]:
    """Return sentences on what operands the precision is of, and what lasers are sized for."""
    kinds = _listed(list(dict.fromkeys(str(record["operands"]) for record in records)))
    told = [f"SNR: executed signal to noise of all products of the step, operands {kinds}."]
    powers: dict[str, list[float]] = {}
    for record in records:
        if record["precision_target"]:
            powers.setdefault(record["precision_target"], []).append(record["laser_line_w"])
    for target, found in powers.items():
        ends = " to ".join(dict.fromkeys(format_si(power, "W") for power in (min(found), max(found))))
        aim = target if target.startswith("power") else f"sized for the SNR of {target}"
        told.append(f"Light: {aim}, {ends} a laser or line.")
    return told


def _block(
    lines: Sequence[tuple[str, str, Callable[[Record], str]]], records: Sequence[Record]
) -> list[ReportRow]:
    found = [(label, tuple(map(cell, records)), note) for label, note, cell in lines]
    told = [line for line in found if not _ABSENT.issuperset(line[1])]
    return [ReportRow(*line, section=index == 0) for index, line in enumerate(told)]


def _energy(records: Sequence[Record], rest_note: str) -> list[ReportRow]:
    parts = [record["energy_by_component_j_per_token"] for record in records]
    weight = {name: max(one.get(name, 0.0) for one in parts) for part in parts for name in part}
    drawing = [name for name in weight if weight[name] > 0.0]
    shown = sorted(drawing, key=lambda name: -weight[name])[:COMPONENTS_SHOWN]
    total = tuple(format_si(record["energy_per_token_j"], "J/token") for record in records)
    rows = [ReportRow("energy per token", total, "derived", section=True)]
    for name in shown:
        values = tuple(format_si(one.get(name, 0.0), "J") for one in parts)
        rows.append(ReportRow(f"  {name}", values, ""))
    if len(shown) == len(drawing):
        return rows
    rest = tuple(
        format_si(sum(joules for name, joules in one.items() if name not in shown), "J") for one in parts
    )
    rows.append(ReportRow("  all other parts", rest, rest_note))
    return rows


def comparison_rows(records: Sequence[Record], *, rest_note: str = "see table.csv") -> list[ReportRow]:
    """Return the lines of the comparison table.

    Parameters
    ----------
    records : sequence of mapping
        One per system, as `StepResult.record` gives them, with accuracy added where it was trained.
    rest_note : str
        Where a reader finds the parts of energy that have no line of their own.
    """
    time = list(_TIME if any(record.get("dropped_share") for record in records) else _TIME[:-1])
    for name, before, line in reversed(_AFTER):
        if any(name in one["time_by_category_s"] for one in records):
            place = next(index for index, one in enumerate(time) if one[0].strip().endswith(before))
            time.insert(place + 1, line)
    if any(record.get("core_lifetime_steps") for record in records):
        time.append(_WORN)
    size = [*_SIZE] if all(r["fabric"] in USUAL_FABRICS for r in records) else [*_SIZE, _FABRIC]
    rows = (
        _block(size, records) + _block(time, records) + _energy(records, rest_note) + _block(_COST, records)
    )
    adds = any(REDUCED in record for record in records)
    rows += _block((*_PRECISION, _REDUCED) if adds else _PRECISION, records)
    if any("validation_loss" in record for record in records):
        rows += _block(_TRAINED, records)
    return [*rows, *_inputs(records)]


def _inputs(records: Sequence[Record]) -> list[ReportRow]:
    names = (*Status, CHOICE, SET)
    counted = [name for name in names if any(record["inputs_by_status"].get(name) for record in records)]
    return [
        ReportRow(
            f"inputs {name}",
            tuple(str(record["inputs_by_status"].get(name, 0)) for record in records),
            "see show" if index == 0 else "",
            section=index == 0,
        )
        for index, name in enumerate(counted)
    ]
