"""Transfer of light through circuits.

`elements` single parts, `mesh` interferometers in a rectangle or triangle, `decomposition` a mesh's phases
from a matrix, `gradients` light through it in torch, `models` parts for circuit solvers.
"""
