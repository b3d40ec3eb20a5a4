"""A core from outside whose light crosses free space: no waveguide, branch or facet, modulators of no loss.

References
----------
Z. Chen et al., "Deep learning with coherent VCSEL neural networks", Nature Photonics 17 (2023) 723: lasers
that are modulated directly, fanned out by a diffractive element to pairs that integrate.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from optical.cores import converter_parts
from optical.devices import Laser, Modulator, Part, PassiveElement, Per
from optical.noise.link_budget import elements_of
from tests.conformance.lithium_niobate import TRANSMITTER, LithiumNiobate

LASER = Laser(
    name="vcsel", wall_plug_efficiency=0.25, rin_db_per_hz=-140.0, coupling_loss_db=0.5, area_m2=6.4e-9
)
DIRECT = replace(TRANSMITTER, name="locked phase", insertion_loss_db=0.0)
FAN_OUT = PassiveElement(name="diffractive fan-out", insertion_loss_db=1.5, area_m2=1e-9)
NOT_THERE = ("core.waveguide", "core.feed", "core.branch", "core.facet", "core.feed_m")
"""What it takes over and has no use for."""


@dataclass(frozen=True, kw_only=True)
class FreeSpace(LithiumNiobate):
    """Array of a laser for each row and column in free space, both operands dynamic, sums over time."""

    name: str = "free_space"
    rows: int = 32
    columns: int = 32
    laser: Laser = LASER
    modulator: Modulator = DIRECT
    fan_out: PassiveElement = FAN_OUT

    @classmethod
    def default(cls):
        """Return 32 x 32 pairs at 10 GHz; 2 mW a laser is a choice."""
        return cls(symbol_rate_hz=10e9, laser_power_w=2e-3)

    @cached_property
    def link(self):
        path = (
            ("coupling", 1, self.laser.coupling_loss_db),
            (self.modulator.name, 1, self.modulator_loss_db),
            (self.fan_out.name, 1, self.fan_out.insertion_loss_db),
        )
        split = float(max(self.rows, self.columns))
        return replace(super().link, elements=elements_of(path), split=split)

    def parts(self):
        unit, pair = replace(FAN_OUT, name="unit", area_m2=self.unit_m**2), self.receiver
        return (
            Part("laser", self.laser, self.modulators, self.laser_power_w / self.laser.wall_plug_efficiency),
            *converter_parts(self, adcs=self.receivers / self.outputs_per_adc),
            Part("photodetector", pair, self.receivers, pair.bias_w(2.0 * self.link.received_w)),
            Part("integrator", pair, 1, pair.sample_j(self.adc.rate_hz), Per.SAMPLE),
            Part("units", unit, self.receivers),
            Part("fan-out", self.fan_out, self.modulators),
        )
