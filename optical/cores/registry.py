"""Registry of the cores by name; a core from outside joins with one call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from optical.cores.core import Core, Work
from optical.cores.crossbar import default_crossbar
from optical.cores.homodyne import default_homodyne
from optical.cores.mzi_mesh import default_mesh
from optical.cores.number_formats import default_block_float, default_residue
from optical.cores.pcm_crossbar import default_pcm_crossbar
from optical.cores.phase_residue import default_phase_residue
from optical.cores.rescues import rescued, split_name
from optical.cores.ring_bank import default_ring_bank
from optical.devices import Converter, Events, Laser, Part, Per
from optical.devices.limits import Light
from optical.execution import AnalogSpec
from simulator.errors import ParameterError, in_one_sentence, nearest
from simulator.operators import MatMul, Phase
from simulator.parameter_tree import get_at, replace_at
from simulator.plugins import from_outside, is_reference

CORE_GROUP = "heliograph.cores"
"""Group of entry points of installed packages whose classes `register_core` takes."""
LEAST_RATE_HZ = 1e6
"""Least symbol rate of a core from outside: below, it is taken to be in another unit; a choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreKind:
    """Core that can be loaded by name."""

    build: Callable[[], Core]
    """Function that builds the core of today's parts."""
    summary: str
    """Description of the core in one line."""
    sides: tuple[str, ...]
    """Counts of its array that grow together in a larger core, as paths for `replace_at`."""


_CORES: dict[str, CoreKind] = {
    "crossbar": CoreKind(
        build=default_crossbar,
        summary="coherent dot-product crossbar, both operands dynamic, wavelength parallel",
        sides=("rows", "columns"),
    ),
    "homodyne": CoreKind(
        build=default_homodyne,
        summary="time-multiplexed homodyne, both operands dynamic, sums over time on a capacitor",
        sides=("rows", "columns"),
    ),
    "ring_bank": CoreKind(
        build=default_ring_bank,
        summary="microring weight banks, broadcast and weight: weights held by heaters",
        sides=("outputs",),
    ),
    "block_float": CoreKind(
        build=default_block_float,
        summary="the crossbar with adaptive block floating point: a scale per sample's operands",
        sides=("rows", "columns"),
    ),
    "residue": CoreKind(
        build=default_residue,
        summary="the crossbar with residue numbers: exact short sums, a copy per modulus",
        sides=("rows", "columns"),
    ),
    "phase_residue": CoreKind(
        build=default_phase_residue,
        summary="rows that add up phases of light modulo 2 pi: residue numbers, sums wrap by themselves",
        sides=("rows",),
    ),
    "mzi_mesh": CoreKind(
        build=default_mesh,
        summary="interferometer mesh, holds U S V* by heaters, read beside a local oscillator",
        sides=("ports",),
    ),
    "pcm_crossbar": CoreKind(
        build=default_pcm_crossbar,
        summary="crossbar of phase-change cells, holds weights without power, wears with every write",
        sides=("rows", "columns"),
    ),
}
_SHIPPED = frozenset(_CORES)
CORES: Mapping[str, CoreKind] = MappingProxyType(_CORES)
"""Photonic cores by name, those of the package first; `register_core` adds to it."""


def register_core(name: str, core_class: type[Any]) -> None:
    """Register a class of cores under a name, for systems, studies and the command line.

    Parameters
    ----------
    name : str
        Name, not yet taken.
    core_class : type
        Class with the members of `optical.cores.Core` and a class method ``default()``, which returns a core
        of today's parts. An optional attribute ``sides`` names the counts of its array that grow together in
        a larger core; the first line of its docstring becomes the summary.

    Raises
    ------
    ParameterError
        If the name is taken, or the class lacks a member.
    """
    odd = isinstance(name, str) and not is_reference(name)
    odd = odd and any(letter.isspace() or letter in ":@+," for letter in name)
    if not isinstance(name, str) or not name or odd:  # FILE.py:NAME names a class in a file
        msg = f"a core needs a name by which it can be asked for, without blanks and :@+,; got {name!r:.60}"
        raise ParameterError(msg)
    if name in _CORES:
        msg = f"a core '{name}' is registered already; take another name than {', '.join(_CORES)}"
        raise ParameterError(msg)
    missing = unanswered(core_class)
    if missing:
        msg = (
            f"core '{name}': {_named(core_class)} does not answer `optical.cores.Core`; it lacks "
            f"{', '.join(missing)}"
        )
        raise ParameterError(msg)
    summary = (core_class.__doc__ or name).strip().splitlines()[0].rstrip(".")
    _CORES[name] = CoreKind(
        build=core_class.default, summary=summary, sides=tuple(getattr(core_class, "sides", ()))
    )


def unregister_core(name: str) -> None:
    """Remove the name of a core from outside.

    Raises
    ------
    ParameterError
        If it is one of the package, or none of that name is registered.
    """
    if name in _SHIPPED or name not in _CORES:
        outside = ", ".join(other for other in _CORES if other not in _SHIPPED) or "none"
        msg = f"'{name}' is no core from outside; registered are {outside}"
        raise ParameterError(msg)
    del _CORES[name]


