"""Parts of a core as measured: lines of a comb, and the loss, crosstalk and bandwidth of a scattering.

What light meets follows from the file: at optical frequencies losses, crosstalk and the bandwidth of
modulated light, below 1 THz the response of a modulator, detector or amplifier to modulation. What a
scattering matrix does not say (area, power, extinction, noise) stays as it was in the part that stood there.

Columns are named by their unit: ``frequency_thz`` or ``wavelength_nm``, ``power_mw`` or ``power_dbm``, and if
they are known ``linewidth_khz`` and ``rin_db_per_hz``.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from optical.cores.analog import AnalogCore
from optical.devices import (
    AbsorptionModulator,
    Comb,
    Laser,
    MeasuredCrossing,
    MeasuredRouter,
    Modulator,
    PassiveElement,
    PhaseShifter,
    Photodetector,
    RingModulator,
    Tia,
    Waveguide,
)
from optical.devices.devices import MeasuredElement, RingRouter
from optical.devices.programmable import CapacitiveShifter, CarrierShifter, Heater, MeshCoupler, WeightRing
from optical.transfer.scattering import MeasuredScattering, Real, sampled
from simulator.errors import ParameterError, nearest
from simulator.files import read_text
from simulator.units import SPEED_OF_LIGHT_M_PER_S, db_from_ratio, to_si, watts_from_dbm

OF = " of "
"""Text between the name of the part that stood in a place and that of the file that replaced its numbers."""
MODULATORS = (Modulator, RingModulator, AbsorptionModulator)
TWO_PORTS = (*MODULATORS, PhaseShifter, Heater, CapacitiveShifter, CarrierShifter)
"""Kinds of parts with one way through, whose insertion loss a scattering gives."""
ELECTRICAL = (*MODULATORS, Photodetector, Tia)
"""Kinds of parts that a response to modulation may be of."""
MOST_ASIDE = 0.25
"""Light of a side arm over that of the straight way from which a part is no crossing; a choice."""
POINTS_OF_LINEWIDTH = 4
"""Points that a resonance needs within half its height, at least; a choice."""
SAMPLES = 2001
"""Frequencies at which a model is asked for a part without resonance; a choice."""
SAMPLES_OF_LINEWIDTH = 40
"""The same within the linewidth of a ring's resonance; a choice."""
BANDS = 20.0
"""Symbol rates around the lines for which a model is asked; a choice."""


def with_scattering(present: Any, found: MeasuredScattering, field: str, core: AnalogCore) -> Any:  # noqa: ANN401 - any part
    """Return a part with the numbers that a scattering at a core's lines gives it.

    Parameters
    ----------
    present : Device
        The part that stands there.
    found : MeasuredScattering
        The scattering.
    field : str
        Name of its field, which tells splitters, couplers and crossings apart.
    core : AnalogCore
        The core.

    Raises
    ------
    ParameterError
        If the scattering is none of such a part, does not cover the lines, or is narrower than symbols
        where no bandwidth is modelled.
    """
    if present is None:
        msg = f"{found.name}: nothing stands in '{field}' yet; put a part by name there first"
        raise ParameterError(msg)
    if found.electrical:
        changes = _modulated(present, found)
    elif isinstance(present, RingRouter | WeightRing):
        changes = _ring(present, found, core)
    else:
        found.check_covers(core.lines_hz, 0.5 * core.symbol_rate_hz, core.name)
        changes = _passed(present, found, field, core)
    kind = changes.pop("kind", type(present))
    kept = {item.name for item in dataclasses.fields(kind)}
    numbers = {
        item.name: getattr(present, item.name) for item in dataclasses.fields(present) if item.name in kept
    }
    named = {"name": f"{present.name.partition(OF)[0]}{OF}{found.name}"}
    return kind(**(numbers | changes | named))


def scattering_of(
    model: Callable[..., Any], name: str, present: object, core: AnalogCore
) -> MeasuredScattering:
    """Return the scattering of a model in the manner of SAX around the lines of a core.

    Parameters
    ----------
    model : callable
        As `optical.transfer.scattering.sampled` takes it.
    name : str
        What it is called.
    present : Device
        The part that it replaces: around a ring's resonances a model is asked more closely.
    core : AnalogCore
        The core.
    """
    low, high = min(core.lines_hz), max(core.lines_hz)
    if isinstance(present, RingRouter | WeightRing):
        span_hz = 1.1 * present.free_spectral_range_hz
        step_hz = present.linewidth_hz / SAMPLES_OF_LINEWIDTH
        middle = 0.5 * (low + high)
        points = math.ceil(2.0 * span_hz / step_hz) + 1
        frequency_hz = np.linspace(middle - span_hz, middle + span_hz, points)
    else:
        margin = BANDS * core.symbol_rate_hz
        frequency_hz = np.linspace(low - margin, high + margin, SAMPLES)
    return sampled(model, name, frequency_hz)


