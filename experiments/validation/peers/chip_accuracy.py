"""Accuracies of built chips on tasks that can be made here, executed with the noise of parts.

Each task is made of the same kind as the published one where its data are not public or not here: points in
two rings for a mesh of four ports, digits drawn from fonts at 28 x 28 pixels in place of MNIST.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.accuracy.photons import one_thread
from optical.devices import programmable_table
from optical.devices.limits import photon_energy_j
from optical.devices.programmable import Heater, MeshCoupler
from optical.execution.photons import CountingNumerics, Signs
from optical.transfer.mesh import MeshErrors, MeshLayout, draw_errors
from simulator.keys import mix_key

if TYPE_CHECKING:
    import torch

    from workloads.training.classifier import Classifier
    from workloads.training.digits import Digits

PORTS = 4
"""Ports of the mesh of Pai et al. (Science 380, 398), abstract."""
LAYERS = 3
"""Its layers, abstract."""
POINTS = 250
"""Points of its task, four fifths of them to train on (recalled)."""
TRAINED = 200
"""Points to train on."""
UPDATES = 200
"""Updates of training, a choice: more change nothing."""
LEARNING_RATE = 0.03
"""Of Adam; a choice."""
CHIPS = 2
"""Chips and sets of points over which an accuracy is the mean; a choice."""
INNER = 0.55
"""Radius of the border between the two classes, of points spread evenly over a disc with radius 1; a choice
that makes them nearly as many as each other."""
DIGIT_IMAGES = 3000
"""Digits to train on; as `heliograph accuracy photons --quick` takes."""
TEST_IMAGES = 500
"""Digits to classify."""
SIDE = 28
"""Pixels along an edge of a digit, as MNIST has."""


def ring_points(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return points in a disc, shape (points, 2), and whether each lies in its outer part."""
    draws = np.random.default_rng(seed)
    radius, angle = np.sqrt(draws.uniform(0.0, 1.0, POINTS)), draws.uniform(0.0, 2.0 * math.pi, POINTS)
    labels = (radius > math.sqrt(INNER)).astype(np.int64)
    points = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
    return points, labels


def encoded(points: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Return the fields of points, shape (ports, points): two coordinates, and the rest of a fixed power."""
    rest = np.sqrt(np.maximum(0.0, 1.0 - (points**2).sum(axis=1)) / 2.0)
    return np.stack((points[:, 0], points[:, 1], rest, rest)).astype(complex)


@functools.cache
def mesh_accuracy() -> float:
    """Return the accuracy of a mesh of four ports and three layers that was trained in itself, 0 to 1.

    Notes
    -----
    Couplers are wrong by our table's angle, fixed for a chip and seen by its training; heaters drift by our
    table's phase between what they are set to and what light meets, drawn anew for every pass of the points,
    in training and in test. Behind each layer the fields' moduli are the inputs of the next; the powers of
    two ports each decide. Gradients are those of the chip as it is (in-situ backpropagation).
    """
    with one_thread():
        return float(np.mean([_one_chip(seed) for seed in range(CHIPS)]))


def _one_chip(seed: int) -> float:
    import torch  # noqa: PLC0415 - only to execute

    layout = MeshLayout(modes=PORTS)
    draws = np.random.default_rng(mix_key(seed, 1))
    coupler = programmable_table().build(MeshCoupler, "mesh_coupler")
    chips = [
        draw_errors(layout, splitter_rad=coupler.angle_error_rad, phase_rad=0.0, generator=draws)
        for _ in range(LAYERS)
    ]
    points, labels = ring_points(mix_key(seed, 2))
    fields, wanted = torch.from_numpy(encoded(points)), torch.from_numpy(labels)
    start = torch.Generator().manual_seed(mix_key(seed, 3))
    count = 2 * layout.count + PORTS
    phases = (
        2.0 * math.pi * torch.rand(LAYERS, count, generator=start, dtype=torch.float64)
    ).requires_grad_()
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([phases, scale], lr=LEARNING_RATE)
    for _ in range(UPDATES):
        powers = _powers(layout, phases, fields[:, :TRAINED], chips, draws)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(10.0 * scale * powers, wanted[:TRAINED]).backward()
        optimizer.step()
    with torch.no_grad():
        found = _powers(layout, phases, fields[:, TRAINED:], chips, draws).argmax(dim=1)
    return float((found == wanted[TRAINED:]).double().mean())


def _powers(
    layout: MeshLayout,
    phases: torch.Tensor,
    fields: torch.Tensor,
    chips: list[MeshErrors],
    draws: np.random.Generator,
) -> torch.Tensor:
    """Return the power in each half of the ports behind all layers, shape (points, 2)."""
    from optical.transfer.gradients import propagate  # noqa: PLC0415 - torch, only to execute

    drift_rad = programmable_table().build(Heater, "heater").drift_rad
    count = layout.count
    for layer, chip in enumerate(chips):
        drift = draw_errors(layout, splitter_rad=0.0, phase_rad=drift_rad, generator=draws)
        off = MeshErrors(
            splitter_rad=chip.splitter_rad,
            theta_rad=drift.theta_rad,
            phi_rad=drift.phi_rad,
            output_rad=drift.output_rad,
        )
        theta, phi, output = phases[layer].split((count, count, layout.modes))
        passed = propagate(layout, theta, phi, output, fields, errors=off)
        fields = passed.abs().to(passed.dtype)
    powers = (fields.real**2).T
    return powers.reshape(len(powers), 2, PORTS // 2).sum(dim=2)


@functools.cache
def _digits() -> tuple[Classifier, Digits]:
    """Return a perceptron trained on digits drawn from fonts, and others to read."""
    from workloads.training.classifier import ClassifierConfig, train_classifier  # noqa: PLC0415 - torch
    from workloads.training.digits import draw_digits  # noqa: PLC0415

    training = draw_digits(DIGIT_IMAGES, side=SIDE, generator=np.random.default_rng(1))
    test = draw_digits(TEST_IMAGES, side=SIDE, generator=np.random.default_rng(2))
    return train_classifier(ClassifierConfig(epochs=6), training), test


@functools.cache
def digit_accuracy(photons_per_mac: float) -> float:
    """Return the accuracy of digits read with so many detected photons per multiplication, 0 to 1.

    Parameters
    ----------
    photons_per_mac : float
        Photons; infinite for exact arithmetic.

    Notes
    -----
    A perceptron 784-100-100-10 trained in exact arithmetic on digits drawn from fonts; every product of all
    its layers counts photons in pairs of ports for both signs (`CountingNumerics`), by Poisson's law alone.
    """
    from workloads.training.classifier import accuracy  # noqa: PLC0415 - torch, only to execute

    with one_thread():
        network, test = _digits()
        exact = math.isinf(photons_per_mac)
        products = None if exact else CountingNumerics(photons_per_mac=photons_per_mac, signs=Signs.PAIR)
        return accuracy(network, test, [products] * len(network.weights_KM), key=1)


def photons_of(energy_j: float) -> float:
    """Return the photons of an energy at 1,550 nm."""
    return energy_j / photon_energy_j()