def unanswered(core_class: object) -> list[str]:
    """Return the members of `Core`, and ``default``, that a class lacks; all of them if it is no class."""
    required = [name for name in vars(Core) if not name.startswith("_")] + ["default"]
    if not isinstance(core_class, type):
        return required
    fields = (
        {item.name for item in dataclasses.fields(core_class)}
        if dataclasses.is_dataclass(core_class)
        else set()
    )
    abstract: frozenset[str] = getattr(core_class, "__abstractmethods__", frozenset())
    return [
        name for name in required if name in abstract or not (name in fields or hasattr(core_class, name))
    ]


def _named(core_class: object) -> str:
    return f"class {core_class.__qualname__}" if isinstance(core_class, type) else f"{core_class!r}"


def load_core(name: str) -> Core:
    """Return a core by its name, with rescues around it where ``+`` adds them (`optical.cores.rescues`).

    Parameters
    ----------
    name : str
        Name of a registered core, of a class in a file (``FILE.py:CLASS``), or of an installed package's
        core.

    Raises
    ------
    ParameterError
        If there is no core or rescue of that name, or one from outside cannot be built.
    """
    within, rescues = split_name(name, CORES) if isinstance(name, str) else (name, ())
    if rescues:
        return rescued(load_core(within), rescues)
    if isinstance(name, str) and name not in CORES:
        found: Any = from_outside(CORE_GROUP, name)
        if found is not None:
            register_core(name, found)
    if not isinstance(name, str) or name not in CORES:
        msg = f"no core '{name}'; {nearest(str(name), CORES, noun='core')}"
        raise ParameterError(msg)
    return CORES[name].build() if name in _SHIPPED else _checked(name)


def _checked(name: str) -> Core:
    """Return a core from outside the package, checked by use; an error has one sentence on the fault."""
    with in_one_sentence(f"core '{name}': its default() fails"):
        core = CORES[name].build()
    if set(unanswered(type(core))) - {"default"}:
        msg = f"core '{name}': its default() returns {core!r:.60}, which is no core"
        raise ParameterError(msg)
    with in_one_sentence(f"core '{name}' fails when it is tried"):
        wrong = next(wrong_answers(core), None)
    with in_one_sentence(f"core '{name}': its sides"):
        _ = [get_at(core, side) for side in CORES[name].sides]
    if wrong is not None:
        msg = f"core '{name}': {wrong}"
        raise ParameterError(msg)
    return core


def _wrong_parts(parts: tuple[Part, ...]) -> Iterator[str]:
    """Yield a sentence for each fault of a parts list."""
    if not isinstance(parts, tuple) or not parts or not all(isinstance(part, Part) for part in parts):
        yield f"parts must return a tuple of Part, the laser among them; got {parts!r:.60}"
    if not any(isinstance(part.device, Laser) for part in parts):
        yield "parts lists no laser; take optical.cores.analog.source_parts, or a Part of your laser"
    if not any(isinstance(part.device, Converter) and part.per is Per.SAMPLE for part in parts):
        yield "parts lists no converter of samples; take optical.cores.analog.converter_parts"
    for place, part in enumerate(parts):
        if part in parts[:place]:
            yield f"parts lists '{part.name}' of '{part.device.name}' per {part.per} twice; leave one out"
        for what, value in (("count", part.count), ("each", part.each)):
            if value is not None and not 0.0 <= value < math.inf:
                yield f"{what} of part '{part.name}' must be finite and at least 0; got {value}"


def wrong_answers(core: Core) -> Iterator[str]:
    """Yield a sentence for each fault of a core's parts and records, and of the work of a small product."""
    if not core.symbol_rate_hz >= LEAST_RATE_HZ:
        yield f"symbol_rate_hz is {core.symbol_rate_hz:g} symbols a second; write it in Hz, such as 5e9"
    yield from _wrong_parts(core.parts())
    if not isinstance(light := core.light, Light):
        yield f"light must be a Light; got {light!r:.60}"
    if not math.isfinite(core.budget.effective_bits):
        yield f"effective_bits of its budget must be finite; got {core.budget.effective_bits}"
    for phase in Phase:
        if not isinstance(record := core.analog(phase), AnalogSpec):
            yield f"analog must return an AnalogSpec for {phase}; got {record!r:.60}"
    if not isinstance(rates := core.full_load, Events):
        yield f"full_load must be Events of a second; got {rates!r:.60}"
    work = core.work(MatMul(name="small", phase=Phase.FORWARD, batch=1, m=64, k=64, n=64), core.cluster)
    if not isinstance(work, Work):
        yield f"work must return Work; got {work!r:.60}"
    answers = {key: getattr(work, key) for key in ("light_s", "programming_s", "operand_bytes", "writes")}
    answers |= {f"energy_j of '{part}'": value for part, value in work.energy_j.items()}
    for what, amount in answers.items():
        if not 0.0 <= amount < math.inf:
            yield f"{what} of a product must be finite and at least 0; got {amount}; look at events and parts"


def resized(core: Core, sides: Mapping[str, int]) -> Core:
    """Return a core with an array of another size; its laser stays as it is.

    Parameters
    ----------
    core : Core
        Any core.
    sides : mapping of str to int
        New counts by path, as in `CoreKind.sides`.

    Raises
    ------
    ParameterError
        If the core cannot be built in that size.
    """
    for path, count in sides.items():
        core = replace_at(core, path, count)
    return core
