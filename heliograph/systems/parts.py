"""Named parts in a system: exchange of a part by its path, and the list of parts with figures of merit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from heliograph.report import format_si as _si
from heliograph.systems.fabrics import load_network_part, network_parts
from optical.cores.analog import AnalogCore
from optical.cores.measured_parts import read_comb, scattering_of, with_comb, with_scattering
from optical.devices import (
    AbsorptionModulator,
    Comb,
    Converter,
    Crossing,
    Driver,
    Integrator,
    Laser,
    Modulator,
    PassiveElement,
    PhaseShifter,
    Photodetector,
    PulsedLaser,
    RingModulator,
    Sampler,
    Tia,
    Waveguide,
)
from optical.devices.devices import Soa
from optical.devices.limits import sampling_floor_j, schreier_db
from optical.devices.named_parts import NamedPart, Role, fits, fitted, named_parts
from optical.devices.programmable import (
    MEAN_PHASE_RAD,
    CapacitiveShifter,
    CarrierShifter,
    Heater,
    PcmCell,
    WeightRing,
)
from optical.transfer.scattering import is_touchstone, read_touchstone
from simulator.errors import ParameterError
from simulator.parameter_tree import Place, TreeT, find_place, places, put_part, rebuilt
from simulator.plugins import MARK, from_outside, is_reference

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
JOIN = "+"
"""Separator of several files that describe one part together: ``body.s2p+drive.s2p``."""
MODELS_OF_PARTS = "heliograph.parts"
"""Group of entry points of models; only used with files, which name their function."""
_ALIASES = {"detector": "receiver", "phase_shifter": "heater", "heater": "phase_shifter"}
"""Other names of fields, in cores that call the same part differently."""


def place_for(system: object, path: str) -> Place | None:
    """Return the place of an exchangeable part that a path, or its ending, names; None if it names none.

    Parameters
    ----------
    system : object
        Tree of descriptions.
    path : str
        Path of a part. A detector or phase shifter is also found under the other name that a core gives it.

    Raises
    ------
    ParameterError
        If it fits several.
    """
    place = _place(system, path)
    return place if place is not None and _fitting(place) else None


def _place(system: object, path: str) -> Place | None:
    """Return the place of any part that a path, or its ending, names; None if it names none."""
    place = find_place(system, path)
    above, dot, field = path.rpartition(".")
    if place is None and field in _ALIASES:
        place = find_place(system, f"{above}{dot}{_ALIASES[field]}")
    return place


def with_part(system: TreeT, path: str, name: str, folder: Path | None = None) -> TreeT:
    """Return a system with a part exchanged for a named one, or described by files.

    Parameters
    ----------
    system : dataclass
        The system, core or unit.
    path : str
        Path of the part, or an ending of it that fits one only.
    name : str
        Name of the new part (`optical.devices.named_parts.named_parts`), or ``none`` to remove an optional
        one; or a file that describes the present part: a table of a comb's lines (``lines.csv``), a
        Touchstone file (``crossing.s4p``) or a model (``model.py:crossing``) of its scattering at the lines
        of the core; or several files with ``+`` between.
    folder : pathlib.Path, optional
        Directory in which files are sought before the working directory.

    Raises
    ------
    ParameterError
        If there is no such place or part, or the part does not fit or breaks a rule of the core.
    """
    if is_measured(name):
        for word in name.split(JOIN):
            exchange = _with_measured if _is_file(word) else with_part
            system = exchange(system, path, word.strip(), folder)
        return system
    place, part = place_for(system, path), named_parts().get(name)
    if place is None:
        shown = ", ".join(one.shown for one in places(system) if _fitting(one))
        rest = f"write one of {shown}" if shown else "nothing here is made of named parts"
        msg = f"no part '{path}' to replace by '{name}'; {rest}"
        raise ParameterError(msg)
    if name == "none" and place.optional:
        return put_part(system, place, None)
    for kind in place.kinds:
        if name in network_parts(kind):
            return put_part(system, place, load_network_part(kind, name))
    if part is None or not fits(part, place.field, place.kinds):
        what = "no part" if part is None else f"it does not take the {part.role}"
        choices = ", ".join(_fitting(place))
        msg = f"{place.shown}: {what} '{name}'; choose one of {choices} (heliograph list parts, or devices)"
        raise ParameterError(msg)
    return put_part(system, place, fitted(part.build(), place.part))


def _with_measured(system: TreeT, path: str, name: str, folder: Path | None) -> TreeT:
    """Return a system with a part changed to the numbers in a file."""
    place = _place(system, path)
    if place is None:
        shown = ", ".join(one.path for one in places(system) if isinstance(one.owner, AnalogCore))
        msg = f"no part '{path}' for {name} to describe; write one of {shown or 'an analog core (--core)'}"
        raise ParameterError(msg)
    if not isinstance(place.owner, AnalogCore):
        msg = f"{place.path}: no lines of light are modelled there that {name} could be read at"
        raise ParameterError(msg)
    core, present = place.owner, place.part
    if is_comb(name):
        if not isinstance(present, Comb):
            msg = f"{place.path}: {name} is a table of a comb's lines; give it to the comb (core.comb={name})"
            raise ParameterError(msg)
        changed = with_comb(core, present, read_comb(_file_path(name, folder)))
        return cast("TreeT", rebuilt(system, {id(core): changed}))
    if is_touchstone(name):
        scattering = read_touchstone(_file_path(name, folder))
    else:
        file, _, attribute = name.rpartition(MARK)
        reference = f"{_file_path(f'{file}.py', folder)}:{attribute}"
        model: Any = from_outside(MODELS_OF_PARTS, reference)
        if not callable(model):
            msg = f"{name}: is no function; a model is one that takes wl and returns {{(in, out): field}}"
            raise ParameterError(msg)
        scattering = scattering_of(model, Path(file).name + MARK + attribute, present, core)
    return put_part(system, place, with_scattering(present, scattering, place.field, core))


def _file_path(name: str, folder: Path | None) -> Path:
    """Return the path of a file, in a folder if it is there, else from the working directory."""
    path = Path(name)
    beside = path if folder is None else folder / path
    return beside if beside.is_file() else path


def _is_file(name: str) -> bool:
    """Return whether a name is that of a file that describes the optics of a part."""
    return is_touchstone(name.strip()) or is_comb(name) or is_reference(name)


def is_comb(value: object) -> bool:
    """Return whether an assigned value is a table of a comb's lines (CSV)."""
    return isinstance(value, str) and value.strip().lower().endswith(".csv")


