"""Executed products: what a photonic core makes of a matrix product, and of its gradients.

A product walks one road: `spec` (what reaches it, a frozen record with the law of noise as data), `draws`
(randomness by key and place), `operands` (codes on the converters' grids, as a chip sets them), `readout`
(their exact product, gain, and the law in units of codes), `kernels` (rounding and readout on arrays, in
torch and compiled by numba), `numerics` (all of it in turn) and `matmul` (the same as a differentiable
function of torch, in blocks of rows, of distributed tensors too). Beside it stands `precision` (signal over
noise, predicted).

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
