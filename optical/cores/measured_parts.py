"""Parts of a core from measurements: scattering matrices of parts, and the lines of a comb.

A scattering matrix at optical frequencies gives losses, crosstalk and the bandwidth of modulated light; one
below 1 THz gives the response of a modulator, detector or amplifier to modulation. Numbers that it does not
give (area, power, extinction, noise) are kept from the part that it replaces. Functions named `_..._changes`
return the fields that a scattering replaces, by name; ``"kind"`` is the class of the new part, where that is
another one.

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
"""Text between the name of the replaced part and that of the measurement, in the new part's name."""
MODULATORS = (Modulator, RingModulator, AbsorptionModulator)
TWO_PORTS = (*MODULATORS, PhaseShifter, Heater, CapacitiveShifter, CarrierShifter)
"""Kinds of parts with one input and one output, whose insertion loss a scattering gives."""
ELECTRICAL = (*MODULATORS, Photodetector, Tia)
"""Kinds of parts that may have a response to modulation."""
MOST_ASIDE = 0.25
"""Power in a side arm over that going straight from which a part does not count as a crossing; a choice."""
POINTS_OF_LINEWIDTH = 4
"""Fewest points of data within the linewidth of a resonance; a choice."""
SAMPLES = 2001
"""Frequencies at which a model of a part without resonance is evaluated; a choice."""
SAMPLES_OF_LINEWIDTH = 40
"""Frequencies within the linewidth of a ring at which its model is evaluated; a choice."""
BANDS = 20.0
"""Symbol rates on either side of the lines over which a model is evaluated; a choice."""


def with_scattering(present: Any, measured: MeasuredScattering, field: str, core: AnalogCore) -> Any:  # noqa: ANN401 - any part
    """Return a part with the numbers that its scattering gives at a core's lines.

    Parameters
    ----------
    present : Device
        Part that is replaced; its other numbers are kept.
    measured : MeasuredScattering
        Scattering of the new part.
    field : str
        Field of the core, which tells splitters, couplers and crossings apart.
    core : AnalogCore
        Core that the part is for.

    Raises
    ------
    ParameterError
        If the scattering cannot be that of such a part, does not cover the lines, or is narrower than the
        spectrum of symbols where no bandwidth is modelled.
    """
    if present is None:
        msg = f"{measured.name}: nothing stands in '{field}' yet; put a part by name there first"
        raise ParameterError(msg)
    if measured.electrical:
        changes = _bandwidth_changes(present, measured)
    elif isinstance(present, RingRouter | WeightRing):
        changes = _ring_changes(present, measured, core)
    else:
        measured.check_covers(core.lines_hz, 0.5 * core.symbol_rate_hz, core.name)
        changes = _passive_changes(present, measured, field, core)
    kind = changes.pop("kind", type(present))
    names = {item.name for item in dataclasses.fields(kind)} & {
        item.name for item in dataclasses.fields(present)
    }
    numbers = {name: getattr(present, name) for name in names}
    new_name = {"name": f"{present.name.partition(OF)[0]}{OF}{measured.name}"}
    return kind(**(numbers | changes | new_name))