def is_measured(value: object) -> bool:
    """Return whether an assigned value is a file that describes a part, or several joined with ``+``."""
    return isinstance(value, str) and any(_is_file(word) for word in value.split(JOIN))


def fitting_parts(system: object, path: str) -> list[str]:
    """Return the names of the parts that fit the place at a path (as `place_for`); none if there is none."""
    place = place_for(system, path)
    return [] if place is None else _fitting(place)


def names_part(value: object) -> bool:
    """Return whether an assigned value is written as a name or a file rather than as a number."""
    return is_measured(value) or (
        isinstance(value, str) and (value in named_parts() or _NAME.fullmatch(value.strip()) is not None)
    )


def parts_listing() -> dict[str, str]:
    """Return a line for each named part with its role, figures of merit and source, sorted by role."""
    order = list(Role)
    ranked = sorted(named_parts().values(), key=lambda part: order.index(part.role))
    return {part.name: _line(part) for part in ranked}


def _fitting(place: Place) -> list[str]:
    own = [name for name, part in named_parts().items() if fits(part, place.field, place.kinds)]
    return own + [name for kind in place.kinds for name in network_parts(kind)]


def _line(part: NamedPart) -> str:
    source = part.sources[0].partition(";")[0]
    more = f"; {len(part.sources) - 1} more" if len(part.sources) > 1 else ""
    return f"{part.role}: {figures_of_merit(part)} ({source}{more})"


def figures_of_merit(part: NamedPart) -> str:
    """Return the figures of merit of a part as text.

    Notes
    -----
    Of an ADC, Walden's and Schreier's figures, and its energy over 8 k T SNR, the least energy of sampling.
    """
    built = part.build()
    if part.role is Role.ADC:
        floor = built.conversion_j / sampling_floor_j(built.enob_bits)
        schreier = schreier_db(built.power_w, built.rate_hz, built.enob_bits)
        return f"{_converter(built)}, Schreier {schreier:.1f} dB, {floor:,.0f} x 8kT SNR"
    return _FIGURES[part.kind](built)


def _converter(part: Converter) -> str:
    return (
        f"{part.enob_bits:g} effective of {part.nominal_bits:g} bits, {_si(part.rate_hz, 'Hz')}, "
        f"{_si(part.conversion_j, 'J')}, Walden {_si(part.walden_j, 'J')}/step"
    )


def _laser(part: Laser) -> str:
    efficiency, coupling_db = 100.0 * part.wall_plug_efficiency, part.coupling_loss_db
    return f"{efficiency:g} % wall plug, RIN {part.rin_db_per_hz:g} dB/Hz, coupling {coupling_db:.3g} dB"


