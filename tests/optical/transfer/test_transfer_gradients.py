"""Fields through a mesh in torch: the matrix of the mesh, and true gradients to every phase."""

import math

import numpy as np
import pytest
import torch

from optical.transfer.gradients import propagate
from optical.transfer.mesh import Mesh, MeshErrors, MeshLayout, MeshShape
from simulator.errors import ParameterError

TURN = 2.0 * math.pi
each_shape = pytest.mark.parametrize("shape", list(MeshShape))


def drawn(layout, batch=3, seed=0):
    """Phases and fields of a random mesh, in double precision, all with gradients."""
    draw = torch.Generator().manual_seed(seed)
    sizes = (layout.count, layout.count, layout.modes)
    phases = [TURN * torch.rand(size, generator=draw, dtype=torch.float64) for size in sizes]
    fields = torch.randn(layout.modes, batch, generator=draw, dtype=torch.complex128)
    return [each.requires_grad_() for each in (*phases, fields)]


def chip(layout):
    draw = np.random.default_rng(3)
    return MeshErrors(
        splitter_rad=draw.normal(0.0, 0.1, (layout.count, 2)),
        theta_rad=draw.normal(0.0, 0.1, layout.count),
        phi_rad=draw.normal(0.0, 0.1, layout.count),
        output_rad=draw.normal(0.0, 0.1, layout.modes),
    )


@each_shape
@pytest.mark.parametrize("modes", [1, 2, 3, 8, 17])
@pytest.mark.parametrize("perfect", [True, False])
def test_fields_are_those_of_the_mesh_matrix(shape, modes, perfect):
    layout = MeshLayout(modes=modes, shape=shape)
    theta, phi, output, fields = (each.detach() for each in drawn(layout))
    errors = None if perfect else chip(layout)
    mesh = Mesh(layout=layout, theta_rad=theta.numpy(), phi_rad=phi.numpy(), output_rad=output.numpy())
    found = propagate(layout, theta, phi, output, fields, errors=errors)
    np.testing.assert_allclose(found.numpy(), mesh.matrix(errors) @ fields.numpy(), atol=1e-12)
    assert found.abs().square().sum().item() == pytest.approx(fields.abs().square().sum().item(), rel=1e-12)


@each_shape
@pytest.mark.parametrize("modes", [2, 5, 6])
def test_gradients_are_those_of_finite_differences(shape, modes):
    layout = MeshLayout(modes=modes, shape=shape)
    given = drawn(layout, seed=modes)
    assert torch.autograd.gradcheck(lambda *each: propagate(layout, *each), given)
    errors = chip(layout)
    assert torch.autograd.gradcheck(lambda *each: propagate(layout, *each, errors=errors).abs(), given)


def test_gradients_of_single_precision_are_near_those_of_double():
    layout = MeshLayout(modes=64)
    given = drawn(layout, batch=8)
    single = [each.detach().to(torch.complex64 if each.is_complex() else torch.float32) for each in given]
    single = [each.requires_grad_() for each in single]
    target = torch.rand(64, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = [
        torch.autograd.grad((propagate(layout, *each).real - target).square().sum(), each[:3])
        for each in (given, single)
    ]
    for exact, near in zip(*found, strict=True):
        assert float((exact - near).norm() / exact.norm()) < 1e-4


def test_memory_kept_for_gradients_does_not_grow_with_depth():
    kept = []
    for modes in (8, 32):
        layout, sizes = MeshLayout(modes=modes), []
        given = drawn(layout, batch=64)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, s=sizes: (s.append(x.numel()), x)[1], lambda x: x
        ):
            propagate(layout, *given)
        kept.append(sum(size for size in sizes if size == modes * 64) / (modes * 64))
    assert kept[0] == kept[1]


def test_shapes_that_do_not_fit_are_refused():
    layout = MeshLayout(modes=4)
    theta, phi, output, fields = drawn(layout)
    with pytest.raises(ParameterError, match=r"theta_rad must have shape \(6,\)"):
        propagate(layout, theta[:5], phi, output, fields)
    with pytest.raises(ParameterError, match="output_rad"):
        propagate(layout, theta, phi, output[:3], fields)
    with pytest.raises(ParameterError, match="complex"):
        propagate(layout, theta, phi, output, fields.real)
    with pytest.raises(ParameterError, match=r"shape \(4, batch\)"):
        propagate(layout, theta, phi, output, fields[:2])
