"""Photonic matrix-multiply cores, one file each, and the list of those that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from heliograph.errors import ParameterError, nearest
from optical.core import Core
from optical.cores.crossbar import Crossbar, CrossbarEvents, default_crossbar
from optical.cores.mzi_mesh import MziMesh, default_mesh
from optical.cores.pcm_crossbar import PcmCrossbar, default_pcm_crossbar


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreKind:
    """A core that can be asked for by name."""

    build: Callable[[], Core]
    """Makes the core of today's parts."""
    summary: str
    """What it is, in a line."""


CORES: Mapping[str, CoreKind] = MappingProxyType(
    {
        "crossbar": CoreKind(
            build=default_crossbar,
            summary="coherent dot-product crossbar, both operands dynamic, wavelength parallel",
        ),
        "mzi_mesh": CoreKind(
            build=default_mesh,
            summary="interferometer mesh, holds U S V* by heaters, read beside a local oscillator",
        ),
        "pcm_crossbar": CoreKind(
            build=default_pcm_crossbar,
            summary="crossbar of phase-change cells, holds weights without power, wears with every write",
        ),
    }
)
"""Photonic cores by name; a new one is a file and a line here, and the conformance tests run it."""


def load_core(name: str) -> Core:
    """Return a core by its name.

    Raises
    ------
    ParameterError
        If there is none of that name.
    """
    if name not in CORES:
        msg = f"no core '{name}'; {nearest(name, CORES, noun='core')}"
        raise ParameterError(msg)
    return CORES[name].build()


__all__ = [
    "CORES",
    "CoreKind",
    "Crossbar",
    "CrossbarEvents",
    "MziMesh",
    "PcmCrossbar",
    "default_crossbar",
    "default_mesh",
    "default_pcm_crossbar",
    "load_core",
]
