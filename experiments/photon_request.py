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
_TRAINING_IMAGES, _TEST_IMAGES, _SPLIT = 0, 1, 2


class Scheme(StrEnum):
    """How products are made of light; each value is the name in tables and figures."""

    PAIR = "counted, pair"
    OFFSET = "counted, offset"
    SHOT = "homodyne, shot only"
    CORE = "homodyne, as built"


class DigitSet(StrEnum):
    """Digits that are read; each value is the name on the command line."""

    REAL = "real"
    """Handwriting, of the set that comes with scikit-learn."""
    DRAWN = "drawn"
    """Glyphs of fonts that every machine has, distorted."""

    @classmethod
    def usual(cls) -> DigitSet:
        """Return handwriting where it is installed, else drawn digits."""
        from workloads.handwriting import has_handwriting  # noqa: PLC0415 - only to execute

        return cls.REAL if has_handwriting() else cls.DRAWN

    @property
    def named(self) -> str:
        """What a reader calls them."""
        return "handwriting (scikit-learn)" if self is DigitSet.REAL else "digits drawn from fonts"

    @property
    def side(self) -> int:
        """Pixels along an edge: the set's own, or MNIST's."""
        return 8 if self is DigitSet.REAL else 28

    @property
    def patch_side(self) -> int:
        """Pixels along an edge of a patch, of which an image has 16."""
        return self.side // 4


class Model(StrEnum):
    """Kinds of networks; each value is the name on the command line."""

    MLP = "mlp"
    VIT = "vit"


@dataclass(frozen=True, kw_only=True)
class Request:
    """How much to run."""

    models: tuple[Model, ...] = tuple(Model)
    """Kinds of networks."""
    digits: DigitSet = DigitSet.DRAWN
    """What they read."""
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
    def of(
        cls,
        *,
        quick: bool,
        seed: int = 0,
        models: tuple[Model, ...] = tuple(Model),
        digits: DigitSet = DigitSet.DRAWN,
    ) -> Request:
        """Return the usual request, or a quick one, with seeds from `seed` on."""
        seeds = tuple(range(seed, seed + (2 if quick else 5)))
        if digits is DigitSet.REAL:
            return cls._of_handwriting(seeds, models, quick=quick)
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

    @classmethod
    def _of_handwriting(cls, seeds: tuple[int, ...], models: tuple[Model, ...], *, quick: bool) -> Request:
        """Return a request for a set that is small, so that it takes more passes over the images."""
        return cls(
            models=models,
            digits=DigitSet.REAL,
            seeds=seeds,
            law_seeds=seeds[:1] if quick else seeds,
            vision_seeds=seeds,
            sides=(8, 28) if quick else (8, 14, 28),
            training_images=1297,
            test_images=500,
            vision_images=200 if quick else 500,
            epochs=30,
            vision_epochs=20 if quick else 60,
        )

    def images(self, side: int) -> tuple[Digits, Digits]:
        """Return images to train on and to test with; another resolution shows the same digits."""
        from workloads.digits import draw_digits  # noqa: PLC0415 - reads fonts
        from workloads.handwriting import read_handwriting  # noqa: PLC0415 - alike

        if self.digits is DigitSet.REAL:
            split = np.random.default_rng(mix_key(_SPLIT))
            return read_handwriting(self.training_images, self.test_images, generator=split, side=side)
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
