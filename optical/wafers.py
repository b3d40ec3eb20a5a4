"""Wafers and interposers that join chips by light: their geometry, their losses and their lanes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from heliograph.checks import check_positive, check_range
from heliograph.errors import LinkError
from heliograph.tables import Table, read_table
from heliograph.units import SPEED_OF_LIGHT_M_PER_S, watts_from_dbm
from optical.switches import PARAMETERS, LaneBudget


@dataclass(frozen=True, kw_only=True)
class Wafer:
    """Chips on a grid above waveguides, whose switches lay circuits from chip to chip.

    Notes
    -----
    A circuit goes along rows and columns. For each tile that it comes to it passes a pitch of waveguide, a
    seam between reticles, a switch and the crossings of a tile; one more switch stands at its start.
    """

    name: str = "wafer"
    """Name shown in tables."""
    chips: int
    """Chips on one wafer."""
    lanes: int
    """Circuits that a chip begins, and as many that it ends."""
    lane_bytes_per_s: float
    """Line rate of one circuit."""
    pitch_m: float
    """Distance between neighbouring chips."""
    waveguide_loss_db_per_m: float
    """Loss of the waveguides."""
    crossings: int
    """Waveguides that a circuit crosses for each tile that it comes to."""
    crossing_loss_db: float
    """Loss of one crossing."""
    stitch_loss_db: float
    """Loss where two reticles meet."""
    switch_loss_db: float
    """Loss of one switching element."""
    modulator_loss_db: float
    """Loss of modulator and multiplexers."""
    margin_db: float
    """Penalties and ageing."""
    sensitivity_dbm: float
    """Power the receiver of a lane needs."""
    launch_max_dbm: float
    """Most power that a lane launches."""
    laser_efficiency: float
    """Light in the waveguide over electrical power of the laser, 0 to 1."""
    energy_j_per_bit: float
    """Dynamic energy of a bit over one circuit, without the laser."""
    lane_static_w: float
    """Power of tuning and bias of one lane, all the time."""
    end_latency_s: float
    """Time at both ends of a circuit together."""
    group_index: float
    """Group index of the waveguides, dimensionless."""
    switch_s: float
    """Time until a switching element has settled."""
    relock_s: float
    """Time until a receiver has found the new signal."""
    control_s: float
    """Time from the decision to the command."""
    move_energy_j: float
    """Energy of turning one switching element."""
    chip_price_usd: float
    """Price of wafer, lasers and assembly for each chip."""

    def __post_init__(self) -> None:
        check_range(self, "chips", "lanes", low=1)
        check_positive(self, "lane_bytes_per_s", "pitch_m")
        check_range(self, "waveguide_loss_db_per_m", "crossings", "crossing_loss_db", "stitch_loss_db")
        check_range(self, "switch_loss_db", "modulator_loss_db", "margin_db", "energy_j_per_bit")
        check_range(self, "sensitivity_dbm", "launch_max_dbm", low=-100.0, high=100.0)
        check_range(self, "laser_efficiency", high=1.0, open_low=True)
        check_range(self, "group_index", low=1.0)
        check_range(self, "lane_static_w", "end_latency_s", "switch_s", "relock_s", "control_s")
        check_range(self, "move_energy_j", "chip_price_usd")

    @property
    def egress_bytes_per_s(self) -> float:
        """Line rate of all circuits of a chip, one way."""
        return self.lanes * self.lane_bytes_per_s

    @property
    def columns(self) -> int:
        """Chips in a row of the grid that comes nearest to a square."""
        return math.ceil(math.sqrt(self.chips))

    @property
    def longest_hops(self) -> int:
        """Tiles that the longest circuit comes to: from corner to corner along rows and columns."""
        return self.columns - 1 + math.ceil(self.chips / self.columns) - 1

    @property
    def reconfiguration_s(self) -> float:
        """Time in which a moving circuit carries nothing."""
        return self.control_s + self.switch_s + self.relock_s

    @property
    def latency_s(self) -> float:
        """Time over the longest circuit."""
        light_s = self.longest_hops * self.pitch_m * self.group_index / SPEED_OF_LIGHT_M_PER_S
        return self.end_latency_s + light_s

    def budget(self) -> LaneBudget:
        """Return where the light of the longest circuit goes; every lane launches what that one needs.

        Raises
        ------
        LinkError
            If a lane cannot launch that much; names the element that loses most.
        """
        tiles = self.longest_hops
        losses = (
            ("waveguide", tiles * self.pitch_m * self.waveguide_loss_db_per_m),
            ("crossings", tiles * self.crossings * self.crossing_loss_db),
            ("seams between reticles", tiles * self.stitch_loss_db),
            ("switching elements", (tiles + 1) * self.switch_loss_db),
            ("modulator", self.modulator_loss_db),
            ("margin", self.margin_db),
        )
        launch_dbm = self.sensitivity_dbm + sum(loss for _, loss in losses)
        missing_db = launch_dbm - self.launch_max_dbm
        if missing_db > 0.0:
            what, greatest_db = max(losses, key=lambda item: item[1])
            msg = (
                f"the longest circuit of wafer '{self.name}' ({tiles} tiles) does not close: "
                f"{missing_db:.1f} dB are missing; the greatest loss is {what} ({greatest_db:.1f} dB); "
                "try fewer chips, less of it, or lanes that launch more"
            )
            raise LinkError(msg)
        laser_w = watts_from_dbm(launch_dbm) / self.laser_efficiency
        return LaneBudget(losses_db=losses, launch_dbm=launch_dbm, laser_w=laser_w)


@cache
def wafer_table() -> Table:
    """Return the table of wafers."""
    return read_table(PARAMETERS / "wafers.csv")


def load_wafer(name: str) -> Wafer:
    """Return a wafer from the table, e.g. ``"lightpath"``."""
    return wafer_table().build(Wafer, name)


def wafer_names() -> tuple[str, ...]:
    """Return the wafers of the table."""
    return wafer_table().names
