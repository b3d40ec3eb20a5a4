"""Photonic matrix-multiply cores, one file each, and the list of those that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from optical.cores.core import Core
from optical.cores.crossbar import Crossbar, CrossbarEvents, default_crossbar
from optical.cores.homodyne import Homodyne, default_homodyne
from optical.cores.mzi_mesh import MziMesh, default_mesh
from optical.cores.number_formats import (
    BlockFloatCore,
    ResidueCore,
    default_block_float,
    default_residue,
)
from optical.cores.pcm_crossbar import PcmCrossbar, default_pcm_crossbar
from optical.cores.phase_residue import PhaseResidueCore, default_phase_residue
from optical.cores.ring_bank import RingBank, default_ring_bank
from simulator.errors import ParameterError, nearest
from simulator.parameter_tree import replace_at


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreKind:
    """A core that can be asked for by name."""

    build: Callable[[], Core]
    """Makes the core of today's parts."""
    summary: str
    """What it is, in a line."""
    sides: tuple[str, ...]
    """Counts of its array that grow together when a larger core is asked for, as `replace_at` takes them."""


CORES: Mapping[str, CoreKind] = MappingProxyType(
    {
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
)
"""Photonic cores by name; a new one is a file and a line here, and the conformance tests run it."""


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


def load_core(name: str) -> Core:
    """Return a core by its name.

    Raises
    ------
    ParameterError
        If there is none of that name.
    """
    if not isinstance(name, str) or name not in CORES:
        msg = f"no core '{name}'; {nearest(str(name), CORES, noun='core')}"
        raise ParameterError(msg)
    return CORES[name].build()


__all__ = [
    "CORES",
    "BlockFloatCore",
    "CoreKind",
    "Crossbar",
    "CrossbarEvents",
    "Homodyne",
    "MziMesh",
    "PcmCrossbar",
    "PhaseResidueCore",
    "ResidueCore",
    "RingBank",
    "default_block_float",
    "default_crossbar",
    "default_homodyne",
    "default_mesh",
    "default_pcm_crossbar",
    "default_phase_residue",
    "default_residue",
    "default_ring_bank",
    "load_core",
    "resized",
]