def scattering_of(
    model: Callable[..., Any], name: str, present: object, core: AnalogCore
) -> MeasuredScattering:
    """Return the scattering of a model, in the convention of SAX, around the lines of a core.

    Parameters
    ----------
    model : callable
        Model for `optical.transfer.scattering.sampled`.
    name : str
        Name of the model, for messages.
    present : Device
        Part that it replaces; models of rings are evaluated at more frequencies.
    core : AnalogCore
        Core that the part is for.
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


def _bandwidth_changes(present: object, measured: MeasuredScattering) -> dict[str, Any]:
    """Return the 3 dB bandwidth of a part from its response to modulation."""
    if not isinstance(present, ELECTRICAL):
        msg = (
            f"{measured.name}: ends at {measured.frequency_hz[-1]:.3g} Hz, so it is no light; a "
            f"{_kind_in_words(present)} takes a scattering matrix at optical frequencies"
        )
        raise ParameterError(msg)
    measured.check_ports(2, "response to modulation")
    power = measured.power("out0", "in0")
    if power[0] <= 0.0:
        msg = f"{measured.where(0)}: nothing arrives from in0 at out0; is the response S21?"
        raise ParameterError(msg)
    fallen = np.flatnonzero(power < 0.5 * power[0])
    if not fallen.size:
        return {"bandwidth_hz": float(measured.frequency_hz[-1])}
    at, level = int(fallen[0]), 0.5 * power[0]
    share = (level - power[at - 1]) / (power[at] - power[at - 1])
    low, high = measured.frequency_hz[at - 1], measured.frequency_hz[at]
    return {"bandwidth_hz": float(low + share * (high - low))}


def _passive_changes(
    present: object, measured: MeasuredScattering, field: str, core: AnalogCore
) -> dict[str, Any]:
    """Return loss, crosstalk and bandwidth of a part without resonance."""
    if isinstance(present, Waveguide):
        loss_db = _flat_loss_db(measured, "waveguide", core)
        if not measured.length_m:
            msg = (
                f"{measured.name}: does not tell the waveguide's length; write '! length 5 mm' in the file, "
                "or give the model a setting length (micrometres) with a default"
            )
            raise ParameterError(msg)
        return {"loss_db_per_m": loss_db / measured.length_m}
    if isinstance(present, Laser):
        return {"coupling_loss_db": _flat_loss_db(measured, "coupler of fibre and chip", core)}
    if isinstance(present, TWO_PORTS):
        return {"insertion_loss_db": _flat_loss_db(measured, _kind_in_words(present), core)}
    if isinstance(present, MeshCoupler):
        return _mesh_coupler_changes(measured, core)
    if not isinstance(present, PassiveElement):
        kind = _kind_in_words(present)
        msg = f"{measured.name}: no scattering matrix says what a core needs of a {kind}"
        raise ParameterError(msg)
    return _PASSIVES.get(field, _coupler_changes)(measured, core)


def _flat_loss_db(measured: MeasuredScattering, what: str, core: AnalogCore) -> float:
    """Return the loss of the line that loses most in a part with one input and output, which must be flat.

    `what` names the part in messages.
    """
    measured.check_ports(2, what)
    power = measured.power("out0", "in0")
    narrowest_hz = min(measured.half_power_hz(power, line_hz) for line_hz in core.lines_hz)
    if narrowest_hz < core.symbol_rate_hz:
        msg = (
            f"{measured.name}: loses half of a line's power within {narrowest_hz:.3g} Hz of it, less than "
            f"the symbol rate of '{core.name}' ({core.symbol_rate_hz:.3g} Hz), and of a {what} only a flat "
            "loss is modelled; move the lines or lower symbol_rate_hz"
        )
        raise ParameterError(msg)
    return _loss_db(power, measured, core, f"of in0 arrives at out0; is this a {what}?")


def _loss_db(power: Real, measured: MeasuredScattering, core: AnalogCore, hint: str) -> float:
    """Return the loss of the line that loses most; a small gain, left by calibration, counts as 0."""
    worst = float(measured.at(power, core.lines_hz).min())
    if worst <= 0.0:
        msg = f"{measured.name}: no light {hint}"
        raise ParameterError(msg)
    return max(0.0, -db_from_ratio(worst))


def _bandwidth_hz(measured: MeasuredScattering, powers: Sequence[Real], core: AnalogCore) -> float:
    """Return the narrowest half-power bandwidth around any line, of several transmissions."""
    return min(measured.half_power_hz(power, line_hz) for power in powers for line_hz in core.lines_hz)


def _splitter_changes(measured: MeasuredScattering, core: AnalogCore) -> dict[str, Any]:
    """Return the loss of the worse arm beyond an even division."""
    measured.check_ports(3, "splitter")
    arms = [measured.power("out0", "in0"), measured.power("out1", "in0")]
    losses = [
        _loss_db(2.0 * arm, measured, core, "of in0 arrives at an arm; check the ports") for arm in arms
    ]
    return {
        "kind": MeasuredElement,
        "insertion_loss_db": max(losses),
        "bandwidth_hz": _bandwidth_hz(measured, arms, core),
    }


def _coupler_changes(measured: MeasuredScattering, core: AnalogCore) -> dict[str, Any]:
    """Return the loss of an interference of both inputs, read as the difference of both outputs.

    Fields a and b leave with the difference |E0|^2 - |E1|^2 = 2 Re(a b* (s00 s01* - s10 s11*)) + ..., and of
    an ideal coupler that bracket has the modulus 1: loss and uneven division are in it together.
    """
    measured.check_ports(4, "coupler")
    field = {(i, j): measured.field(f"out{i}", f"in{j}") for i in (0, 1) for j in (0, 1)}
    product = np.abs(field[0, 0] * field[0, 1].conj() - field[1, 0] * field[1, 1].conj())
    hint = "interferes; a coupler divides each input between out0 and out1: check the order of the ports"
    if float(measured.at(product, core.lines_hz).min()) < 0.1:
        msg = f"{measured.name}: less than a tenth of the light {hint} (! ports in0 in1 out0 out1)"
        raise ParameterError(msg)
    return {
        "kind": MeasuredElement,
        "insertion_loss_db": _loss_db(product, measured, core, hint),
        "bandwidth_hz": _bandwidth_hz(measured, [product], core),
    }


def _mesh_coupler_changes(measured: MeasuredScattering, core: AnalogCore) -> dict[str, Any]:
    """Return the loss of a mesh's coupler and the error of its angle."""
    measured.check_ports(4, "coupler")
    through, across = measured.power("out0", "in0"), measured.power("out1", "in0")
    shares = measured.at(across, core.lines_hz) / measured.at(through + across, core.lines_hz)
    angles = np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))
    return {
        "insertion_loss_db": _loss_db(through + across, measured, core, "of in0 arrives; check the ports"),
        "angle_error_rad": float(np.abs(angles - math.pi / 4.0).max()),
    }


