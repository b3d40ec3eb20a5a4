"""Parts by name, as published, to replace the typical ones of the device tables in any core."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from optical.devices.devices import (
    Comb,
    Converter,
    Crossing,
    IntegratingReceiver,
    Laser,
    PassiveElement,
    PhaseShifter,
    Photodetector,
    PulsedLaser,
    Soa,
    Tia,
    device_table,
)
from optical.devices.electronics import Integrator, Sampler
from optical.devices.limits import sampling_floor_j
from optical.devices.modulators import AbsorptionModulator, Driver, Modulator, RingModulator
from optical.devices.programmable import (
    CapacitiveShifter,
    CarrierShifter,
    Heater,
    PcmCell,
    WeightRing,
    programmable_table,
)
from optical.devices.waveguides import Waveguide
from simulator.errors import ParameterError
from simulator.tables import Status, Table, read_table


class Role(StrEnum):
    """Role of a part in a core."""

    ADC = "adc"
    DAC = "dac"
    LASER = "laser"
    COMB = "comb"
    MODULATOR = "modulator"
    DRIVER = "driver"
    PHASE_SHIFTER = "phase shifter"
    DETECTOR = "detector"
    TIA = "tia"
    READOUT = "readout"
    AMPLIFIER = "amplifier"
    RING = "ring"
    CELL = "cell"
    SPLITTER = "branch"
    COUPLER = "coupler"
    CROSSING = "crossing"
    WAVEGUIDE = "waveguide"


@cache
def named_parts_table() -> Table:
    """Return the table of named parts.

    Notes
    -----
    Parts of the ADC survey (B. Murmann, github.com/bmurmann/ADC-survey) carry the effective bits that they
    reach at high frequency, not those of their titles. ``adc_survey_8b`` and its like are the survey's median
    between 5 and 20 GS/s; the low end of their power is its best part.
    """
    return read_table(Path(__file__).parents[1] / "parameters" / "named_parts.csv")


_KINDS: Mapping[str, tuple[Role, type]] = MappingProxyType(
    {
        "adc_": (Role.ADC, Converter),
        "dac_": (Role.DAC, Converter),
        "laser_": (Role.LASER, Laser),
        "pulsed_laser_": (Role.LASER, PulsedLaser),
        "comb_": (Role.COMB, Comb),
        "mzm_": (Role.MODULATOR, Modulator),
        "mrm_": (Role.MODULATOR, RingModulator),
        "eam_": (Role.MODULATOR, AbsorptionModulator),
        "driver_": (Role.DRIVER, Driver),
        "shifter_thermal_": (Role.PHASE_SHIFTER, Heater),
        "shifter_mems_": (Role.PHASE_SHIFTER, CapacitiveShifter),
        "shifter_eo_": (Role.PHASE_SHIFTER, CapacitiveShifter),
        "shifter_carrier_": (Role.PHASE_SHIFTER, CarrierShifter),
        "detector_": (Role.DETECTOR, Photodetector),
        "tia_": (Role.TIA, Tia),
        "soa_": (Role.AMPLIFIER, Soa),
        "ring_": (Role.RING, WeightRing),
        "branch_": (Role.SPLITTER, PassiveElement),
        "coupler_": (Role.COUPLER, PassiveElement),
        "crossing_": (Role.CROSSING, Crossing),
        "waveguide_": (Role.WAVEGUIDE, Waveguide),
    }
)
"""Beginning of a name in the table of named parts, its role, and the class that its rows build."""
_SHIPPED: Mapping[str, tuple[Role, type, Callable[[], Table]]] = MappingProxyType(
    {
        "adc": (Role.ADC, Converter, device_table),
        "dac": (Role.DAC, Converter, device_table),
        "laser": (Role.LASER, Laser, device_table),
        "carved_laser": (Role.LASER, PulsedLaser, device_table),
        "micro_comb": (Role.COMB, Comb, device_table),
        "mzm_quoted": (Role.MODULATOR, Modulator, device_table),
        "phase_shifter": (Role.PHASE_SHIFTER, PhaseShifter, device_table),
        "heater": (Role.PHASE_SHIFTER, Heater, programmable_table),
        "photodetector": (Role.DETECTOR, Photodetector, device_table),
        "tia": (Role.TIA, Tia, device_table),
        "integrator": (Role.READOUT, Integrator, device_table),
        "sampler": (Role.READOUT, Sampler, device_table),
        "weight_ring": (Role.RING, WeightRing, device_table),
        "y_branch": (Role.SPLITTER, PassiveElement, device_table),
        "directional_coupler": (Role.COUPLER, PassiveElement, device_table),
        "crossing": (Role.CROSSING, Crossing, device_table),
        "si_waveguide": (Role.WAVEGUIDE, Waveguide, device_table),
        "pcm_gsse": (Role.CELL, PcmCell, programmable_table),
        "pcm_gst": (Role.CELL, PcmCell, programmable_table),
    }
)
"""Parts of the device tables that cores are built of by default, or could be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedPart:
    """Part that can be taken by name."""

    name: str
    """Its name."""
    role: Role
    """Its role."""
    kind: type
    """Dataclass that it is built as."""
    table: Table
    """Table that has its rows."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of its rows, each once, the most trusted first."""
        rows = sorted(self.table.of(self.name), key=lambda row: list(Status).index(row.status))
        return tuple(dict.fromkeys(row.source for row in rows))

    def build(self) -> Any:  # noqa: ANN401 - one of many dataclasses
        """Return the part.

        Raises
        ------
        ParameterError
            If a row is out of range, or an ADC beats 8 k T SNR, what sampling takes at least.
        """
        part: Any = self.table.build(self.kind, self.name)
        if self.role is Role.ADC and part.conversion_j < sampling_floor_j(part.enob_bits):
            floor_j = sampling_floor_j(part.enob_bits)
            msg = (
                f"{self.table.path.name}: '{self.name}' takes {part.conversion_j:.3g} J per conversion, less "
                f"than the {floor_j:.3g} J that {part.enob_bits:g} effective bits need (8 k T SNR); check "
                "its power, rate and effective bits"
            )
            raise ParameterError(msg)
        return part