def _modulated(present: object, found: MeasuredScattering) -> dict[str, Any]:
    """Return the bandwidth of a part from its response to modulation."""
    if not isinstance(present, ELECTRICAL):
        msg = (
            f"{found.name}: ends at {found.frequency_hz[-1]:.3g} Hz, so it is no light; a {_kind(present)} "
            "takes a scattering matrix at optical frequencies"
        )
        raise ParameterError(msg)
    found.check_ports(2, "response to modulation")
    power = found.power("out0", "in0")
    if power[0] <= 0.0:
        msg = f"{found.where(0)}: nothing arrives from in0 at out0; is the response S21?"
        raise ParameterError(msg)
    fallen = np.flatnonzero(power < 0.5 * power[0])
    if not fallen.size:
        return {"bandwidth_hz": float(found.frequency_hz[-1])}
    at, level = int(fallen[0]), 0.5 * power[0]
    share = (level - power[at - 1]) / (power[at] - power[at - 1])
    low, high = found.frequency_hz[at - 1], found.frequency_hz[at]
    return {"bandwidth_hz": float(low + share * (high - low))}


def _passed(present: object, found: MeasuredScattering, field: str, core: AnalogCore) -> dict[str, Any]:
    """Return loss, crosstalk and bandwidth of what light passes without resonance."""
    if isinstance(present, Waveguide):
        loss_db = _two_ports(found, "waveguide", core)
        if not found.length_m:
            msg = (
                f"{found.name}: does not tell the waveguide's length; write '! length 5 mm' in the file, or "
                "give the model a setting length (micrometres) with a default"
            )
            raise ParameterError(msg)
        return {"loss_db_per_m": loss_db / found.length_m}
    if isinstance(present, Laser):
        return {"coupling_loss_db": _two_ports(found, "coupler of fibre and chip", core)}
    if isinstance(present, TWO_PORTS):
        return {"insertion_loss_db": _two_ports(found, _kind(present), core)}
    if isinstance(present, MeshCoupler):
        return _mesh_coupler(found, core)
    if not isinstance(present, PassiveElement):
        msg = f"{found.name}: no scattering matrix says what a core needs of a {_kind(present)}"
        raise ParameterError(msg)
    return _PASSIVES.get(field, _coupler)(found, core)


def _two_ports(found: MeasuredScattering, what: str, core: AnalogCore) -> float:
    """Return the loss of the line that loses most on the only way through a part, which must be flat."""
    found.check_ports(2, what)
    power = found.power("out0", "in0")
    narrowest_hz = min(found.half_power_hz(power, line_hz) for line_hz in core.lines_hz)
    if narrowest_hz < core.symbol_rate_hz:
        msg = (
            f"{found.name}: loses half of a line's power within {narrowest_hz:.3g} Hz of it, less than the "
            f"symbol rate of '{core.name}' ({core.symbol_rate_hz:.3g} Hz), and of a {what} only a flat loss "
            "is modelled; move the lines or lower symbol_rate_hz"
        )
        raise ParameterError(msg)
    return _loss_db(power, found, core, f"of in0 arrives at out0; is this a {what}?")


def _loss_db(power: Real, found: MeasuredScattering, core: AnalogCore, hint: str) -> float:
    """Return the loss of the line that loses most, 0 where calibration left a little gain."""
    worst = float(found.at(power, core.lines_hz).min())
    if worst <= 0.0:
        msg = f"{found.name}: no light {hint}"
        raise ParameterError(msg)
    return max(0.0, -db_from_ratio(worst))


def _bandwidth_hz(found: MeasuredScattering, powers: Sequence[Real], core: AnalogCore) -> float:
    return min(found.half_power_hz(power, line_hz) for power in powers for line_hz in core.lines_hz)


