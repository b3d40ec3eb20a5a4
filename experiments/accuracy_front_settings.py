"""The knobs of a core that trade accuracy against energy, and a system with each of them turned alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from experiments.systems import System, build_system
from heliograph.errors import LinkError, ParameterError
from heliograph.paths import get_at
from optical.devices import Converter

OUTPUT_BITS = "output bits"
"""The knob that turns an ADC along its own figure of merit."""
KNOBS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "laser power": ("laser_power_w",),
        OUTPUT_BITS: ("adc.nominal_bits", "adc.enob_bits", "adc.power_w"),
        "array size": ("rows", "columns", "outputs", "ports"),
        "wavelengths": ("wavelengths",),
    }
)
"""What is turned, and the parameters of the core that turn with it; those that it lacks are left out."""
FACTORS: Mapping[str, Sequence[float]] = MappingProxyType(
    {
        "laser power": (0.05, 0.1, 0.25, 0.5, 2.0, 4.0),
        "array size": (0.5, 2.0, 3.0),
        "wavelengths": (0.5, 2.0, 4.0),
    }
)
"""Times the present value, by knob."""
BITS = (-3.0, -2.0, -1.0, 1.0, 2.0)
"""Bits more than at present."""
PRESENT = "present"
"""Knob of the system as it is."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a system."""

    knob: str
    """What was turned."""
    value: float
    """Value of the first of its parameters, SI."""
    raised: bool
    """Whether that is above the present value."""
    system: System | None
    """The system, its link budget solved anew; None where it cannot be built."""
    reason: str = ""
    """Why not."""

    @property
    def label(self) -> str:
        """Name of the setting's arithmetic."""
        return self.knob if math.isnan(self.value) else f"{self.knob} {self.value:g}"


def settings(name: str, **options: Any) -> list[Setting]:  # noqa: ANN401 - as `build_system` takes them
    """Return the system as it is, then each knob turned alone; every change goes the way of ``--set``."""
    given = tuple(options.pop("assignments", ()))
    present = build_system(name, **options, assignments=given)
    if present.photonic is None:
        msg = f"system '{name}' has no photonic core whose knobs could be turned; name photonic_packet"
        raise ParameterError(msg)
    found = [Setting(knob=PRESENT, value=math.nan, raised=False, system=present)]
    core = _innermost(present)
    for knob, paths in KNOBS.items():
        owned = [(f"{core}.{path}", _value(present, f"{core}.{path}")) for path in paths]
        values = [(path, value) for path, value in owned if value is not None]
        if not values:
            continue
        for turned in _turned(knob, values, present):
            falls = turned[0][1] < values[0][1]  # effective bits must never exceed nominal ones
            order = reversed(turned) if falls else turned
            changes = tuple(f"{path}={value:.6g}" for path, value in order)
            one = Setting(knob=knob, value=turned[0][1], raised=not falls, system=None)
            try:
                system = build_system(name, **options, assignments=given + changes)
                system.analog()
            except (LinkError, ParameterError) as error:
                found.append(dataclasses.replace(one, reason=str(error)))
            else:
                found.append(dataclasses.replace(one, system=system))
    return found


def _value(system: System, path: str) -> float | None:
    try:
        value = get_at(system, path)
    except ParameterError:
        return None
    return float(value) if isinstance(value, int | float) else None


def _innermost(system: System) -> str:
    """Return the path of the core that multiplies, inside a number format or not."""
    path, core = "photonic.core", system.photonic.core if system.photonic is not None else None
    while (inner := getattr(core, "core", None)) is not None:
        path, core = f"{path}.core", inner
    return path


def _converter(system: System) -> Converter | None:
    """Return the output converter of a system's innermost core, if it has one."""
    core: object = system.photonic.core if system.photonic is not None else None
    while (inner := getattr(core, "core", None)) is not None:
        core = inner
    adc = getattr(core, "adc", None)
    return adc if isinstance(adc, Converter) else None


def _turned(knob: str, values: list[tuple[str, float]], present: System) -> list[list[tuple[str, float]]]:
    if knob == OUTPUT_BITS:
        adc = _converter(present)
        if adc is None:
            return []
        family = [adc.rescaled(adc.enob_bits + more) for more in BITS]  # Walden: each bit twice the energy
        return [[(path, getattr(one, path.rpartition(".")[2])) for path, _ in values] for one in family]
    whole = knob != "laser power"
    return [
        [(path, float(round(value * factor)) if whole else value * factor) for path, value in values]
        for factor in FACTORS[knob]
    ]


def outermost(found: Sequence[Setting]) -> list[Setting]:
    """Return the present setting, and the least and the most of each knob."""
    kept = [found[0]]
    for knob in KNOBS:
        turned = sorted((one for one in found if one.knob == knob), key=lambda one: one.value)
        kept += turned[:1] + turned[1:][-1:]
    return kept
