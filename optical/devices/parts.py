"""Parts list of a core: static parts, and uses of parts for each event; power, area and energy follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from simulator.errors import Checked


class Domain(Enum):
    """Kind of die that a device is made on, which sets the price of its area."""

    PHOTONIC = "photonic"
    ELECTRONIC = "electronic"


@dataclass(frozen=True, kw_only=True)
class Named(Checked):
    """Base of records that rows of a table describe; numbers are at least 0, or as their types say."""

    name: str
    """Name shown in tables, and in the path of light."""


class Device(Named):
    """Base of all devices: on the photonic die unless a device says otherwise."""

    domain: Domain = Domain.PHOTONIC
    """Die that it is made on."""
    area_m2: float
    """Area of one."""


class ElectronicDevice(Device):
    """Base of the devices on the electronic die."""

    domain = Domain.ELECTRONIC


class Per(Enum):
    """Unit by which a part is counted."""

    CORE = "core"
    """Devices on one core: they cover area, and draw their power whether or not it works."""
    SYMBOL = "symbol"
    """Uses for one operand symbol."""
    SAMPLE = "sample"
    """Uses for one output sample."""
    ELEMENT = "element"
    """Uses for one operand element, however often it is sent."""
    RESULT = "result"
    """Uses for one sum that a number format puts together."""
    VALUE = "value"
    """Uses for one operand value that is loaded."""
    LOAD = "load"
    """Uses for one load of a whole core."""
    OPERATION = "operation"
    """Uses for one operation that prepares a load."""


_AT_FULL_LOAD = (Per.SYMBOL, Per.SAMPLE, Per.RESULT)
"""Events while operands stream without end: without loads, and with elements that are prepared already."""


@dataclass(frozen=True, slots=True)
class Part:
    """Line of a parts list: a number of devices on each core, or of uses of a device for each event."""

    name: str
    """Component to which its power and energy are counted."""
    device: Device
    """The device."""
    count: float
    """Number of them; shared ones in proportion, dimensionless."""
    each: float | None = None
    """Power of one device on a core, W, or energy of one use, J; None if passive."""
    per: Per = Per.CORE
    """Unit of the count."""
    within: str | None = None
    """Component that its area belongs to; None for its own name."""
    fill: float = 1.0
    """Area of devices over that of the cell in which they are laid out, 0 to 1."""

    def times(self, copies: float) -> Part:
        """Return the same part for a number of copies of a core."""
        return dataclasses.replace(self, count=copies * self.count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Events:
    """Events of one product, or of one second."""

    cycles: float = 0.0
    """Symbol times from first to last."""
    symbols: float = 0.0
    """Operand symbols."""
    samples: float = 0.0
    """Output samples."""
    elements: float = 0.0
    """Operand elements that a number format takes in."""
    results: float = 0.0
    """Sums that a number format puts together."""
    values: float = 0.0
    """Operand values that are loaded, padding of part-filled arrays not counted."""
    loads: float = 0.0
    """Loads of all cores together."""
    rounds: float = 0.0
    """Loads of the busiest core, one after the other."""
    operations: float = 0.0
    """Operations that prepare loads."""
    prepared_s: float = 0.0
    """Time for which the busiest core waits for the preparation of its loads."""
    operand_bytes: float = 0.0
    """Bytes between converters and buffer: streamed and loaded operands, partial sums."""

    def uses(self) -> dict[Per, float]:
        """Return the uses of a part of count 1 by its kind of event."""
        return {
            Per.SYMBOL: self.symbols,
            Per.SAMPLE: self.samples,
            Per.ELEMENT: self.elements,
            Per.RESULT: self.results,
            Per.VALUE: self.values,
            Per.LOAD: self.loads,
            Per.OPERATION: self.operations,
        }


def static_w(parts: Iterable[Part]) -> dict[str, float]:
    """Return the power that one core draws whether or not it works, by component."""
    found: dict[str, float] = {}
    for part in parts:
        if part.per is Per.CORE and part.each is not None:
            found[part.name] = found.get(part.name, 0.0) + part.count * part.each
    return found


def area_m2(parts: Iterable[Part], domain: Domain) -> dict[str, float]:
    """Return the area of one core on one kind of die, by component."""
    found: dict[str, float] = {}
    for part in parts:
        if part.per is Per.CORE and part.device.domain is domain:
            name = part.within or part.name
            found[name] = found.get(name, 0.0) + part.count * part.device.area_m2 / part.fill
    return found


def energy_j(parts: Iterable[Part], events: Events) -> dict[str, float]:
    """Return the dynamic energy of events, by component."""
    found: dict[str, float] = {}
    uses = events.uses()
    for part in parts:
        if part.per is not Per.CORE and part.each is not None:
            found[part.name] = found.get(part.name, 0.0) + part.count * part.each * uses[part.per]
    return found


def merged(parts: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Return two breakdowns by component as one, amounts of the same name added up."""
    return {**parts, **{name: parts.get(name, 0.0) + amount for name, amount in more.items()}}


def full_load_w(parts: Iterable[Part], rates: Events) -> dict[str, float]:
    """Return the dynamic power of one core with all parts at work, by component.

    Parameters
    ----------
    parts : iterable of Part
        Of one core.
    rates : Events
        Events per second while operands stream past loaded ones.
    """
    streaming = (part for part in parts if part.per in _AT_FULL_LOAD)
    return energy_j(streaming, rates)