def _splitter(found: MeasuredScattering, core: AnalogCore) -> dict[str, Any]:
    """Return the loss of the worse arm beyond an even division."""
    found.check_ports(3, "splitter")
    arms = [found.power("out0", "in0"), found.power("out1", "in0")]
    losses = [_loss_db(2.0 * arm, found, core, "of in0 arrives at an arm; check the ports") for arm in arms]
    return {
        "kind": MeasuredElement,
        "insertion_loss_db": max(losses),
        "bandwidth_hz": _bandwidth_hz(found, arms, core),
    }


def _coupler(found: MeasuredScattering, core: AnalogCore) -> dict[str, Any]:
    """Return the loss of an interference of both inputs, read as the difference of both outputs.

    Fields a and b leave with the difference |E0|^2 - |E1|^2 = 2 Re(a b* (s00 s01* - s10 s11*)) + ..., and of
    an ideal coupler that bracket has the modulus 1: loss and uneven division are in it together.
    """
    found.check_ports(4, "coupler")
    field = {(i, j): found.field(f"out{i}", f"in{j}") for i in (0, 1) for j in (0, 1)}
    product = np.abs(field[0, 0] * field[0, 1].conj() - field[1, 0] * field[1, 1].conj())
    hint = "interferes; a coupler divides each input between out0 and out1: check the order of the ports"
    if float(found.at(product, core.lines_hz).min()) < 0.1:
        msg = f"{found.name}: less than a tenth of the light {hint} (! ports in0 in1 out0 out1)"
        raise ParameterError(msg)
    return {
        "kind": MeasuredElement,
        "insertion_loss_db": _loss_db(product, found, core, hint),
        "bandwidth_hz": _bandwidth_hz(found, [product], core),
    }


def _mesh_coupler(found: MeasuredScattering, core: AnalogCore) -> dict[str, Any]:
    """Return the loss of a mesh's coupler and the error of its angle."""
    found.check_ports(4, "coupler")
    through, across = found.power("out0", "in0"), found.power("out1", "in0")
    shares = found.at(across, core.lines_hz) / found.at(through + across, core.lines_hz)
    angles = np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))
    return {
        "insertion_loss_db": _loss_db(through + across, found, core, "of in0 arrives; check the ports"),
        "angle_error_rad": float(np.abs(angles - math.pi / 4.0).max()),
    }


def _crossing(found: MeasuredScattering, core: AnalogCore) -> dict[str, Any]:
    """Return the loss of the straight way, and the share that leaks into the worse side arm."""
    found.check_ports(4, "crossing")
    straight = found.power("out0", "in0")
    sides = np.maximum(found.power("out1", "in0"), found.power("in1", "in0"))
    at_lines = found.at(sides, core.lines_hz)
    if bool((at_lines > MOST_ASIDE * found.at(straight, core.lines_hz)).any()):
        msg = (
            f"{found.name}: too much light of in0 leaves by a side arm and not by out0; name the ports in "
            "the order of the file, '! ports in0 out0 in1 out1' or so"
        )
        raise ParameterError(msg)
    changes = {
        "kind": MeasuredElement,
        "insertion_loss_db": _loss_db(straight, found, core, "of in0 arrives at out0; check the ports"),
        "bandwidth_hz": _bandwidth_hz(found, [straight], core),
    }
    if core.holds_weights:  # a leak at a fixed cell is learnt with the cell
        return changes
    return changes | {"kind": MeasuredCrossing, "crosstalk": float(at_lines.max())}


_PASSIVES: Mapping[str, Callable[[MeasuredScattering, AnalogCore], dict[str, Any]]] = MappingProxyType(
    {"branch": _splitter, "crossing": _crossing}
)
"""Reader of a passive element by the field that it stands in; others are couplers."""


@dataclass(frozen=True, kw_only=True)
class Resonance:
    """Resonance of a ring's drop nearest to the middle of a core's lines."""

    peak_hz: float
    """Its frequency."""
    drop: float
    """Share of power dropped there."""
    linewidth_hz: float
    """Full width at half its height."""
    free_spectral_range_hz: float
    """Distance to the nearest other resonance; the span of the data where there is no other."""