def _modulator(part: Modulator | RingModulator | AbsorptionModulator) -> str:
    hold = _si(part.tuning_w or 0.0, "W")
    if part.symbol_energy_j is not None:
        drive = f"{_si(part.symbol_energy_j, 'J')}/symbol"
    elif isinstance(part, Modulator):
        drive = f"half wave {part.half_wave_v:g} V"
    else:
        drive = f"swing {part.swing_v:g} V"
    return (
        f"loss {part.insertion_loss_db:g} dB, extinction {part.extinction_ratio_db:g} dB, "
        f"{_si(part.bandwidth_hz, 'Hz')}, {drive}, load {_si(part.capacitance_f or 0.0, 'F')}, hold {hold}"
    )


def _shifter(part: Heater | CapacitiveShifter | CarrierShifter) -> str:
    loss, hold = part.loss_db(MEAN_PHASE_RAD), _si(part.hold_w(MEAN_PHASE_RAD), "W")
    settling = _si(part.settling_s, "s")
    return f"at pi loss {loss:.3g} dB and hold {hold}; set {_si(part.setting_j, 'J')} in {settling}"


def _tia(part: Tia) -> str:
    band, power = _si(part.bandwidth_hz, "Hz"), _si(part.power_w, "W")
    return f"{_si(part.noise_a_per_sqrt_hz, 'A')}/sqrt(Hz), {band}, {power}"


def _amplifier(part: Soa) -> str:
    return (
        f"gain {part.gain_db:g} dB, noise figure {part.noise_figure_db:g} dB, "
        f"saturates at {_si(part.saturation_w, 'W')}, {_si(part.power_w, 'W')}"
    )


def _ring(part: WeightRing) -> str:
    settling = _si(part.settling_s, "s")
    return (
        f"finesse {part.finesse:.3g}, hold {_si(part.tuning_w, 'W')}, {settling}, {part.setting_bits:g} bits"
    )


def _cell(part: PcmCell) -> str:
    return (
        f"contrast {part.contrast_db:g} dB, {part.level_bits:g} bits, write {_si(part.full_write_j, 'J')} in "
        f"{_si(part.write_s, 's')}, {part.endurance_writes:,.0f} writes"
    )


_FIGURES: Mapping[type, Callable[[Any], str]] = MappingProxyType(
    {
        Converter: _converter,
        Laser: _laser,
        PulsedLaser: lambda part: (
            f"{_laser(part)}, pulses of {part.duty:.3g} of a symbol, jitter {_si(part.jitter_s, 's')}"
        ),
        Comb: lambda part: (
            f"conversion efficiency {100.0 * part.conversion_efficiency:g} %"
            + ("" if part.line_w is None else f", {_si(part.line_w, 'W')} a line")
        ),
        Modulator: _modulator,
        RingModulator: _modulator,
        AbsorptionModulator: _modulator,
        Driver: lambda part: (
            f"swing {part.swing_v:g} V, {_si(part.rate_hz, 'Hz')}, "
            f"{_si(part.symbol_j(part.swing_v), 'J')}/symbol, linear to {part.linearity_db:g} dB"
        ),
        Heater: _shifter,
        CapacitiveShifter: _shifter,
        CarrierShifter: _shifter,
        PhaseShifter: lambda part: (
            f"loss {part.insertion_loss_db:g} dB, wrong by {part.phase_error_rad:.2g} rad"
        ),
        Photodetector: lambda part: (
            f"{part.responsivity_a_per_w:.3g} A/W, {_si(part.bandwidth_hz, 'Hz')}, "
            f"dark {_si(part.dark_current_a, 'A')}"
        ),
        Tia: _tia,
        Integrator: lambda part: (
            f"adds {100.0 * part.window:g} % of each symbol, jitter {_si(part.jitter_s, 's')}"
        ),
        Sampler: lambda part: (
            f"an instant of each symbol, bandwidth {part.bandwidth_ratio:g} of its rate, "
            f"jitter {_si(part.jitter_s, 's')}"
        ),
        Soa: _amplifier,
        WeightRing: _ring,
        PcmCell: _cell,
        Crossing: lambda part: (
            f"loss {part.insertion_loss_db:g} dB, crosstalk -{part.crosstalk_db:g} dB"
            + (f", {part.layer_loss_db:g} dB to its other layer and back" if part.layer_loss_db else "")
        ),
        PassiveElement: lambda part: f"loss {part.insertion_loss_db:g} dB",
        Waveguide: lambda part: f"loss {part.loss_db_per_m:g} dB/m",
    }
)
"""Text of the figures of merit of each kind of part."""