def _crossing_changes(measured: MeasuredScattering, core: AnalogCore) -> dict[str, Any]:
    """Return the loss straight through, and the share that leaks into the worse side arm."""
    measured.check_ports(4, "crossing")
    straight = measured.power("out0", "in0")
    sides = np.maximum(measured.power("out1", "in0"), measured.power("in1", "in0"))
    at_lines = measured.at(sides, core.lines_hz)
    if bool((at_lines > MOST_ASIDE * measured.at(straight, core.lines_hz)).any()):
        msg = (
            f"{measured.name}: too much light of in0 leaves by a side arm and not by out0; name the ports in "
            "the order of the file, '! ports in0 out0 in1 out1' or so"
        )
        raise ParameterError(msg)
    changes = {
        "kind": MeasuredElement,
        "insertion_loss_db": _loss_db(straight, measured, core, "of in0 arrives at out0; check the ports"),
        "bandwidth_hz": _bandwidth_hz(measured, [straight], core),
    }
    if core.holds_weights:  # a leak at a fixed cell is learnt with the cell
        return changes
    return changes | {"kind": MeasuredCrossing, "crosstalk": float(at_lines.max())}


_PASSIVES: Mapping[str, Callable[[MeasuredScattering, AnalogCore], dict[str, Any]]] = MappingProxyType(
    {"branch": _splitter_changes, "crossing": _crossing_changes}
)
"""Function for a passive element, by its field of the core; elements of other fields are couplers."""


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