def resonance_of(found: MeasuredScattering, middle_hz: float) -> Resonance:
    """Return the resonance of a ring that lies nearest to a frequency.

    Raises
    ------
    ParameterError
        If there is none whose sides lie within the data, or it has too few points.
    """
    drop = found.power("out1", "in0")
    inner = (drop[1:-1] >= drop[:-2]) & (drop[1:-1] > drop[2:]) & (drop[1:-1] > 0.5 * drop.max())
    peaks = np.flatnonzero(inner) + 1
    if not peaks.size:
        msg = f"{found.name}: the way from in0 to out1, the drop, has no resonance; check the ports"
        raise ParameterError(msg)
    peak = int(peaks[np.argmin(np.abs(found.frequency_hz[peaks] - middle_hz))])
    fallen = found.crossings_hz(drop, 0.5 * float(drop[peak]))
    peak_hz = float(found.frequency_hz[peak])
    below, above = fallen[fallen < peak_hz], fallen[fallen > peak_hz]
    if not (below.size and above.size):
        msg = (
            f"{found.name}: the resonance at {peak_hz:.6g} Hz is not covered to both its sides; measure wider"
        )
        raise ParameterError(msg)
    linewidth_hz = float(above[0] - below[-1])
    if linewidth_hz < POINTS_OF_LINEWIDTH * found.step_hz:
        msg = (
            f"{found.name}: points lie up to {found.step_hz:.3g} Hz apart, and the resonance at "
            f"{peak_hz:.6g} Hz is "
            f"{linewidth_hz:.3g} Hz wide; measure at least {POINTS_OF_LINEWIDTH} points of it"
        )
        raise ParameterError(msg)
    others = np.abs(found.frequency_hz[peaks] - peak_hz)
    others = others[others > 2.0 * linewidth_hz]
    span_hz = float(found.frequency_hz[-1] - found.frequency_hz[0])
    return Resonance(
        peak_hz=peak_hz,
        drop=float(drop[peak]),
        linewidth_hz=linewidth_hz,
        free_spectral_range_hz=float(others.min()) if others.size else span_hz,
    )


def _ring(present: RingRouter | WeightRing, found: MeasuredScattering, core: AnalogCore) -> dict[str, Any]:
    """Return the numbers of an add-drop ring, which a heater holds on a line wherever its resonance was.

    What passes off resonance loses what is dropped of it and the pass loss: the median beyond two linewidths.
    """
    found.check_ports(4, "ring between two buses")
    lines_hz = core.lines_hz
    at = resonance_of(found, 0.5 * (min(lines_hz) + max(lines_hz)))
    drop, through = found.power("out1", "in0"), found.power("out0", "in0")
    offset_hz = found.frequency_hz - at.peak_hz
    half_hz = 0.5 * at.free_spectral_range_hz
    near = np.abs(offset_hz) <= half_hz
    aside = near & (np.abs(offset_hz) > 2.0 * at.linewidth_hz)
    passed = through[aside] / np.maximum(1.0 - drop[aside], np.finfo(float).tiny)
    if not aside.any() or float(np.median(passed)) <= 0.0:
        msg = (
            f"{found.name}: no light passes from in0 to out0 beside the resonance; check the ports, or "
            "measure wider"
        )
        raise ParameterError(msg)
    pass_loss_db = max(0.0, -db_from_ratio(float(np.median(passed))))
    drop_loss_db = max(0.0, -db_from_ratio(at.drop))
    changes: dict[str, Any] = {
        "free_spectral_range_hz": at.free_spectral_range_hz,
        "pass_loss_db": pass_loss_db,
    }
    if isinstance(present, WeightRing):
        quality = at.peak_hz / at.linewidth_hz
        return changes | {"quality_factor": quality, "carrier_hz": at.peak_hz, "drop_loss_db": drop_loss_db}
    return changes | {
        "kind": MeasuredRouter,
        "linewidth_hz": at.linewidth_hz,
        "insertion_loss_db": drop_loss_db,
        "offset_hz": tuple(float(value) for value in offset_hz[near]),
        "share": tuple(float(value) for value in drop[near] / at.drop),
    }


