"""A core from outside: time-multiplexed homodyne with transmitters in thin-film lithium niobate.

A transmitter per row and column sends one element in each symbol; light crosses to a silicon nitride chip, is
fanned out to rows x columns units, and each unit integrates its products until it is read.

References
----------
L. Zhou et al., "Homodyne photonic tensor processor exceeds 1,000-TOPS", arXiv:2604.18496, abstract: time
multiplexing, 256 x 256 units below 0.0064 mm2 each, transmitters of over 40 GHz, chips coupled to each other.
LNOI400 design kit: 3.3 V cm in push-pull, 0.2 dB/cm, phase shifters of 7.5 mm.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from optical.cores import (
    AnalogCore,
    ArrayShape,
    converter_parts,
    default_interfering_chip,
    integrating_receiver_of,
    source_parts,
)
from optical.devices import (
    Driver,
    Events,
    IntegratingReceiver,
    Modulator,
    Part,
    PassiveElement,
    Per,
    Waveguide,
    shipped,
)
from optical.noise.chip import Chip
from optical.noise.link_budget import LinkBudget, elements_of

TRANSMITTER = Modulator(
    name="transmitter",
    insertion_loss_db=0.15,
    extinction_ratio_db=25.0,
    bandwidth_hz=40e9,
    half_wave_v=4.4,
    termination_ohm=50.0,
    area_m2=0.375e-6,
)
"""Travelling-wave modulator, driven through null into its termination."""
LINE_DRIVER = Driver(
    name="line_driver", swing_v=8.8, power_w=0.2, rate_hz=50e9, linearity_db=50.0, area_m2=1e-8
)
FACET = PassiveElement(name="facet", insertion_loss_db=1.0, area_m2=1e-9)


@dataclass(frozen=True, kw_only=True)
class LithiumNiobate(AnalogCore):
    """Time-multiplexed homodyne core with transmitters in thin-film lithium niobate."""

    holds_weights: ClassVar[bool] = False
    counts: ClassVar[tuple[str, ...]] = ("rows", "columns", "integration_symbols", "outputs_per_adc")
    sides: ClassVar[tuple[str, ...]] = ("rows", "columns")
    name: str = "lithium_niobate"
    rows: int = 64
    columns: int = 64
    integration_symbols: int = 256
    outputs_per_adc: int = 8
    unit_m: float = 80e-6
    feed_m: float = 2e-3
    modulator: Modulator = TRANSMITTER
    driver: Driver | None = LINE_DRIVER
    facet: PassiveElement = FACET
    receiver: IntegratingReceiver = shipped(IntegratingReceiver, "homodyne_receiver")
    chip: Chip = field(default_factory=lambda: default_interfering_chip(on_lines=False))

    @classmethod
    def default(cls):
        """Return 64 x 64 units at 40 GHz of today's parts; 200 mW of light and 1 dB a facet are choices."""
        return cls(
            symbol_rate_hz=40e9,
            laser_power_w=0.2,
            waveguide=Waveguide(name="silicon nitride", loss_db_per_m=20.0),
        )

    modulators = property(lambda s: s.rows + s.columns)
    receivers = property(lambda s: s.rows * s.columns)
    analog_length = property(lambda s: s.integration_symbols)
    peak_macs_per_s = property(lambda s: s.receivers * s.symbol_rate_hz)
    array = property(lambda s: ArrayShape(rows=s.rows, columns=s.columns, length=1, lit_rows=s.rows))
    readout_symbols = property(lambda s: s.outputs_per_adc * s.symbol_rate_hz / s.adc.rate_hz)
    sample_rate_hz = property(
        lambda self: self.symbol_rate_hz / max(self.analog_length, self.readout_symbols)
    )

    @cached_property
    def link(self):
        source, side = self.source(), max(self.rows, self.columns)
        path = (
            ("coupling", 1, self.laser.coupling_loss_db),
            (self.modulator.name, 1, self.modulator_loss_db),
            (self.facet.name, 1, self.facet.insertion_loss_db),
            (self.branch.name, 2 * math.ceil(math.log2(side)) + 1, self.branch.insertion_loss_db),
            *self.routing(feed_m=self.feed_m, array_m=side * self.unit_m, guides=2.0 * side).losses,
        )
        return LinkBudget(
            elements=elements_of(path),
            split=2.0 * self.receivers,
            launch_w=source.launch_w,
            receiver=integrating_receiver_of(self, self.receiver, None, source, self.integration_symbols),
            wavelengths=1,
            symbols=self.integration_symbols,
        )

    def events(self, operator, cores):
        rows, columns = math.ceil(operator.m / self.rows), math.ceil(operator.n / self.columns)
        readings = math.ceil(operator.k / self.analog_length)
        rounds = math.ceil(operator.batch * rows * columns / cores)
        symbols = operator.batch * operator.k * (operator.m * columns + operator.n * rows)
        return Events(
            cycles=rounds * max(operator.k, readings * self.readout_symbols),
            symbols=symbols,
            samples=operator.batch * operator.m * operator.n * readings,
            operand_bytes=symbols * self.word_bytes,
        )

    def parts(self):
        unit, pair = replace(FACET, name="unit", area_m2=self.unit_m**2), self.receiver
        return (
            *source_parts(self),
            *converter_parts(self, adcs=math.ceil(self.receivers / self.outputs_per_adc)),
            Part("photodetector", pair, self.receivers, pair.bias_w(2.0 * self.link.received_w)),
            Part("integrator", pair, 1, pair.sample_j(self.adc.rate_hz), Per.SAMPLE),
            Part("units", unit, self.receivers),
            Part("facet", self.facet, self.modulators),
            Part("fan-out", self.branch, 2.0 * self.receivers),
        )
