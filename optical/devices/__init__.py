"""Parts that photonic cores are built of, each a frozen record of table rows, and the list that counts them.

`devices` has light, detectors and converters, `modulators` those with their drivers, `electronics` what
feeds and reads them, `programmable` phase shifters, rings and cells that hold a setting, `waveguides` the
loss of bright light; `named_parts` are published parts by name, `limits` the floors of physics, `parts` the
parts list of a core, with power, area and energy.
"""

from __future__ import annotations

from optical.devices.devices import (
    Comb,
    Converter,
    Crossing,
    Die,
    FormatLogic,
    IntegratingReceiver,
    Laser,
    MeasuredCrossing,
    MeasuredRouter,
    PassiveElement,
    PhaseShifter,
    Photodetector,
    PulsedLaser,
    Sram,
    SummingWires,
    Tia,
    device_table,
    shipped,
)
from optical.devices.electronics import ChipElectronics, Integrator, Sampler, WholeChip, mean_distance_m
from optical.devices.modulators import (
    FROM_NULL,
    THROUGH_NULL,
    AbsorptionModulator,
    Driver,
    Modulator,
    RingModulator,
)
from optical.devices.parts import Domain, Events, Part, Per, area_m2, full_load_w, static_w
from optical.devices.programmable import programmable_table
from optical.devices.waveguides import ABSORPTION, Waveguide

__all__ = [
    "ABSORPTION",
    "FROM_NULL",
    "THROUGH_NULL",
    "AbsorptionModulator",
    "ChipElectronics",
    "Comb",
    "Converter",
    "Crossing",
    "Die",
    "Domain",
    "Driver",
    "Events",
    "FormatLogic",
    "IntegratingReceiver",
    "Integrator",
    "Laser",
    "MeasuredCrossing",
    "MeasuredRouter",
    "Modulator",
    "Part",
    "PassiveElement",
    "Per",
    "PhaseShifter",
    "Photodetector",
    "PulsedLaser",
    "RingModulator",
    "Sampler",
    "Sram",
    "SummingWires",
    "Tia",
    "Waveguide",
    "WholeChip",
    "area_m2",
    "device_table",
    "full_load_w",
    "mean_distance_m",
    "programmable_table",
    "shipped",
    "static_w",
]