def _kind(present: object) -> str:
    """Return the name of a part's kind in words."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(present).__name__)
    return words.strip()


MOST_UNEVEN = 0.2
"""Deviation of a gap between lines from their mean, over it, from which a line is missing; a choice."""
MOST_WANDER_RAD2 = 0.01
"""Variance of a line's phase over a symbol from which it is no line any more; a choice."""
LEAST_MATCH = 0.1
"""Deviation of the lines' spacing from what a ring bank spreads them by, over it; a choice."""
_COLUMNS: dict[str, tuple[str, Callable[[float], float]]] = {
    "frequency_thz": ("frequency_hz", lambda value: to_si("x_hz", value, "THz")),
    "frequency_ghz": ("frequency_hz", lambda value: to_si("x_hz", value, "GHz")),
    "wavelength_nm": ("frequency_hz", lambda value: SPEED_OF_LIGHT_M_PER_S / to_si("x_m", value, "nm")),
    "power_mw": ("power_w", lambda value: to_si("x_w", value, "mW")),
    "power_dbm": ("power_w", watts_from_dbm),
    "linewidth_khz": ("linewidth_hz", lambda value: to_si("x_hz", value, "kHz")),
    "rin_db_per_hz": ("rin_db_per_hz", lambda value: value),
}
COLUMNS = MappingProxyType(_COLUMNS)
"""Column of a table -> what it says, and its value in SI."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CombLines:
    """Lines of a comb, by rising frequency."""

    name: str
    """Name of the file."""
    frequency_hz: Real
    """Frequencies, shape (lines,)."""
    power_w: Real
    """Powers at the source, before the light is coupled into a chip, shape (lines,)."""
    linewidth_hz: float | None
    """Width of the widest line; None where it is not told."""
    rin_db_per_hz: float | None
    """Relative intensity noise of the noisiest line; None where it is not told."""

    def brightest(self, count: int) -> CombLines:
        """Return `count` neighbouring lines, those whose weakest line is brightest.

        Raises
        ------
        ParameterError
            If there are too few lines, or one is missing among them.
        """
        if count > self.power_w.size:
            msg = (
                f"{self.name}: has {self.power_w.size} lines, and {count} are needed; take another comb, or "
            )
            msg += "fewer wavelengths"
            raise ParameterError(msg)
        weakest = [float(self.power_w[at : at + count].min()) for at in range(self.power_w.size - count + 1)]
        first = int(np.argmax(weakest))
        taken = dataclasses.replace(
            self,
            frequency_hz=self.frequency_hz[first : first + count],
            power_w=self.power_w[first : first + count],
        )
        gaps = np.diff(taken.frequency_hz)
        if gaps.size and float(np.abs(gaps - gaps.mean()).max()) > MOST_UNEVEN * float(gaps.mean()):
            at = int(np.argmax(np.abs(gaps - gaps.mean())))
            msg = (
                f"{self.name}: behind {taken.frequency_hz[at]:.6g} Hz a gap of {gaps[at]:.4g} Hz stands "
                f"among gaps of {gaps.mean():.4g} Hz; is a line missing?"
            )
            raise ParameterError(msg)
        return taken

    @property
    def spacing_hz(self) -> float:
        """Mean distance of neighbouring lines; infinite of one."""
        size = self.frequency_hz.size
        return float(np.ptp(self.frequency_hz)) / (size - 1) if size > 1 else math.inf


def read_comb(path: Path) -> CombLines:
    """Return the lines of a table.

    Raises
    ------
    ParameterError
        If a column is unknown, missing or stands for the same as another, or a cell is no number that could
        be one.
    """
    rows = [row for row in csv.reader(read_text(path).splitlines()) if row]
    header = [cell.strip().lower() for cell in rows[0]]
    for column in header:
        if column not in COLUMNS:
            msg = f"{path.name}:1: column '{column}' is unknown; {nearest(column, COLUMNS, noun='column')}"
            raise ParameterError(msg)
    said = [COLUMNS[column][0] for column in header]
    for wanted, shown in (
        ("frequency_hz", "frequency_thz or wavelength_nm"),
        ("power_w", "power_mw or power_dbm"),
    ):
        if said.count(wanted) != 1:
            msg = f"{path.name}:1: give one column {shown}; there are {said.count(wanted)}"
            raise ParameterError(msg)
    if len(rows) < 2:
        msg = f"{path.name}: has a header and no line"
        raise ParameterError(msg)
    numbers = np.array([_row(path, line, header, row) for line, row in enumerate(rows[1:], 2)])
    values = dict(zip(said, numbers.T, strict=True))
    order = np.argsort(values["frequency_hz"])
    widths, noises = values.get("linewidth_hz"), values.get("rin_db_per_hz")
    return CombLines(
        name=path.name,
        frequency_hz=values["frequency_hz"][order],
        power_w=values["power_w"][order],
        linewidth_hz=None if widths is None else float(widths.max()),
        rin_db_per_hz=None if noises is None else float(noises.max()),
    )


def _row(path: Path, line: int, header: list[str], row: list[str]) -> list[float]:
    """Return the numbers of a row in SI."""
    if len(row) != len(header):
        msg = f"{path.name}:{line}: has {len(row)} cells, and the header {len(header)}"
        raise ParameterError(msg)
    found = []
    for column, cell in zip(header, row, strict=True):
        signed = column in ("power_dbm", "rin_db_per_hz")
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or (value <= 0.0 and not signed):
            msg = f"{path.name}:{line}: {column} is '{cell.strip()}'; write a finite number"
            msg += "" if signed else " above zero"
            raise ParameterError(msg)
        found.append(COLUMNS[column][1](value))
    return found


def with_comb(core: AnalogCore, comb: Comb, found: CombLines) -> AnalogCore:
    """Return a core lit by a comb's lines.

    Parameters
    ----------
    core : AnalogCore
        With a comb.
    comb : Comb
        The comb that stands there, whose conversion of a pump into all lines stays.
    found : CombLines
        The lines.

    Raises
    ------
    ParameterError
        If there are too few lines, they do not fit between the rings' resonances, or are too wide.

    Notes
    -----
    All lines are dimmed to the weakest that is used, so that the light of the others, and what the weakest
    lacks to the rest, is lost: the conversion efficiency falls by used over whole power.
    """
    count = len(core.lines_hz)
    used = found.brightest(count)
    weakest = float(used.power_w.min())
    if found.linewidth_hz is not None:
        wander = 2.0 * math.pi * found.linewidth_hz / core.symbol_rate_hz
        if wander > MOST_WANDER_RAD2:
            msg = (
                f"{found.name}: lines of {found.linewidth_hz:.3g} Hz turn by {math.sqrt(wander):.2g} rad "
                f"within a symbol of '{core.name}'; lines below "
                f"{MOST_WANDER_RAD2 * core.symbol_rate_hz / (2.0 * math.pi):.3g} Hz are needed"
            )
            raise ParameterError(msg)
    share = count * weakest / float(found.power_w.sum())
    lit = dataclasses.replace(
        comb,
        name=f"{comb.name.partition(OF)[0]}{OF}{found.name}",
        conversion_efficiency=comb.conversion_efficiency * share,
        line_w=weakest,
    )
    laser = core.laser
    if found.rin_db_per_hz is not None:
        name = f"{laser.name.partition(OF)[0]}{OF}{found.name}"
        laser = dataclasses.replace(laser, name=name, rin_db_per_hz=found.rin_db_per_hz)
    changes = {"comb": lit, "laser": laser, "laser_power_w": weakest} | _spaced(core, used)
    return dataclasses.replace(core, **changes)  # type: ignore[arg-type]


def _spaced(core: AnalogCore, used: CombLines) -> dict[str, object]:
    """Return the fields of a core that place its lines as a comb does."""
    if used.frequency_hz.size == 1:
        return {}
    middle_hz = float(used.frequency_hz.mean())
    grid = core.chip.grid
    if grid is not None:
        spacing_m = used.spacing_hz * SPEED_OF_LIGHT_M_PER_S / middle_hz**2
        wavelength_m = SPEED_OF_LIGHT_M_PER_S / middle_hz
        name = f"{grid.name.partition(OF)[0]}{OF}{used.name}"
        moved = dataclasses.replace(grid, name=name, spacing_m=spacing_m, wavelength_m=wavelength_m)
        return {"chip": dataclasses.replace(core.chip, grid=moved)}
    if "line_spacing_hz" in {item.name for item in dataclasses.fields(core)}:
        return {"line_spacing_hz": used.spacing_hz}
    wanted_hz = core.lines_hz[1] - core.lines_hz[0]
    if abs(used.spacing_hz - wanted_hz) > LEAST_MATCH * wanted_hz:
        msg = (
            f"{used.name}: lines stand {used.spacing_hz:.4g} Hz apart, and '{core.name}' spreads "
            f"{len(core.lines_hz)} lines {wanted_hz:.4g} Hz apart over the free spectral range of its rings; "
            "take another number of wavelengths, or other rings (ring.free_spectral_range_hz)"
        )
        raise ParameterError(msg)
    return {}
