"""Transfer of light through circuits: parts, interferometer meshes, their programming and their errors."""

from __future__ import annotations

from optical.transfer.conventions import ConvertedMesh, MziConvention, from_convention, to_convention
from optical.transfer.decomposition import ProgrammedWeight, decompose, program_weight
from optical.transfer.elements import mzi_matrix
from optical.transfer.mesh import Mesh, MeshErrors, MeshLayout, MeshShape, draw_errors
from optical.transfer.selfconfiguration import Calibration, ErrorLaw, matrix_error, self_configure

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
