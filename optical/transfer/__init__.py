"""Transfer of light through circuits: parts, interferometer meshes, their programming and their errors."""

from __future__ import annotations

from optical.transfer.decomposition import (
    Calibration,
    ErrorLaw,
    ProgrammedWeight,
    decompose,
    matrix_error,
    program_weight,
    self_configure,
)
from optical.transfer.elements import mzi_matrix
from optical.transfer.mesh import (
    ConvertedMesh,
    Mesh,
    MeshErrors,
    MeshLayout,
    MeshShape,
    MziConvention,
    draw_errors,
    from_convention,
    to_convention,
)

__all__ = [
    "Calibration",
    "ConvertedMesh",
    "ErrorLaw",
    "Mesh",
    "MeshErrors",
    "MeshLayout",
    "MeshShape",
    "MziConvention",
    "ProgrammedWeight",
    "decompose",
    "draw_errors",
    "from_convention",
    "matrix_error",
    "mzi_matrix",
    "program_weight",
    "self_configure",
    "to_convention",
]
