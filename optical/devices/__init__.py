"""Parts that photonic cores are built of, each a frozen record of table rows, and the list that counts them.

`devices` light, detectors, converters; `modulators` with their drivers; `electronics` what feeds them;
`programmable` phase shifters and cells that hold a setting; `rings` weight rings, their crosstalk;
`receivers` readouts; `amplifiers`; `waveguides` with the loss of bright light; `named_parts` published parts
by name; `limits` the floors of physics; `parts` the parts list of a core, with power, area and energy by
component.
"""

from __future__ import annotations

from optical.devices.amplifiers import Soa
from optical.devices.devices import (
    Adder,
    Comb,
    Converter,
    CrossbarLayout,
    Crossing,
    Die,
    FormatLogic,
    IntegratingReceiver,
    InterferometerArms,
    Laser,
    MeasuredCrossing,
    MeasuredElement,
    MeasuredRouter,
    PassiveElement,
    PhaseShifter,
    Photodetector,
    PulsedLaser,
    RingRouter,
    Sram,
    SummingWires,
    Tia,
    bytes_of_bits,
    device_table,
    shipped,
)
from optical.devices.electronics import Block, ChipElectronics, DieCut, WholeChip, mean_distance_m
from optical.devices.modulators import (
    FROM_NULL,
    THROUGH_NULL,
    AbsorptionModulator,
    Driver,
    Modulator,
    RingModulator,
)
from optical.devices.parts import (
    Device,
    Domain,
    Events,
    Part,
    Per,
    area_m2,
    energy_j,
    full_load_w,
    static_w,
)
from optical.devices.programmable import (
    MEAN_PHASE_RAD,
    QUARTER_TURN_RAD,
    CapacitiveShifter,
    CarrierShifter,
    Decomposer,
    Heater,
    MeshCoupler,
    MeshLayout,
    PcmCell,
    programmable_table,
)
from optical.devices.receivers import Integrator, Sampler
from optical.devices.rings import RingBankLayout, WeightRing
from optical.devices.waveguides import ABSORPTION, Routing, Waveguide

__all__ = [
    "ABSORPTION",
    "FROM_NULL",
    "MEAN_PHASE_RAD",
    "QUARTER_TURN_RAD",
    "THROUGH_NULL",
    "AbsorptionModulator",
    "Adder",
    "Block",
    "CapacitiveShifter",
    "CarrierShifter",
    "ChipElectronics",
    "Comb",
    "Converter",
    "CrossbarLayout",
    "Crossing",
    "Decomposer",
    "Device",
    "Die",
    "DieCut",
    "Domain",
    "Driver",
    "Events",
    "FormatLogic",
    "Heater",
    "IntegratingReceiver",
    "Integrator",
    "InterferometerArms",
    "Laser",
    "MeasuredCrossing",
    "MeasuredElement",
    "MeasuredRouter",
    "MeshCoupler",
    "MeshLayout",
    "Modulator",
    "Part",
    "PassiveElement",
    "PcmCell",
    "Per",
    "PhaseShifter",
    "Photodetector",
    "PulsedLaser",
    "RingBankLayout",
    "RingModulator",
    "RingRouter",
    "Routing",
    "Sampler",
    "Soa",
    "Sram",
    "SummingWires",
    "Tia",
    "Waveguide",
    "WeightRing",
    "WholeChip",
    "area_m2",
    "bytes_of_bits",
    "device_table",
    "energy_j",
    "full_load_w",
    "mean_distance_m",
    "programmable_table",
    "shipped",
    "static_w",
]
