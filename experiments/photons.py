"""With how few photons per multiplication small networks still read digits, as Wang et al. (2022) measured.

Digits (`workloads.handwriting`, `workloads.digits`) and networks are not theirs, so published accuracies on
MNIST are marks, not targets. The vision transformer asks for what a perceptron never does: operands of either
sign, and two that both come from the image.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from experiments.photon_records import ModelCurves, PhotonResult, Point
from experiments.photon_request import GRID, LAW_GRID, Model, Request, Scheme, products_of
from experiments.photons_vision import run_vision
from heliograph.errors import LinkError
from heliograph.keys import mix_key

if TYPE_CHECKING:
    from workloads.classifier import Classifier
    from workloads.digits import Digits

_EXACT = "exact"

Found = dict[tuple[int, int], dict[tuple[str, float], float]]
"""By side of the images and seed: accuracy by curve and photons per multiplication."""


def run_photons(
    request: Request, progress: Callable[[str, int, int], None] = lambda label, done, total: None
) -> PhotonResult:
    """Train the networks and run them through every scheme; the same request gives the same result.

    Parameters
    ----------
    request : Request
        How much to run.
    progress : callable
        Told what the last network was for, networks done, and networks in all.
    """
    own = request.digits.side
    others = [(side, seed) for side in request.sides if side != own for seed in request.law_seeds]
    perceptrons = [(own, seed) for seed in request.seeds] + others
    if Model.MLP not in request.models:
        perceptrons = []
    total = len(perceptrons) + (len(request.vision_seeds) if Model.VIT in request.models else 0)
    done = 0

    def tell(label: str) -> None:
        nonlocal done
        done += 1
        progress(label, done, total)

    images = functools.cache(request.images)
    models: list[ModelCurves] = []
    law: tuple[Point, ...] = ()
    law_digital: dict[int, float] = {}
    with _one_thread():
        if perceptrons:
            found, shape = _perceptrons(request, perceptrons, images, tell)
            models.append(_all_in_light(found, request, shape))
            law, law_digital = _by_length(found, request), _exact_by_length(found, request)
        if Model.VIT in request.models:
            models.append(run_vision(request, images(own), tell))
    return PhotonResult(
        models=tuple(models),
        digits=request.digits.named,
        law=law,
        law_digital=law_digital,
        digits_sha256=images(own)[1].sha256,
    )


def _perceptrons(
    request: Request,
    wanted: Sequence[tuple[int, int]],
    images: Callable[[int], tuple[Digits, Digits]],
    progress: Callable[[str], None],
) -> tuple[Found, str]:
    """Return what each perceptron reads, and the widths of those of the usual resolution."""
    from workloads.classifier import accuracy  # noqa: PLC0415 - torch, only to execute

    found: Found = {}
    shape = ""
    for side, seed in wanted:
        training, test = images(side)
        network = _train(request, training, seed)
        exact = accuracy(network, test, [None] * len(network.weights_KM), key=seed)
        found[side, seed] = {(_EXACT, math.inf): exact}
        if side == request.digits.side:
            shape = "-".join(str(width) for width in network.widths)
            found[side, seed] |= _all_layers(network, test, seed)
        if side in request.sides and seed in request.law_seeds:
            found[side, seed] |= _first_layer(network, test, seed)
        progress(f"{side} x {side} pixels")
    return found, shape


def _all_in_light(found: Found, request: Request, shape: str) -> ModelCurves:
    own = request.digits.side
    return ModelCurves(
        model=str(Model.MLP),
        title="Perceptron",
        shape=shape,
        digital=_point(found, own, request.seeds, _EXACT, math.inf).accuracies,
        points=tuple(
            _point(found, own, request.seeds, str(scheme), photons) for scheme in Scheme for photons in GRID
        ),
    )


def _by_length(found: Found, request: Request) -> tuple[Point, ...]:
    return tuple(
        _point(found, side, request.law_seeds, f"{side * side} inputs", photons)
        for side in request.sides
        for photons in LAW_GRID
    )


def _exact_by_length(found: Found, request: Request) -> dict[int, float]:
    return {
        side * side: _point(found, side, request.law_seeds, _EXACT, math.inf).mean for side in request.sides
    }


def _point(found: Found, side: int, seeds: Sequence[int], curve: str, photons: float) -> Point:
    accuracies = tuple(found[side, seed][curve, photons] for seed in seeds)
    return Point(curve=curve, inputs=side * side, photons_per_mac=photons, accuracies=accuracies)


def _train(request: Request, training: Digits, seed: int) -> Classifier:
    from workloads.classifier import ClassifierConfig, train_classifier  # noqa: PLC0415 - torch

    return train_classifier(ClassifierConfig(epochs=request.epochs, seed=seed), training)


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
