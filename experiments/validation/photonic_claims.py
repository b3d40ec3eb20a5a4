"""Numbers that papers state of photonic chips, taken from a row's text, and why some cannot be judged."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from experiments.validation.cells import Record, SkipError
from simulator.errors import ParameterError
from simulator.units import to_si

QUANTITIES = MappingProxyType(
    {"m^2": "x_m2", "W": "x_w", "J": "x_j", "s": "x_s", "op/s": "x_op_per_s", "op/J": "x_op_per_j"}
)
"""SI unit -> the name by which its units are read."""
OPERATIONS = MappingProxyType(
    {"op/s": {"TOPS": 1.0, "POPS": 1e3, "GOPS": 1e-3}, "op/J": {"TOPS/W": 1.0, "GOPS/W": 1e-3}}
)
"""SI unit of operations -> units that papers use, in tera."""
TERA = to_si("x_hz", 1.0, "THz")
"""Decimal prefix, dimensionless."""
KINDS = MappingProxyType({"area": "m^2", "power": "W", "energy": "J", "latency": "s", "peak": "op/s"})
"""First or last word of a metric that says what it measures -> SI unit."""
TRY = MappingProxyType({"m^2": "mm^2", "W": "mW", "J": "pJ", "s": "ms", "op/s": "TOPS", "op/J": "TOPS/W"})
"""SI unit -> a unit to try."""
ANOTHER_MODEL = "model"
"""Note on a number that is another tool's prediction beside the published one."""
_NUMBER = re.compile(r"([-+]?[\d.]+(?:e[-+]?\d+)?|nan|inf)(?: ([a-z][a-z ]*)| \((\w+)\))?$")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One published number: a row may hold several."""

    metric: str
    """What."""
    value: str
    """How much, as written."""
    unit: str
    """Unit as written."""
    config: str
    """Configuration of the system."""

    @property
    def number(self) -> float:
        """The published value.

        Raises
        ------
        SkipError
            If the text is words or several numbers.
        ParameterError
            If it is a number and not finite and positive, or one word that is no number.
        """
        try:
            found = float(self.value)
        except ValueError:
            if self.value and not re.search(r"[\s/]", self.value):
                msg = f"column 'value' is '{self.value[:40]}', which is no number; write digits, or words"
                raise ParameterError(msg) from None
            msg = "the cell holds words, a range or several quantities, no single number"
            raise SkipError(msg) from None
        if not math.isfinite(found) or found <= 0.0:
            msg = f"column 'value' is {self.value}; it must be finite and positive"
            raise ParameterError(msg)
        return found

    def in_si(self, number: float) -> tuple[str, float]:
        """Return the SI unit and the value in it; ``per MAC`` stays in words.

        Raises
        ------
        SkipError
            If it is none of `QUANTITIES`.
        ParameterError
            If the metric says what it measures and the unit measures something else.
        """
        written = self.unit.partition("/MAC")[0].split(" ")[0]
        read = ((unit, _converted(unit, name, number, written)) for unit, name in QUANTITIES.items())
        unit, value = next(((unit, value) for unit, value in read if value is not None), ("", math.nan))
        words = self.metric.split(" ")
        kind = next((word for word in (words[0], words[-1]) if word in KINDS), None)
        if kind and written not in {"", "x", "%"} and unit != KINDS[kind]:
            msg = f"column 'unit' is '{self.unit}', which is no unit of {kind}; try {TRY[KINDS[kind]]}"
            raise ParameterError(msg)
        if not unit:
            msg = "neither area, power, energy, time nor operations: a ratio, a share or a count"
            raise SkipError(msg)
        return unit + ("/MAC" if "/MAC" in self.unit else ""), value


def _converted(unit: str, name: str, number: float, written: str) -> float | None:
    if unit in OPERATIONS:
        factor = OPERATIONS[unit].get(written)
        return None if factor is None else number * factor * TERA
    try:
        return to_si(name, number, written)
    except ParameterError:
        return None


def claims(record: Record) -> Iterator[Claim]:
    """Yield the numbers of a row, which may stand side by side with a slash between.

    Notes
    -----
    ``1 / 2`` with a unit and a metric that have a slash each are two quantities; further ones with a note in
    brackets belong to the last; ``1/2/3`` with a configuration that begins ``a/b/c`` are three
    configurations, and with a metric that ends in ``name-a/b/c`` three of those, in groups with a semicolon
    between; ``1 word / 2 other`` are two of which each has its word, and what has ``model`` is somebody
    else's prediction and no claim; ``= 1 pJ/MAC`` after another quantity is that energy.
    """
    whole = Claim(**{name: record.text(name) for name in ("metric", "value", "unit", "config")})
    equal = re.search(r"= ([\d.]+) (\wJ/MAC)$", whole.value)
    if equal:
        yield dataclasses.replace(whole, metric="energy per MAC", value=equal[1], unit=equal[2])
        return
    if ";" in whole.value:
        yield from _groups(whole)
        return
    values = [_NUMBER.match(one.strip()) for one in whole.value.split("/")]
    if len(values) == 1 or not all(values):
        yield whole
        return
    yield from _side_by_side(whole, [(one[1], one[2] or "", one[3] or "") for one in values if one])


def _side_by_side(whole: Claim, numbers: list[tuple[str, str, str]]) -> Iterator[Claim]:
    metrics, units = whole.metric.split(" / "), whole.unit.split(" / ")
    head, *rest = whole.config.split(",", maxsplit=1)
    cases, first = head.split("/"), metrics[0].split(" ")[0]
    paired = 1 < len(metrics) == len(units) <= len(numbers)
    paired = paired and all(note for _, _, note in numbers[len(metrics) :])
    for index, (number, word, note) in enumerate(numbers):
        if word == ANOTHER_MODEL:
            continue
        if word:
            yield dataclasses.replace(whole, value=number, config=f"{whole.config} {word}".strip())
        elif paired:
            at = min(index, len(metrics) - 1)
            named = " " in metrics[at] or not metrics[at].isalpha() or " " not in metrics[0]
            metric = metrics[at] if named else f"{first} {metrics[at]}"
            config = f"{whole.config} {note}".strip()
            yield dataclasses.replace(whole, metric=metric, value=number, unit=units[at], config=config)
        elif len(cases) == len(numbers):
            config = ",".join([cases[index], *rest])
            yield dataclasses.replace(whole, value=number, config=config)
        elif not index:
            yield whole


def _groups(whole: Claim) -> Iterator[Claim]:
    stem, _, tail = whole.metric.rpartition("-")
    found = []
    for group in whole.value.split(";"):
        values, _, note = group.strip().partition(" (")
        numbers = [one.strip() for one in values.split("/")]
        if len(numbers) != len(tail.split("/")) or not all(_NUMBER.match(one) for one in numbers):
            yield whole
            return
        config = f"{whole.config} {note.rstrip(')')}".strip()
        found += [
            dataclasses.replace(whole, metric=f"{stem}-{case}", value=number, config=config)
            for case, number in zip(tail.split("/"), numbers, strict=True)
        ]
    yield from found


A_RATIO = "a ratio to another machine, not a number of this one"
"""Why a ratio cannot be predicted."""
BEYOND = MappingProxyType(
    {
        r"(\S+ ){0,2}accuracy": "an accuracy on their data; `heliograph photons` trains a network of its own",
        r".*\bvs\b|claims|.*\bEDP\b|.*scaling|.*saving|optimising": A_RATIO,
        r".*quantum limit": "a limit of physics, no parts give it; tests hold `optical.noise.limits` to it",
        r"photons per": "photons against an accuracy: `heliograph photons` measures it",
    }
)
"""How a metric begins -> why no model of a chip can give it."""
UNDISCLOSED = (
    "Taichi|Xu 2021|Feldmann 2021|TeMPO|Homodyne TPU|DxPTA|AWGR|HITOP|Luan|Meyer|Kovaios|Lin 2024|Lightning|"
    "Bandyopadhyay|Tait|DEAP|CrossLight|HolyLight|ADEPT|Mirage|SCATTER|ENLighten|M3ICRO|Shen|"
    "Photonic full-system"
)
"""How the names of systems begin of which only totals are published."""


def beyond_reach(claim: Claim) -> str | None:
    """Return why a number is none that parts can give, or None if it may be one."""
    for pattern, reason in BEYOND.items():
        if re.match(pattern, claim.metric, re.IGNORECASE):
            return reason
    return A_RATIO if re.fullmatch(r"x( .*)?", claim.unit) or re.match(r"[\d.-]+ x ", claim.value) else None


def unknown_system(system: str) -> str:
    """Return why a system that is not modelled cannot be judged."""
    if "GPU" in system:
        return "a GPU: `heliograph validate kernels` and `training` judge those"
    if re.match(UNDISCLOSED, system):
        return "no list of its parts and their powers is public, so nothing can be added up"
    return f"system '{system}' is not modelled"
