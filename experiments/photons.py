"""With how few photons per multiplication a small classifier still works, as Wang et al. (2022) measured.

Digits and networks are ours (`workloads.digits`), so published accuracies on MNIST are marks, not targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from experiments.photon_records import PhotonResult, Point
from heliograph.errors import LinkError
from heliograph.keys import mix_key

if TYPE_CHECKING:
    from workloads.classifier import Classifier, Products
    from workloads.digits import Digits

GRID = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Photons per multiplication of every curve."""
LAW_GRID = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""The same where only the first layer is counted."""
SIDE = 28
"""Pixels along an edge, as in MNIST."""
_EXACT = "exact"
_TRAINING_IMAGES, _TEST_IMAGES = 0, 1


class Scheme(StrEnum):
    """How products are made of light; each value is the name in tables and figures."""

    PAIR = "counted, pair"
    OFFSET = "counted, offset"
    SHOT = "homodyne, shot only"
    CORE = "homodyne, as built"


@dataclass(frozen=True, kw_only=True)
class Request:
    """How much to run."""

    seeds: tuple[int, ...]
    """Of initial weights, order of images and all noise; one network each."""
    law_seeds: tuple[int, ...]
    """Those of them with which vectors of other lengths are tried."""
    sides: tuple[int, ...]
    """Pixels along an edge of the images of those, ascending."""
    training_images: int
    """Images to train on."""
    test_images: int
    """Images to classify."""
    epochs: int
    """Passes over the training images."""

    @classmethod
    def of(cls, *, quick: bool, seed: int = 0) -> Request:
        """Return the usual request, or a quick one, with seeds from `seed` on."""
        seeds = tuple(range(seed, seed + (2 if quick else 5)))
        if quick:
            return cls(
                seeds=seeds,
                law_seeds=seeds[:1],
                sides=(14, 28),
                training_images=3000,
                test_images=500,
                epochs=6,
            )
        return cls(
            seeds=seeds,
            law_seeds=seeds[:3],
            sides=(14, 28, 56),
            training_images=8000,
            test_images=1000,
            epochs=8,
        )


def run_photons(
    request: Request, progress: Callable[[str, int, int], None] = lambda label, done, total: None
) -> PhotonResult:
    """Train the classifiers and run them through every scheme; the same request gives the same result.

    Parameters
    ----------
    request : Request
        How much to run.
    progress : callable
        Told what the last network was for, networks done, and networks in all.
    """
    from workloads.classifier import accuracy  # noqa: PLC0415 - torch, only to execute

    others = [(side, seed) for side in request.sides if side != SIDE for seed in request.law_seeds]
    wanted = [(SIDE, seed) for seed in request.seeds] + others
    found: dict[tuple[int, int], dict[tuple[str, float], float]] = {}
    images: dict[int, tuple[Digits, Digits]] = {}
    widths: tuple[int, ...] = ()
    with _one_thread():
        for done, (side, seed) in enumerate(wanted, start=1):
            if side not in images:
                images[side] = _images(request, side)
            training, test = images[side]
            network = _train(request, training, seed)
            exact = accuracy(network, test, [None] * len(network.weights_KM), key=seed)
            found[side, seed] = {(_EXACT, math.inf): exact}
            if side == SIDE:
                widths = network.widths
                found[side, seed] |= _all_layers(network, test, seed)
            if side in request.sides and seed in request.law_seeds:
                found[side, seed] |= _first_layer(network, test, seed)
            progress(f"{side} x {side} pixels", done, len(wanted))
    return PhotonResult(
        widths=widths,
        digital=_point(found, SIDE, request.seeds, _EXACT, math.inf).accuracies,
        points=tuple(
            _point(found, SIDE, request.seeds, str(scheme), photons) for scheme in Scheme for photons in GRID
        ),
        law=tuple(
            _point(found, side, request.law_seeds, f"{side * side} inputs", photons)
            for side in request.sides
            for photons in LAW_GRID
        ),
        law_digital={
            side * side: _point(found, side, request.law_seeds, _EXACT, math.inf).mean
            for side in request.sides
        },
        digits_sha256=images[SIDE][1].sha256,
    )


def _point(
    found: dict[tuple[int, int], dict[tuple[str, float], float]],
    side: int,
    seeds: Sequence[int],
    curve: str,
    photons: float,
) -> Point:
    accuracies = tuple(found[side, seed][curve, photons] for seed in seeds)
    return Point(curve=curve, inputs=side * side, photons_per_mac=photons, accuracies=accuracies)


def _images(request: Request, side: int) -> tuple[Digits, Digits]:
    """Return images to train on and to test with; those of another resolution show the same digits."""
    from workloads.digits import draw_digits  # noqa: PLC0415 - reads fonts

    training, test = (
        draw_digits(count, generator=np.random.default_rng(mix_key(stream)), side=side)
        for stream, count in (
            (_TRAINING_IMAGES, request.training_images),
            (_TEST_IMAGES, request.test_images),
        )
    )
    return training, test


def _train(request: Request, training: Digits, seed: int) -> Classifier:
    from workloads.classifier import ClassifierConfig, train_classifier  # noqa: PLC0415 - torch

    return train_classifier(ClassifierConfig(epochs=request.epochs, seed=seed), training)


def products_of(scheme: Scheme, photons_per_mac: float) -> Products:
    """Return what executes products by a scheme with so many photons per multiplication."""
    from optical.cores.homodyne import default_homodyne  # noqa: PLC0415 - torch, only to execute
    from optical.counting import CountingNumerics, HomodyneNumerics, Signs  # noqa: PLC0415
    from optical.few_photons import LitCore  # noqa: PLC0415

    match scheme:
        case Scheme.PAIR | Scheme.OFFSET:
            signs = Signs.PAIR if scheme is Scheme.PAIR else Signs.OFFSET
            return CountingNumerics(photons_per_mac=photons_per_mac, signs=signs)
        case Scheme.SHOT | Scheme.CORE:
            lit = LitCore(
                core=default_homodyne(),
                photons_per_mac=photons_per_mac,
                only_shot_noise=scheme is Scheme.SHOT,
            )
            return HomodyneNumerics(lit=lit)


def _all_layers(network: Classifier, test: Digits, seed: int) -> dict[tuple[str, float], float]:
    from workloads.classifier import accuracy  # noqa: PLC0415 - torch

    layers, found = len(network.weights_KM), {}
    for scheme in Scheme:
        for index, photons in enumerate(GRID):
            products, key = [products_of(scheme, photons)] * layers, mix_key(seed, index)
            try:
                found[str(scheme), photons] = accuracy(network, test, products, key=key)
            except LinkError:
                found[str(scheme), photons] = math.nan
    return found


def _first_layer(network: Classifier, test: Digits, seed: int) -> dict[tuple[str, float], float]:
    from workloads.classifier import accuracy  # noqa: PLC0415 - torch

    name, exact = f"{network.widths[0]} inputs", [None] * (len(network.weights_KM) - 1)
    return {
        (name, photons): accuracy(
            network, test, [products_of(Scheme.PAIR, photons), *exact], key=mix_key(seed, index)
        )
        for index, photons in enumerate(LAW_GRID)
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run torch on one thread: products this small do not gain by more."""
    import torch  # noqa: PLC0415 - only to execute

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
