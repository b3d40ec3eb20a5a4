"""Measured or simulated scattering of one part: read from a Touchstone file or a model, and checked.

Ports are named as the models of `optical.transfer` name theirs: ``in0, out0``; ``in0, out0, out1``; ``in0,
in1, out0, out1``. A Touchstone file whose ports stand in another order says so in a comment, ``! ports in0
out0 in1 out1``; that of a waveguide states its length, ``! length 5 mm``.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from optical.transfer.elements import Complex, Real
from optical.transfer.models import MICROMETRE_M, ports_of, scattering_matrix
from simulator.errors import ParameterError
from simulator.files import read_text
from simulator.parameter_tree import quantity
from simulator.units import SPEED_OF_LIGHT_M_PER_S, db_from_ratio, to_si

ELECTRICAL_BELOW_HZ = to_si("x_hz", 1.0, "THz")
"""Frequency between modulation and light: no modulator reaches it, and no light here is below it."""
PASSIVE_MARGIN = 0.01
"""Field gain above 1 that a calibrated measurement of a passive part may show; a choice."""
RECIPROCAL_MARGIN = 0.03
"""Difference of the fields in both directions, over the largest field, that noise may cause; a choice."""
PORTS: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {2: ("in0", "out0"), 3: ("in0", "out0", "out1"), 4: ("in0", "in1", "out0", "out1")}
)
"""Usual order of the ports of a file, by their number."""
_FILE = re.compile(r".*\.s(\d+)p", re.IGNORECASE)
_PORTS_COMMENT = re.compile(r"!\s*ports?\s*[:=]?\s+(.+)", re.IGNORECASE)
_LENGTH_COMMENT = re.compile(r"!\s*length\s*[:=]?\s+(.+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredScattering:
    """Scattering matrix of a part over frequency.

    Raises
    ------
    ParameterError
        If frequencies do not rise, or a part at optical frequencies amplifies or is not reciprocal.
    """

    name: str
    """Name of the file or model."""
    frequency_hz: Real
    """Frequencies, rising, shape (points,)."""
    matrix: Complex
    """Fields, shape (points, ports, ports): row = out, column = in."""
    ports: tuple[str, ...]
    """Names of the ports, in the order of the matrix."""
    lines: tuple[int, ...] = ()
    """Line of the file on which each frequency begins; empty for a model."""
    length_m: float | None = None
    """Length of a waveguide; None if unknown."""

    def __post_init__(self) -> None:
        falling = np.flatnonzero(np.diff(self.frequency_hz) <= 0.0)
        if falling.size:
            at = int(falling[0]) + 1
            msg = f"{self.where(at)}: the frequency does not rise from the one before; sort the points"
            raise ParameterError(msg)
        wrong = np.flatnonzero(~np.isfinite(self.matrix).all(axis=(1, 2)))
        if wrong.size:
            msg = f"{self.where(int(wrong[0]))}: a field is no finite number; measure the point again"
            raise ParameterError(msg)
        if not self.electrical:
            self._check_passive()
            self._check_reciprocal()

    @property
    def electrical(self) -> bool:
        """Whether it is a response of field or power to a modulating voltage, not a scattering of light."""
        return bool(self.frequency_hz[-1] < ELECTRICAL_BELOW_HZ)

    def where(self, point: int) -> str:
        """Return file and line of a point, or the model and the frequency."""
        if self.lines:
            return f"{self.name}:{self.lines[point]}"
        return f"{self.name} at {self.frequency_hz[point]:.6g} Hz"

    def _check_passive(self) -> None:
        gains = np.linalg.norm(self.matrix, ord=2, axis=(-2, -1))
        worst = int(np.argmax(gains))
        if gains[worst] > 1.0 + PASSIVE_MARGIN:
            gain_db = 2.0 * db_from_ratio(float(gains[worst]))
            msg = (
                f"{self.where(worst)}: amplifies some input by {gain_db:.2f} dB at "
                f"{self.frequency_hz[worst]:.6g} Hz, and a passive part cannot; check calibration and "
                "reference planes, or scale the fields down"
            )
            raise ParameterError(msg)

    def _check_reciprocal(self) -> None:
        turned = np.swapaxes(self.matrix, -1, -2)
        difference = np.abs(self.matrix - turned).max(axis=(-2, -1))
        worst = int(np.argmax(difference))
        if difference[worst] > RECIPROCAL_MARGIN * np.abs(self.matrix).max():
            a, b = np.unravel_index(
                int(np.argmax(np.abs(self.matrix[worst] - turned[worst]))), self.matrix.shape[1:]
            )
            msg = (
                f"{self.where(worst)}: the way from {self.ports[b]} to {self.ports[a]} is unlike the "
                "way back, "
                f"by {difference[worst]:.2g} of a field, and a part without magnets is reciprocal; give both "
                "ways (of a model: {(in, out): field, (out, in): field})"
            )
            raise ParameterError(msg)

    def power(self, out: str, entry: str) -> Real:
        """Return the share of power from one port to another, shape (points,)."""
        return np.abs(self.field(out, entry)) ** 2

    def field(self, out: str, entry: str) -> Complex:
        """Return the field from one port to another, shape (points,)."""
        return np.asarray(self.matrix[:, self.ports.index(out), self.ports.index(entry)])

    def at(self, values: Real, frequency_hz: Sequence[float]) -> Real:
        """Return values, given at the points, at other frequencies by linear interpolation."""
        return np.interp(np.asarray(frequency_hz), self.frequency_hz, values)

    @property
    def step_hz(self) -> float:
        """Largest distance of neighbouring points."""
        return float(np.diff(self.frequency_hz).max())

    def check_ports(self, wanted: int, what: str) -> None:
        """Raise an error if the part has another number of ports."""
        if len(self.ports) != wanted:
            msg = (
                f"{self.name}: has {len(self.ports)} ports, and a {what} has {wanted}: "
                f"{', '.join(PORTS[wanted])}"
            )
            raise ParameterError(msg)
        missing = [port for port in PORTS[wanted] if port not in self.ports]
        if missing:
            msg = (
                f"{self.name}: has the ports {', '.join(self.ports)}, and a {what} has "
                f"{', '.join(PORTS[wanted])}; rename one to '{missing[0]}'"
            )
            raise ParameterError(msg)

    def check_covers(self, lines_hz: Sequence[float], half_band_hz: float, owner: str) -> None:
        """Raise an error if lines with their modulation do not lie within the frequencies of the file."""
        low, high = min(lines_hz) - half_band_hz, max(lines_hz) + half_band_hz
        if low < self.frequency_hz[0] or high > self.frequency_hz[-1]:
            where = f"{self.name}:{self.lines[0]}" if self.lines else self.name
            msg = (
                f"{where}: covers {self.frequency_hz[0]:.6g} to {self.frequency_hz[-1]:.6g} Hz, and the "
                f"light of '{owner}' with its symbols takes {low:.6g} to {high:.6g} Hz; measure a wider "
                "band, or move the lines"
            )
            raise ParameterError(msg)

    def half_power_hz(self, power: Real, line_hz: float) -> float:
        """Return the distance from a line at which power has fallen by half; infinite if it does nowhere."""
        level = 0.5 * float(self.at(power, [line_hz])[0])
        fallen = self.crossings_hz(power, level)
        return float(np.abs(fallen - line_hz).min()) if fallen.size else math.inf

    def crossings_hz(self, power: Real, level: float) -> Real:
        """Return the frequencies at which power crosses a level, by linear interpolation."""
        above = power >= level
        at = np.flatnonzero(above[1:] != above[:-1])
        share = (level - power[at]) / (power[at + 1] - power[at])
        return np.asarray(self.frequency_hz[at] + share * (self.frequency_hz[at + 1] - self.frequency_hz[at]))


def is_touchstone(name: str) -> bool:
    """Return whether a name is that of a Touchstone file, ``part.s2p``."""
    return _FILE.fullmatch(name) is not None


def read_touchstone(path: Path) -> MeasuredScattering:
    """Return the scattering in a Touchstone file.

    Parameters
    ----------
    path : pathlib.Path
        Touchstone file of version 1 or 2, in any format and unit that scikit-rf reads.

    Raises
    ------
    ParameterError
        If scikit-rf is missing or cannot read the file, or the part is not passive and reciprocal.
    """
    text = read_text(path)
    matched = _FILE.fullmatch(path.name)
    count = int(matched[1]) if matched else 0
    if count not in PORTS:
        msg = f"{path.name}: parts with 2, 3 or 4 ports are taken, not with {count}; export one part's ports"
        raise ParameterError(msg)
    ports, length_m = _comments(path, text, count)
    lines = _lines_of_points(path, text, count)
    network = _scikit_rf(path)
    if len(network.f) < len(
        lines
    ):  # of two ports, what follows a falling frequency is taken for noise figures
        msg = (
            f"{path.name}:{lines[len(network.f)]}: the frequency does not rise from the one before; sort "
            "the points"
        )
        raise ParameterError(msg)
    return MeasuredScattering(
        name=path.name,
        frequency_hz=np.asarray(network.f, dtype=float),
        matrix=np.asarray(network.s, dtype=complex),
        ports=ports,
        lines=lines,
        length_m=length_m,
    )


def _scikit_rf(path: Path) -> Any:  # noqa: ANN401 - a network of scikit-rf
    try:
        skrf = importlib.import_module("skrf")
    except ImportError:
        msg = (
            f"{path.name}: reading Touchstone files takes scikit-rf, which is not installed; "
            "pip install 'heliograph[touchstone]' (or scikit-rf)"
        )
        raise ParameterError(msg) from None
    try:
        return skrf.Network(str(path))
    except Exception as error:  # whatever a reader of files may meet
        reason = " ".join(str(error).split()) or type(error).__name__
        msg = f"{path.name}: scikit-rf cannot read it as Touchstone ({reason})"
        raise ParameterError(msg) from None


def _comments(path: Path, text: str, count: int) -> tuple[tuple[str, ...], float | None]:
    """Return names of the ports and length that comments of a file state."""
    ports, length_m = PORTS[count], None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _PORTS_COMMENT.match(line.strip()):
            ports = tuple(found[1].replace(",", " ").split())
            if sorted(ports) != sorted(PORTS[count]):
                msg = (
                    f"{path.name}:{number}: ports are {' '.join(ports)}; name each of "
                    f"{' '.join(PORTS[count])} once, in the order of the file"
                )
                raise ParameterError(msg)
        elif found := _LENGTH_COMMENT.match(line.strip()):
            try:
                length_m = quantity("length_m", found[1])
            except ParameterError as error:
                msg = f"{path.name}:{number}: {error}; write ! length 5 mm"
                raise ParameterError(msg) from None
    return ports, length_m


def _lines_of_points(path: Path, text: str, count: int) -> tuple[int, ...]:
    """Return the line on which each frequency begins."""
    found, values, each = [], 0, 1 + 2 * count**2
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("!")[0].split()
        if not words or words[0][0] in "#[":
            continue
        for word in words:
            try:
                float(word)
            except ValueError:
                msg = f"{path.name}:{number}: '{word[:20]}' is no number of a Touchstone file"
                raise ParameterError(msg) from None
            if values % each == 0:
                found.append(number)
            values += 1
    if not found or values % each:
        last = found[-1] if found else 1
        msg = (
            f"{path.name}:{last}: {count} ports take {each} numbers a frequency, and the file ends with "
            f"{values % each} of them; is it cut off, or of another number of ports?"
        )
        raise ParameterError(msg)
    return tuple(found)


def sampled(model: Callable[..., Any], name: str, frequency_hz: Real) -> MeasuredScattering:
    """Return the scattering of a model in the convention of SAX.

    Parameters
    ----------
    model : callable
        Function of ``wl``, wavelengths in micrometres, with defaults for all else, that returns a mapping
        from (port in, port out) to fields over wavelength.
    name : str
        Name of the model in messages.
    frequency_hz : numpy.ndarray
        Frequencies at which it is evaluated, ascending, shape (points,).

    Raises
    ------
    ParameterError
        If the model fails, returns something else, or its part is not passive and reciprocal.
    """
    wl = SPEED_OF_LIGHT_M_PER_S / frequency_hz / MICROMETRE_M
    try:
        answer = model(wl=wl)
    except Exception as error:  # whatever a user's model may do
        msg = f"{name}: {type(error).__name__}: {error}; it is called with wl, an array in micrometres"
        raise ParameterError(msg) from error
    pairs = isinstance(answer, Mapping) and all(
        isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(port, str) for port in pair)
        for pair in answer
    )
    if not pairs or not answer:
        msg = f"{name}: returns {type(answer).__name__}; a model returns {{('in0', 'out0'): field, ...}}"
        raise ParameterError(msg)
    fields = _fields(answer, name, wl.shape)
    ports = ports_of(fields)
    length_m = _default_length_m(model)
    return MeasuredScattering(
        name=name,
        frequency_hz=frequency_hz,
        matrix=scattering_matrix(fields, ports),
        ports=ports,
        length_m=length_m,
    )


def _fields(answer: Mapping[Any, Any], name: str, shape: tuple[int, ...]) -> dict[tuple[str, str], Complex]:
    """Return the fields of a model as arrays over wavelength."""
    found = {}
    for pair, value in answer.items():
        try:
            found[pair] = np.broadcast_to(np.asarray(value, dtype=complex), shape)
        except (TypeError, ValueError):
            msg = (
                f"{name}: the field from {pair[0]} to {pair[1]} has the shape {np.shape(value)} and no "
                f"number for each of {shape[0]} wavelengths"
            )
            raise ParameterError(msg) from None
    return found


def _default_length_m(model: Callable[..., Any]) -> float | None:
    """Return the default of a model's setting ``length``, micrometres there; None if it has none."""
    try:
        setting = inspect.signature(model).parameters.get("length")
    except (TypeError, ValueError):  # a callable that does not tell
        return None
    known = setting is not None and isinstance(setting.default, int | float)
    return float(setting.default) * MICROMETRE_M if setting is not None and known else None
