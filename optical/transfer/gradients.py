"""Light through a mesh in torch, with gradients to all its phases at the cost of about three passes.

Shapes: N modes, C interferometers, B members of a batch (`fields_NB`, `blocks_C22`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from optical.transfer.mesh import MeshErrors, MeshLayout, errors_of
from simulator.errors import ParameterError


def propagate(
    layout: MeshLayout,
    theta_rad: Tensor,
    phi_rad: Tensor,
    output_rad: Tensor,
    fields_NB: Tensor,
    *,
    errors: MeshErrors | None = None,
) -> Tensor:
    """Return the fields behind a mesh without loss, shape (modes, batch), with gradients to all phases.

    Parameters
    ----------
    layout : MeshLayout
        Positions.
    theta_rad, phi_rad : torch.Tensor
        Phases between the couplers and at the upper inputs, shape (count,).
    output_rad : torch.Tensor
        Phases at the outputs, shape (modes,).
    fields_NB : torch.Tensor
        Complex fields at the inputs, shape (modes, batch), in whose precision everything is computed.
    errors : MeshErrors, optional
        Errors of the chip's angles and phases; none if not given.

    Raises
    ------
    ParameterError
        If a shape does not fit the layout, or fields are not complex.

    Notes
    -----
    The convention is that of `optical.transfer.elements`, and the result that of `Mesh.matrix` on the fields.
    """
    sizes = {"theta_rad": layout.count, "phi_rad": layout.count, "output_rad": layout.modes}
    for (name, size), given in zip(sizes.items(), (theta_rad, phi_rad, output_rad), strict=True):
        if given.shape != (size,):
            msg = f"propagate: {name} must have shape ({size},) for {layout.modes} modes; "
            msg += f"got {tuple(given.shape)}"
            raise ParameterError(msg)
    if fields_NB.ndim != 2 or len(fields_NB) != layout.modes or not fields_NB.is_complex():
        msg = f"propagate: fields must be complex, shape ({layout.modes}, batch); "
        msg += f"got {fields_NB.dtype}, shape {tuple(fields_NB.shape)}"
        raise ParameterError(msg)
    off = errors_of(layout, errors)
    real = fields_NB.real.detach()
    theta, phi, splitter, output = (
        torch.as_tensor(value).to(real)
        for value in (off.theta_rad, off.phi_rad, off.splitter_rad, off.output_rad)
    )
    blocks = _blocks(theta_rad.to(real) + theta, phi_rad.to(real) + phi, splitter)
    passed: Tensor = _Columns.apply(layout, blocks, fields_NB)
    turns = output_rad.to(real) + output
    return torch.polar(torch.ones_like(turns), turns)[:, None] * passed


def _blocks(theta: Tensor, phi: Tensor, splitter_C2: Tensor) -> Tensor:
    """Return the matrices of interferometers, shape (count, 2, 2): `mzi_matrix` in torch."""
    arm, entry = (torch.polar(torch.ones_like(angle), angle) for angle in (theta, phi))
    (c1, c2), (s1, s2) = ((math.pi / 4.0 + splitter_C2).cos().T, (math.pi / 4.0 + splitter_C2).sin().T)
    upper = torch.stack(((c1 * c2 * arm - s1 * s2) * entry, 1j * (s1 * c2 * arm + c1 * s2)), dim=-1)
    lower = torch.stack((1j * (c1 * s2 * arm + s1 * c2) * entry, c1 * c2 - s1 * s2 * arm), dim=-1)
    return torch.stack((upper, lower), dim=-2)


def _through_column(
    layout: MeshLayout, column: int, blocks_C22: Tensor, fields: list[Tensor]
) -> list[Tensor]:
    """Return the fields behind one column, computed from the first buffer into the second.

    Returns
    -------
    list of torch.Tensor
        The two buffers, that with the new fields first.
    """
    where, modes = layout.slices[column]
    old, new = fields
    pairs, turned = (each[modes].view(-1, 2, each.shape[1]) for each in fields)
    torch.bmm(blocks_C22[where], pairs, out=turned)
    new[: modes.start] = old[: modes.start]
    new[modes.stop :] = old[modes.stop :]
    return [new, old]


class _Columns(torch.autograd.Function):
    """Interferometers in the order of a layout on fields; their matrices must be unitary.

    A column y = T x keeps nothing: backward, y is turned back beside the gradient g, x = T^H y and
    conj(g_x) = T^T conj(g), so memory does not grow with depth. The gradient of T is g x^H = (y g^H)^H T; the
    sums of y g^H over the batch are two by two per interferometer.
    """

    @staticmethod
    def forward(ctx: Any, layout: MeshLayout, blocks_C22: Tensor, fields_NB: Tensor) -> Tensor:  # noqa: ANN401
        """Return the fields behind the last column."""
        fields = [fields_NB.resolve_conj().clone(memory_format=torch.contiguous_format)]
        fields.append(torch.empty_like(fields[0]))
        for column in range(layout.depth):
            fields = _through_column(layout, column, blocks_C22, fields)
        ctx.layout = layout
        ctx.save_for_backward(blocks_C22, fields[0])
        return fields[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_NB: Tensor) -> tuple[None, Tensor, Tensor]:  # noqa: ANN401
        """Return the gradients of matrices and fields."""
        layout: MeshLayout = ctx.layout
        blocks_C22, behind_NB = ctx.saved_tensors
        forth, back = (each.resolve_conj().contiguous() for each in (blocks_C22.mT, blocks_C22.mH))
        gradient = grad_NB.conj().resolve_conj().contiguous()
        fields = [behind_NB.clone(), torch.empty_like(behind_NB)]
        gradients = [gradient.clone(), torch.empty_like(gradient)]
        sums_C22 = torch.empty_like(blocks_C22)
        for column in reversed(range(layout.depth)):
            where, modes = layout.slices[column]
            behind, pulled = (each[0][modes].view(-1, 2, each[0].shape[1]) for each in (fields, gradients))
            torch.bmm(behind, pulled.mT, out=sums_C22[where])
            fields = _through_column(layout, column, back, fields)
            gradients = _through_column(layout, column, forth, gradients)
        return None, sums_C22.mH @ blocks_C22, gradients[0].conj()
