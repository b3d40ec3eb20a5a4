"""Photonic matrix-multiply cores, one file each, and the registry of those that can be asked for by name.

`core` is the seam to the accelerator, `analog` the common arithmetic of cores that read sums of light,
`sizing` the laser power for a precision, `registry` the names. The cores are `crossbar`, `homodyne`,
`ring_bank`, `mzi_mesh`, `pcm_crossbar`, `phase_residue` and, around one of them, `number_formats` and
`rescues`. `measured_parts` puts what a file says of a part into any of them.
"""

from __future__ import annotations

from optical.cores.analog import (
    AnalogCore,
    ArrayShape,
    converter_parts,
    default_interfering_chip,
    integrating_receiver_of,
    source_parts,
)
from optical.cores.core import Core
from optical.cores.crossbar import Crossbar, default_crossbar
from optical.cores.homodyne import Homodyne, default_homodyne
from optical.cores.mzi_mesh import default_mesh
from optical.cores.number_formats import default_block_float, default_residue
from optical.cores.pcm_crossbar import default_pcm_crossbar
from optical.cores.phase_residue import default_phase_residue
from optical.cores.registry import CORE_GROUP, CORES, load_core, register_core, resized, unregister_core
from optical.cores.ring_bank import default_ring_bank
from optical.cores.sizing import Product, core_precision, with_laser_for

__all__ = [
    "CORES",
    "CORE_GROUP",
    "AnalogCore",
    "ArrayShape",
    "Core",
    "Crossbar",
    "Homodyne",
    "Product",
    "converter_parts",
    "core_precision",
    "default_block_float",
    "default_crossbar",
    "default_homodyne",
    "default_interfering_chip",
    "default_mesh",
    "default_pcm_crossbar",
    "default_phase_residue",
    "default_residue",
    "default_ring_bank",
    "integrating_receiver_of",
    "load_core",
    "register_core",
    "resized",
    "source_parts",
    "unregister_core",
    "with_laser_for",
]