def resonance_of(measured: MeasuredScattering, middle_hz: float) -> Resonance:
    """Return the resonance of a ring that lies nearest to a frequency.

    Raises
    ------
    ParameterError
        If there is none whose sides lie within the data, or it has too few points.
    """
    drop = measured.power("out1", "in0")
    inner = (drop[1:-1] >= drop[:-2]) & (drop[1:-1] > drop[2:]) & (drop[1:-1] > 0.5 * drop.max())
    peaks = np.flatnonzero(inner) + 1
    if not peaks.size:
        msg = f"{measured.name}: the way from in0 to out1, the drop, has no resonance; check the ports"
        raise ParameterError(msg)
    peak = int(peaks[np.argmin(np.abs(measured.frequency_hz[peaks] - middle_hz))])
    fallen = measured.crossings_hz(drop, 0.5 * float(drop[peak]))
    peak_hz = float(measured.frequency_hz[peak])
    below, above = fallen[fallen < peak_hz], fallen[fallen > peak_hz]
    if not (below.size and above.size):
        msg = (
            f"{measured.name}: the resonance at {peak_hz:.6g} Hz is not covered to both its sides; "
            "measure wider"
        )
        raise ParameterError(msg)
    linewidth_hz = float(above[0] - below[-1])
    if linewidth_hz < POINTS_OF_LINEWIDTH * measured.step_hz:
        msg = (
            f"{measured.name}: points lie up to {measured.step_hz:.3g} Hz apart, and the resonance at "
            f"{peak_hz:.6g} Hz is "
            f"{linewidth_hz:.3g} Hz wide; measure at least {POINTS_OF_LINEWIDTH} points of it"
        )
        raise ParameterError(msg)
    others = np.abs(measured.frequency_hz[peaks] - peak_hz)
    others = others[others > 2.0 * linewidth_hz]
    span_hz = float(measured.frequency_hz[-1] - measured.frequency_hz[0])
    return Resonance(
        peak_hz=peak_hz,
        drop=float(drop[peak]),
        linewidth_hz=linewidth_hz,
        free_spectral_range_hz=float(others.min()) if others.size else span_hz,
    )


def _ring_changes(
    present: RingRouter | WeightRing, measured: MeasuredScattering, core: AnalogCore
) -> dict[str, Any]:
    """Return the numbers of an add-drop ring; its heater will tune the measured resonance to a line.

    The pass loss is that of the light that is not dropped: the median over frequencies more than two
    linewidths off resonance.
    """
    measured.check_ports(4, "ring between two buses")
    lines_hz = core.lines_hz
    resonance = resonance_of(measured, 0.5 * (min(lines_hz) + max(lines_hz)))
    drop, through = measured.power("out1", "in0"), measured.power("out0", "in0")
    offset_hz = measured.frequency_hz - resonance.peak_hz
    half_hz = 0.5 * resonance.free_spectral_range_hz
    near = np.abs(offset_hz) <= half_hz
    aside = near & (np.abs(offset_hz) > 2.0 * resonance.linewidth_hz)
    passed = through[aside] / np.maximum(1.0 - drop[aside], np.finfo(float).tiny)
    if not aside.any() or float(np.median(passed)) <= 0.0:
        msg = (
            f"{measured.name}: no light passes from in0 to out0 beside the resonance; check the ports, or "
            "measure wider"
        )
        raise ParameterError(msg)
    pass_loss_db = max(0.0, -db_from_ratio(float(np.median(passed))))
    drop_loss_db = max(0.0, -db_from_ratio(resonance.drop))
    changes: dict[str, Any] = {
        "free_spectral_range_hz": resonance.free_spectral_range_hz,
        "pass_loss_db": pass_loss_db,
    }
    if isinstance(present, WeightRing):
        return changes | {
            "quality_factor": resonance.peak_hz / resonance.linewidth_hz,
            "carrier_hz": resonance.peak_hz,
            "drop_loss_db": drop_loss_db,
        }
    return changes | {
        "kind": MeasuredRouter,
        "linewidth_hz": resonance.linewidth_hz,
        "insertion_loss_db": drop_loss_db,
        "offset_hz": tuple(float(value) for value in offset_hz[near]),
        "share": tuple(float(value) for value in drop[near] / resonance.drop),
    }


