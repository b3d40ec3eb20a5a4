"""What a run with few photons is asked for: networks, images, seeds, and how products are made of light."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from heliograph.keys import mix_key

if TYPE_CHECKING:
    from optical.counting import CountingNumerics, HomodyneNumerics
    from workloads.digits import Digits

GRID = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Photons per multiplication of every curve."""
LAW_GRID = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""The same where only the first layer is counted."""
SIDE = 28
"""Pixels along an edge, as in MNIST."""
_TRAINING_IMAGES, _TEST_IMAGES = 0, 1


class Scheme(StrEnum):
    """How products are made of light; each value is the name in tables and figures."""

    PAIR = "counted, pair"
    OFFSET = "counted, offset"
    SHOT = "homodyne, shot only"
    CORE = "homodyne, as built"


class Model(StrEnum):
    """Kinds of networks; each value is the name on the command line."""

    MLP = "mlp"
    VIT = "vit"


@dataclass(frozen=True, kw_only=True)
class Request:
    """How much to run."""

    models: tuple[Model, ...] = tuple(Model)
    """Kinds of networks."""
    seeds: tuple[int, ...]
    """Of initial weights, order of images and all noise; one perceptron each."""
    law_seeds: tuple[int, ...]
    """Those of them with which vectors of other lengths are tried."""
    vision_seeds: tuple[int, ...]
    """Those of the vision transformers, one each."""
    sides: tuple[int, ...]
    """Pixels along an edge of the images by which the length of vectors is tried, ascending."""
    training_images: int
    """Images to train on."""
    test_images: int
    """Images that a perceptron classifies ..."""
    vision_images: int
    """... and those of them, the first, that a vision transformer does."""
    epochs: int
    """Passes of a perceptron's training over the images ..."""
    vision_epochs: int
    """... and of a vision transformer's, which learns more slowly."""

    @classmethod
    def of(cls, *, quick: bool, seed: int = 0, models: tuple[Model, ...] = tuple(Model)) -> Request:
        """Return the usual request, or a quick one, with seeds from `seed` on."""
        seeds = tuple(range(seed, seed + (2 if quick else 5)))
        if quick:
            return cls(
                models=models,
                seeds=seeds,
                law_seeds=seeds[:1],
                vision_seeds=seeds,
                sides=(14, 28),
                training_images=3000,
                test_images=500,
                vision_images=200,
                epochs=6,
                vision_epochs=16,
            )
        return cls(
            models=models,
            seeds=seeds,
            law_seeds=seeds[:3],
            vision_seeds=seeds[:3],
            sides=(14, 28, 56),
            training_images=8000,
            test_images=1000,
            vision_images=500,
            epochs=8,
            vision_epochs=12,
        )

    def images(self, side: int) -> tuple[Digits, Digits]:
        """Return images to train on and to test with; another resolution shows the same digits."""
        from workloads.digits import draw_digits  # noqa: PLC0415 - reads fonts

        training, test = (
            draw_digits(count, generator=np.random.default_rng(mix_key(stream)), side=side)
            for stream, count in (
                (_TRAINING_IMAGES, self.training_images),
                (_TEST_IMAGES, self.test_images),
            )
        )
        return training, test


def products_of(scheme: Scheme, photons_per_mac: float) -> CountingNumerics | HomodyneNumerics:
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
