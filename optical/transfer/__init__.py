"""Transfer of light through circuits.

`elements` single parts, `mesh` interferometers in a rectangle or triangle with their phases from a matrix,
`gradients` light through it in torch, `models` parts for circuit solvers, `scattering` parts as Touchstone
files or models in the manner of SAX tell them.
"""