@cache
def named_parts() -> Mapping[str, NamedPart]:
    """Return all parts that can be taken by name.

    Raises
    ------
    ParameterError
        If a row of the table begins with no kind of part.
    """
    found = {
        name: NamedPart(name=name, role=role, kind=kind, table=table())
        for name, (role, kind, table) in _SHIPPED.items()
    }
    table = named_parts_table()
    for name in table.names:
        kinds = [known for start, known in _KINDS.items() if name.startswith(start)]
        if not kinds:
            msg = f"{table.path.name}: '{name}' must begin with one of {', '.join(_KINDS)}"
            raise ParameterError(msg)
        role, kind = kinds[0]
        found[name] = NamedPart(name=name, role=role, kind=kind, table=table)
    return MappingProxyType(found)


def fits(part: NamedPart, field: str, kinds: tuple[type, ...]) -> bool:
    """Return whether a part can be put into a field of a core.

    Parameters
    ----------
    part : NamedPart
        The part.
    field : str
        Name of the field; it tells converters of either way, and passive elements, apart.
    kinds : tuple of type
        Dataclasses that the field takes.
    """
    if part.kind in (Converter, PassiveElement):
        return part.kind in kinds and field.endswith(str(part.role))
    return part.kind in kinds or (part.kind is Photodetector and IntegratingReceiver in kinds)


def fitted(part: object, present: object) -> object:
    """Return a part fitted to the place of another: a detector becomes the pair of an integrating receiver.

    Notes
    -----
    The receiver keeps its capacitor, and its bias: an integrator's, not an amplifier's.
    """
    if isinstance(part, Photodetector) and isinstance(present, IntegratingReceiver):
        return dataclasses.replace(
            present,
            responsivity_a_per_w=part.responsivity_a_per_w,
            dark_current_a=part.dark_current_a,
            cmrr_db=part.cmrr_db,
            area_m2=2.0 * part.area_m2,
        )
    return part


def names_of(role: Role) -> tuple[str, ...]:
    """Return the names of the parts of the table that have a role."""
    table = named_parts_table().names
    return tuple(name for name, part in named_parts().items() if part.role is role and name in table)
