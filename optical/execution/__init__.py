"""Execution of matrix products, and of their gradients, with the errors of a photonic core.

`spec` has the errors: a frozen record, whose law of noise is data. To execute a product, `numerics` takes
these in turn: `draws` (random numbers by key and position), `operands` (codes on the converters' grids, as a
chip sets them), `readout` (their exact product, the converter's range, and the law of noise in units of
codes) and `kernels` (rounding and readout on arrays, in torch and compiled by numba). `matmul` is the same as
a differentiable function of torch, in blocks of rows, of distributed tensors too. `precision` predicts the
signal over noise without executing anything.

What is exported here needs no torch; `numerics` and `matmul` do.
"""

from optical.execution.spec import AnalogSpec, Mode, OperandTransforms, ProductSpecs, Rounding, Scale

__all__ = [
    "AnalogSpec",
    "Mode",
    "OperandTransforms",
    "ProductSpecs",
    "Rounding",
    "Scale",
]
