"""Transfer of light through circuits: parts, interferometer meshes, their programming and their errors."""
