"""The vision transformer of a run with few photons: every product in light, then some apart."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from experiments.photon_records import ModelCurves, Point
from experiments.photon_request import GRID, Model, Request, Scheme, products_of
from heliograph.errors import LinkError
from heliograph.keys import mix_key

if TYPE_CHECKING:
    from workloads.digits import Digits
    from workloads.vision_transformer import VisionTransformer

PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "scores": ("scores",),
        "values": ("values",),
        "weights": ("patches", "qkv", "projection", "up", "down", "head"),
    }
)
"""Products that are put in light apart: queries with keys, shares with values, and those with weights."""
_EXACT = "exact"

Curves = dict[tuple[str, float], float]
"""Accuracy by curve and photons per multiplication."""


def run_vision(
    request: Request, images: tuple[Digits, Digits], progress: Callable[[str], None]
) -> ModelCurves:
    """Train a vision transformer per seed and run it through every scheme, then some products apart.

    Parameters
    ----------
    request : Request
        How much to run.
    images : tuple of Digits
        To train on, and to test with.
    progress : callable
        Told of each network that is done.
    """
    from workloads.vision_transformer import (  # noqa: PLC0415 - torch, only to execute
        Product,
        VisionConfig,
        train_vision_transformer,
        vision_accuracy,
    )

    training, test = images[0], first_of(images[1], request.vision_images)
    found: list[Curves] = []
    shape = ""
    for seed in request.vision_seeds:
        model = train_vision_transformer(
            VisionConfig(patch_side=request.digits.patch_side, epochs=request.vision_epochs, seed=seed),
            training,
        )
        shape, every = model.shape, tuple(str(one) for one in Product)
        mine = {(_EXACT, math.inf): vision_accuracy(model, test, {}, key=seed)}
        bench = _Bench(model=model, test=test, seed=seed)
        for scheme in Scheme:
            mine |= bench.curve(str(scheme), scheme, every)
        for name, part in PARTS.items():
            mine |= bench.curve(name, Scheme.PAIR, part)
        found.append(mine)
        progress("vision transformer")

    def point(curve: str, photons: float) -> Point:
        accuracies = tuple(one[curve, photons] for one in found)
        length = request.digits.patch_side**2
        return Point(curve=curve, inputs=length, photons_per_mac=photons, accuracies=accuracies)

    return ModelCurves(
        model=str(Model.VIT),
        title="Vision transformer",
        shape=shape,
        digital=point(_EXACT, math.inf).accuracies,
        points=tuple(point(str(scheme), photons) for scheme in Scheme for photons in GRID),
        parts=tuple(point(name, photons) for name in PARTS for photons in GRID),
    )


def first_of(digits: Digits, count: int) -> Digits:
    """Return the first images."""
    return dataclasses.replace(digits, images=digits.images[:count], labels=digits.labels[:count])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Bench:
    """A trained model that is run through light."""

    model: VisionTransformer
    test: Digits
    seed: int

    def curve(self, name: str, scheme: Scheme, part: tuple[str, ...]) -> Curves:
        """Return accuracies over the photons of a scheme that makes some products."""
        from workloads.vision_transformer import Product, vision_accuracy  # noqa: PLC0415 - torch

        found: Curves = {}
        for index, photons in enumerate(GRID):
            products = dict.fromkeys((Product(one) for one in part), products_of(scheme, photons))
            key = mix_key(self.seed, index)
            try:
                found[name, photons] = vision_accuracy(self.model, self.test, products, key=key)
            except LinkError:
                found[name, photons] = math.nan
        return found