def _kind_in_words(present: object) -> str:
    """Return the name of a part's kind in words."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(present).__name__)
    return words.strip()


MOST_UNEVEN = 0.2
"""Relative deviation of a gap between lines from the mean gap from which a line counts as missing; a
choice."""
MOST_WANDER_RAD2 = 0.01
"""Largest variance of a line's phase over a symbol, by its linewidth; a choice."""
LEAST_MATCH = 0.1
"""Largest relative deviation of the lines' spacing from that of a ring bank; a choice."""
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
"""Column of a table -> field of `CombLines`, and the function that converts its value to SI."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CombLines:
    """Lines of a comb, in ascending frequency."""

    name: str
    """Name of the file."""
    frequency_hz: Real
    """Frequencies, shape (lines,)."""
    power_w: Real
    """Powers at the source, before the light is coupled into a chip, shape (lines,)."""
    linewidth_hz: float | None
    """Width of the widest line; None if unknown."""
    rin_db_per_hz: float | None
    """Relative intensity noise of the noisiest line; None if unknown."""

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
        """Mean distance of neighbouring lines; infinite for a single line."""
        size = self.frequency_hz.size
        return float(np.ptp(self.frequency_hz)) / (size - 1) if size > 1 else math.inf


def read_comb(path: Path) -> CombLines:
    """Return the lines of a table.

    Raises
    ------
    ParameterError
        If a column is unknown, missing or double, or a cell has no number in its range.
    """
    rows = [row for row in csv.reader(read_text(path).splitlines()) if row]
    header = [cell.strip().lower() for cell in rows[0]]
    for column in header:
        if column not in COLUMNS:
            msg = f"{path.name}:1: column '{column}' is unknown; {nearest(column, COLUMNS, noun='column')}"
            raise ParameterError(msg)
    fields = [COLUMNS[column][0] for column in header]
    for wanted, shown in (
        ("frequency_hz", "frequency_thz or wavelength_nm"),
        ("power_w", "power_mw or power_dbm"),
    ):
        if fields.count(wanted) != 1:
            msg = f"{path.name}:1: give one column {shown}; there are {fields.count(wanted)}"
            raise ParameterError(msg)
    if len(rows) < 2:
        msg = f"{path.name}: has a header and no line"
        raise ParameterError(msg)
    numbers = np.array([_row(path, line, header, row) for line, row in enumerate(rows[1:], 2)])
    values = dict(zip(fields, numbers.T, strict=True))
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
    numbers = []
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
        numbers.append(COLUMNS[column][1](value))
    return numbers


def with_comb(core: AnalogCore, comb: Comb, lines: CombLines) -> AnalogCore:
    """Return a core lit by a comb's lines.

    Parameters
    ----------
    core : AnalogCore
        Core with a comb.
    comb : Comb
        Its comb, whose conversion of the pump into all lines is kept.
    lines : CombLines
        Lines of the new comb.

    Raises
    ------
    ParameterError
        If there are too few lines, they do not fit between the rings' resonances, or are too wide.

    Notes
    -----
    All used lines are dimmed to the weakest of them; that light, and unused lines, are lost. The conversion
    efficiency is multiplied by the power used over the power of all lines.
    """
    count = len(core.lines_hz)
    used = lines.brightest(count)
    weakest = float(used.power_w.min())
    if lines.linewidth_hz is not None:
        wander = 2.0 * math.pi * lines.linewidth_hz / core.symbol_rate_hz
        if wander > MOST_WANDER_RAD2:
            msg = (
                f"{lines.name}: lines of {lines.linewidth_hz:.3g} Hz turn by {math.sqrt(wander):.2g} rad "
                f"within a symbol of '{core.name}'; lines below "
                f"{MOST_WANDER_RAD2 * core.symbol_rate_hz / (2.0 * math.pi):.3g} Hz are needed"
            )
            raise ParameterError(msg)
    share = count * weakest / float(lines.power_w.sum())
    lit = dataclasses.replace(
        comb,
        name=f"{comb.name.partition(OF)[0]}{OF}{lines.name}",
        conversion_efficiency=comb.conversion_efficiency * share,
        line_w=weakest,
    )
    laser = core.laser
    if lines.rin_db_per_hz is not None:
        name = f"{laser.name.partition(OF)[0]}{OF}{lines.name}"
        laser = dataclasses.replace(laser, name=name, rin_db_per_hz=lines.rin_db_per_hz)
    changes = {"comb": lit, "laser": laser, "laser_power_w": weakest} | _spaced(core, used)
    return dataclasses.replace(core, **changes)  # type: ignore[arg-type]


def _spaced(core: AnalogCore, used: CombLines) -> dict[str, object]:
    """Return the fields of a core that give its lines the spacing of a comb."""
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
