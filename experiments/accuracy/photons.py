"""Accuracy of small networks that read digits with few photons a multiplication, as Wang et al. (2022) did.

Digits and networks (`workloads.training.classifier`) are not theirs, so published accuracies on MNIST are
marks, not targets. The vision transformer asks for what a perceptron never does: operands of either sign, and
two that both come from the image; it runs with every product in light, then with some apart.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.figures import PALETTE, REFERENCE, new_figure, plain_ticks
from heliograph.processes import OnProgress, unheard
from heliograph.report import ReportRow, ReportTable, format_si
from simulator.errors import LinkError
from simulator.keys import mix_key

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from optical.execution.numerics import CountingNumerics, HomodyneNumerics
    from workloads.training.classifier import Classifier, Digits, VisionTransformer

TARGET = 0.90
"""Share of the exact accuracy at which photons are compared between vector lengths."""
CHANCE = 0.1
"""Accuracy of a guess among ten digits."""
_PUBLISHED = Path(__file__).parents[1] / "validation" / "reference" / "photons.csv"


@dataclass(frozen=True, kw_only=True)
class Point:
    """Accuracy of all seeds at one number of photons."""

    curve: str
    """Name of the curve: a scheme, a group of products or a length of vectors."""
    inputs: int
    """Length of the sums of the first layer."""
    photons_per_mac: float
    """Detected photons per multiplication."""
    accuracies: tuple[float, ...]
    """Share of test images classified correctly, one for each seed; NaN if the link does not close."""

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def spread(self) -> float:
        """Standard deviation over seeds; zero for one seed, NaN if a link does not close."""
        if math.isnan(self.mean):
            return math.nan
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    def record(self) -> dict[str, Any]:
        """Return the point as plain data."""
        return {
            "curve": self.curve,
            "inputs": self.inputs,
            "photons_per_multiplication": self.photons_per_mac,
            "photons_per_dot_product": self.photons_per_mac * self.inputs,
            "accuracy": self.mean,
            "accuracy_spread": self.spread,
            "accuracy_by_seed": list(self.accuracies),
        }


@dataclass(frozen=True, kw_only=True)
class Published:
    """One published accuracy."""

    work: str
    """Authors and year of the publication."""
    photons_per_mac: float
    """Detected photons per multiplication."""
    accuracy: float
    """Share of images classified correctly."""


@dataclass(frozen=True, kw_only=True)
class ModelCurves:
    """Curves of one kind of network."""

    model: str
    """Kind of network, as ``--model`` takes it."""
    title: str
    """Kind of network in titles."""
    shape: str
    """Widths of the layers, as text."""
    digital: tuple[float, ...]
    """Accuracy of exact arithmetic, one for each seed."""
    points: tuple[Point, ...]
    """Points with all products in light, for each scheme."""
    parts: tuple[Point, ...] = ()
    """Points with one group of products in light and all others exact, for each group."""

    @property
    def exact(self) -> float:
        """Accuracy of exact arithmetic, mean over seeds."""
        return statistics.fmean(self.digital)

    def record(self) -> dict[str, Any]:
        """Return the curves as plain data."""
        return {
            "shape": self.shape,
            "digital_accuracy": self.exact,
            "digital_accuracy_by_seed": list(self.digital),
            "points": [point.record() for point in self.points],
            "products_apart": [point.record() for point in self.parts],
        }


@dataclass(frozen=True, kw_only=True)
class PhotonResult(Result):
    """All curves of one run."""

    models: tuple[ModelCurves, ...]
    """Curves of each kind of network."""
    digits: str
    """Name of the set of images."""
    law: tuple[Point, ...]
    """Points of perceptrons whose first layer alone is in light, counted by two detectors, for each length of
    its sums; empty without a perceptron."""
    law_digital: Mapping[int, float]
    """Accuracy of exact arithmetic by length, mean over the seeds of `law`."""
    digits_sha256: str
    """Hash of the test images."""

    def needed(self) -> dict[int, float]:
        """Return the photons per multiplication at `TARGET` of the exact accuracy, by vector length."""
        return {
            length: photons_at(TARGET * exact, [one for one in self.law if one.inputs == length])
            for length, exact in self.law_digital.items()
        }

    @property
    def exponent(self) -> float:
        """Slope of photons per multiplication over length, in logarithms; -1 if photons per sum decide."""
        found = {n: photons for n, photons in self.needed().items() if math.isfinite(photons)}
        if len(found) < 2:
            return math.nan
        return float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])

    def record(self) -> dict[str, Any]:
        """Return the run as plain data."""
        return {
            "models": {one.model: one.record() for one in self.models},
            "first_layer_only": [point.record() for point in self.law],
            "digital_accuracy_by_inputs": dict(self.law_digital),
            "photons_by_inputs": self.needed(),
            "share_of_digital_accuracy": TARGET,
            "exponent_of_length": self.exponent,
            "published": [
                {
                    "work": one.work,
                    "photons_per_multiplication": one.photons_per_mac,
                    "accuracy": one.accuracy,
                }
                for one in published()
            ],
            "digits": self.digits,
            "digits_sha256": self.digits_sha256,
        }

    def report(self) -> list[Block]:
        """Return tables of accuracy by scheme and by group of products, and of photons by length of sums."""
        tables: list[Block] = [f"Images: {self.digits}."]
        for one in self.models:
            title = f"{one.title} {one.shape}: accuracy (%) by {_PER_MULTIPLICATION}; exact: {one.exact:.1%}"
            tables.append(_accuracy_table(title, one.points))
            if one.parts:
                tables.append(_accuracy_table(f"{one.title}, counted as a pair, all else exact", one.parts))
        marks = ", ".join(
            f"{one.accuracy:.0%} at {one.photons_per_mac:g} ({one.work})" for one in published()
        )
        tables.append(f"Measured on MNIST, sums of 784 and 100, not on {self.digits}: {marks}.")
        if self.law:
            tables += self._length_table()
        return tables

    def _length_table(self) -> list[Block]:
        needed = self.needed()
        lengths = [
            ReportRow("exact accuracy", tuple(f"{self.law_digital[n]:.1%}" for n in needed)),
            ReportRow("photons per multiplication", tuple(_photons(found) for found in needed.values())),
            ReportRow(
                "photons per dot product", tuple(_photons(found * length) for length, found in needed.items())
            ),
        ]
        table = ReportTable(
            f"Only the first layer in light: photons for {TARGET:.0%} of the exact accuracy",
            [f"{length} inputs" for length in needed],
            lengths,
        )
        return [table, f"Photons per multiplication go as length^{self.exponent:.2f}; the law is -1."]

    def rows(self) -> list[Row]:
        """Return a row for each point."""
        groups = [(one.model, "all", one.points) for one in self.models]
        groups += [(one.model, "part", one.parts) for one in self.models if one.parts]
        if self.law:
            groups.append((self.models[0].model, "first layer", self.law))
        return [
            {
                "network": model,
                "in_light": in_light,
                "curve": one.curve,
                "inputs": one.inputs,
                "photons_per_multiplication": f"{one.photons_per_mac:g}",
                "accuracy": f"{one.mean:.5f}",
                "spread": f"{one.spread:.5f}",
                "seeds": len(one.accuracies),
            }
            for model, in_light, points in groups
            for one in points
        ]

    def figure(self) -> Figure:
        """Return accuracy over photons by network and scheme, length of sums, and group of products."""
        apart = [model for model in self.models if model.parts]
        below = 2 * bool(self.law) + len(apart)
        figure = new_figure(6.2)
        # A common multiple of panels in both rows, so that each row is filled.
        columns = len(self.models) * below
        grid = figure.add_gridspec(2, columns, height_ratios=(1.35, 1.0))
        width = columns // len(self.models)
        for index, model in enumerate(self.models):
            axes = figure.add_subplot(grid[0, index * width : (index + 1) * width])
            _draw_model(axes, model, first=index == 0)
            if index == 0:
                figure.legend(*_named(axes), loc="outside upper center", ncols=3)
        width = columns // below
        lower = [figure.add_subplot(grid[1, i * width : (i + 1) * width]) for i in range(below)]
        if self.law:
            for axes, per_dot_product in ((lower[0], False), (lower[1], True)):
                _draw_curves(axes, _curves(self.law), per_dot_product=per_dot_product, offset=_OTHERS)
            lower[0].set_title("Perceptron, first layer in light")
            lower[0].set_xlabel("photons per multiplication")
            lower[0].legend(loc="lower right", **_ON_WHITE)
            lower[1].set_title("By photons in the whole sum")
            lower[1].set_xlabel("photons per dot product")
        for axes, model in zip(lower[2 * bool(self.law) :], apart, strict=True):
            _draw_curves(axes, _curves(model.parts), per_dot_product=False, offset=_OTHERS)
            axes.set_title("Its products apart" if len(self.models) == 1 else f"{model.title}, apart")
            axes.set_xlabel("photons per multiplication")
            axes.legend(loc="lower right", **_ON_WHITE)
        for axes in lower[1:]:
            axes.set_ylabel("")
        figure.supxlabel(f"Images: {self.digits}", fontsize="medium")
        return figure


def published() -> list[Published]:
    """Return the published accuracies."""
    with _PUBLISHED.open(newline="", encoding="utf-8") as file:
        return [
            Published(
                work=row["work"],
                photons_per_mac=float(row["photons_per_multiplication"]),
                accuracy=float(row["accuracy"]),
            )
            for row in csv.DictReader(file)
        ]


def photons_at(accuracy: float, curve: Sequence[Point]) -> float:
    """Return the photons at which a curve first meets an accuracy, between points in log photons.

    Parameters
    ----------
    accuracy : float
        Share of images classified correctly.
    curve : sequence of Point
        Points with ascending photons.

    Returns
    -------
    float
        Infinite if it never does; NaN if its first point already does.
    """
    before: Point | None = None
    for point in curve:
        if point.mean >= accuracy:
            if before is None:
                return math.nan
            share = (accuracy - before.mean) / (point.mean - before.mean)
            return before.photons_per_mac * (point.photons_per_mac / before.photons_per_mac) ** share
        before = point if math.isfinite(point.mean) else before
    return math.inf


GRID = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Photons per multiplication of every curve."""
LAW_GRID = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Photons per multiplication of curves whose first layer alone is in light."""
_TRAINING_IMAGES, _TEST_IMAGES, _SPLIT = 0, 1, 2


class Scheme(StrEnum):
    """Schemes of products in light; each value is the name in tables and figures."""

    PAIR = "counted, pair"
    OFFSET = "counted, offset"
    SHOT = "homodyne, shot only"
    CORE = "homodyne, as built"


class DigitSet(StrEnum):
    """Sets of images of digits; each value is the name on the command line."""

    REAL = "real"
    """Handwriting, of the set that comes with scikit-learn."""
    DRAWN = "drawn"
    """Glyphs of fonts that every machine has, distorted."""

    @classmethod
    def usual(cls) -> DigitSet:
        """Return the default set: handwriting if it is installed, else drawn digits."""
        from workloads.training.classifier import has_handwriting  # noqa: PLC0415 - only to execute

        return cls.REAL if has_handwriting() else cls.DRAWN

    @property
    def named(self) -> str:
        """Name in print."""
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
    """Effort of a run."""

    models: tuple[Model, ...] = tuple(Model)
    """Kinds of networks."""
    digits: DigitSet = DigitSet.DRAWN
    """Set of images."""
    seeds: tuple[int, ...]
    """Seeds of perceptrons: of initial weights, the order of images and all noise."""
    law_seeds: tuple[int, ...]
    """Seeds of perceptrons with other lengths of sums, a part of `seeds`."""
    vision_seeds: tuple[int, ...]
    """Seeds of vision transformers."""
    sides: tuple[int, ...]
    """Edges of the images in pixels, whose squares are the lengths of sums; ascending."""
    training_images: int
    """Number of images to train on."""
    test_images: int
    """Number of images that a perceptron classifies."""
    vision_images: int
    """Number of images that a vision transformer classifies, the first of the same."""
    epochs: int
    """Passes over the images in the training of a perceptron."""
    vision_epochs: int
    """Passes over the images in the training of a vision transformer, which learns more slowly."""

    @classmethod
    def of(
        cls,
        *,
        quick: bool,
        seed: int = 0,
        models: tuple[Model, ...] = tuple(Model),
        digits: DigitSet = DigitSet.DRAWN,
    ) -> Request:
        """Return the default effort, or a quick one, with seeds from `seed` on."""
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
        """Return the effort for handwriting, a small set that needs more passes over the images."""
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
        """Return the images for training and for tests; every resolution shows the same digits."""
        from workloads.training.classifier import draw_digits, read_handwriting  # noqa: PLC0415 - reads fonts

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
    """Return the arithmetic of a scheme at a number of photons per multiplication."""
    from optical.cores.homodyne import LitCore, default_homodyne  # noqa: PLC0415 - torch, only to execute
    from optical.execution.numerics import CountingNumerics, HomodyneNumerics, Signs  # noqa: PLC0415

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


PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "scores": ("scores",),
        "values": ("values",),
        "weights": ("patches", "qkv", "projection", "up", "down", "head"),
    }
)
"""Groups of products that are put in light alone, by name."""
_EXACT = "exact"

Curves = dict[tuple[str, float], float]
"""Accuracy by curve and photons per multiplication."""


def run_vision(
    request: Request, images: tuple[Digits, Digits], progress: Callable[[str], None]
) -> ModelCurves:
    """Return the curves of vision transformers: each scheme, and each group of products alone."""
    from workloads.training.classifier import (  # noqa: PLC0415 - torch, only to execute
        VisionConfig,
        train_vision_transformer,
    )

    training, test = images[0], first_of(images[1], request.vision_images)
    found: list[Curves] = []
    shape = ""
    for seed in request.vision_seeds:
        model = train_vision_transformer(
            VisionConfig(patch_side=request.digits.patch_side, epochs=request.vision_epochs, seed=seed),
            training,
        )
        shape = model.shape
        found.append(_vision_curves(model, test, seed))
        progress("vision transformer")

    point = functools.partial(_point, found, request.digits.patch_side**2)
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


def _curve(
    name: str,
    scheme: Scheme,
    seed: int,
    read: Callable[[CountingNumerics | HomodyneNumerics, int], float],
    grid: Sequence[float] = GRID,
) -> Curves:
    """Return accuracies by the photons of a scheme; NaN if its link does not close."""
    found: Curves = {}
    for index, photons in enumerate(grid):
        light = products_of(scheme, photons)
        try:
            found[name, photons] = read(light, mix_key(seed, index))
        except LinkError:
            found[name, photons] = math.nan
    return found


def _vision_curves(model: VisionTransformer, test: Digits, seed: int) -> Curves:
    """Return accuracies of a vision transformer: exact, by scheme, and by group of products in light."""
    from workloads.training.classifier import Product, vision_accuracy  # noqa: PLC0415 - torch

    def curve(name: str, scheme: Scheme, part: Iterable[str]) -> Curves:
        lit = tuple(map(Product, part))
        return _curve(
            name,
            scheme,
            seed,
            lambda light, key: vision_accuracy(model, test, dict.fromkeys(lit, light), key=key),
        )

    found = {(_EXACT, math.inf): vision_accuracy(model, test, {}, key=seed)}
    for scheme in Scheme:
        found |= curve(str(scheme), scheme, Product)
    for name, part in PARTS.items():
        found |= curve(name, Scheme.PAIR, part)
    return found


Found = dict[tuple[int, int], Curves]
"""Curves by edge of the images in pixels and seed."""


def run_photons(request: Request, progress: OnProgress = unheard) -> PhotonResult:
    """Train the networks and run them through every scheme; the same request gives the same result.

    Parameters
    ----------
    request : Request
        Effort of the run.
    progress : callable
        Called with the purpose of the last network, networks done, and networks in all.
    """
    own = request.digits.side
    perceptrons: list[tuple[int, int]] = []
    if Model.MLP in request.models:
        perceptrons += [(own, seed) for seed in request.seeds]
        perceptrons += [(side, seed) for side in request.sides if side != own for seed in request.law_seeds]
    total = len(perceptrons) + (len(request.vision_seeds) if Model.VIT in request.models else 0)
    done = 0

    def report_network(label: str) -> None:
        nonlocal done
        done += 1
        progress(label, done, total)

    images = functools.cache(request.images)
    models: list[ModelCurves] = []
    law: tuple[Point, ...] = ()
    law_digital: dict[int, float] = {}
    with one_thread():
        if perceptrons:
            found, shape = _perceptrons(request, perceptrons, images, report_network)
            point = functools.partial(_point, [found[own, seed] for seed in request.seeds], own * own)
            models.append(
                ModelCurves(
                    model=str(Model.MLP),
                    title="Perceptron",
                    shape=shape,
                    digital=point(_EXACT, math.inf).accuracies,
                    points=tuple(point(str(scheme), photons) for scheme in Scheme for photons in GRID),
                )
            )
            for side in request.sides:
                length = side * side
                point = functools.partial(_point, [found[side, seed] for seed in request.law_seeds], length)
                law += tuple(point(f"{length} inputs", photons) for photons in LAW_GRID)
                law_digital[length] = point(_EXACT, math.inf).mean
        if Model.VIT in request.models:
            models.append(run_vision(request, images(own), report_network))
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
    """Return the curves of each perceptron, and the widths of perceptrons at the default resolution."""
    from workloads.training.classifier import (  # noqa: PLC0415 - torch, only to execute
        ClassifierConfig,
        accuracy,
        train_classifier,
    )

    found: Found = {}
    shape = ""
    for side, seed in wanted:
        training, test = images(side)
        network = train_classifier(ClassifierConfig(epochs=request.epochs, seed=seed), training)
        exact = accuracy(network, test, [None] * len(network.weights_KM), key=seed)
        found[side, seed] = {(_EXACT, math.inf): exact}
        if side == request.digits.side:
            shape = "-".join(str(width) for width in network.widths)
            found[side, seed] |= _all_layers(network, test, seed)
        if side in request.sides and seed in request.law_seeds:
            found[side, seed] |= _first_layer(network, test, seed)
        progress(f"{side} x {side} pixels")
    return found, shape


def _point(found: Iterable[Curves], inputs: int, curve: str, photons: float) -> Point:
    accuracies = tuple(one[curve, photons] for one in found)
    return Point(curve=curve, inputs=inputs, photons_per_mac=photons, accuracies=accuracies)


def _all_layers(network: Classifier, test: Digits, seed: int) -> Curves:
    from workloads.training.classifier import accuracy  # noqa: PLC0415 - torch

    layers, found = len(network.weights_KM), Curves()
    for scheme in Scheme:
        found |= _curve(
            str(scheme),
            scheme,
            seed,
            lambda light, key: accuracy(network, test, [light] * layers, key=key),
        )
    return found


def _first_layer(network: Classifier, test: Digits, seed: int) -> Curves:
    from workloads.training.classifier import accuracy  # noqa: PLC0415 - torch

    exact = [None] * (len(network.weights_KM) - 1)
    return _curve(
        f"{network.widths[0]} inputs",
        Scheme.PAIR,
        seed,
        lambda light, key: accuracy(network, test, [light, *exact], key=key),
        LAW_GRID,
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: products this small do not gain by more."""
    import torch  # noqa: PLC0415 - only to execute

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_PER_MULTIPLICATION = "detected photons per multiplication"
_MARKERS = "osD^"
_OTHERS = 4
"""Colours from here on are for curves that are no schemes."""
_ON_WHITE: dict[str, Any] = {"frameon": True, "framealpha": 1.0, "edgecolor": "none", "borderpad": 0.1}
"""Style of a legend that covers a line."""
_FULL_PERCENT = 100.0
_COLOURS = (*PALETTE[:4], PALETTE[4], PALETTE[5], PALETTE[8])


def _accuracy_table(title: str, points: Sequence[Point]) -> ReportTable:
    curves = _curves(points)
    grid = [point.photons_per_mac for point in next(iter(curves.values()))]
    rows = [
        ReportRow(f"{photons:g}", tuple(_percent(curve[i]) for curve in curves.values()))
        for i, photons in enumerate(grid)
    ]
    rows.append(
        ReportRow(
            f"photons for {TARGET:.0%}",
            tuple(_photons(photons_at(TARGET, curve), curve) for curve in curves.values()),
            section=True,
        )
    )
    return ReportTable(title, list(curves), rows)


def _draw_model(axes: Axes, model: ModelCurves, *, first: bool) -> None:
    """Draw the curve of every scheme, exact arithmetic, guessing, and the published measurements."""
    _draw_curves(axes, _curves(model.points), per_dot_product=False)
    exact = _FULL_PERCENT * model.exact
    axes.axhline(exact, color=REFERENCE, linewidth=0.9, linestyle="--", label="exact arithmetic")
    axes.text(
        0.99, _FULL_PERCENT * CHANCE, "guessing", transform=axes.get_yaxis_transform(), ha="right", va="top"
    )
    for index, mark in enumerate(published()):
        axes.plot(
            [mark.photons_per_mac],
            [_FULL_PERCENT * mark.accuracy],
            "*",
            color=REFERENCE,
            markersize=11,
            label="" if index else f"perceptron measured on MNIST ({mark.work})",
        )
    axes.set_title(f"{model.title}, every product in light\n{model.shape}")
    axes.set_xlabel(_PER_MULTIPLICATION)
    if not first:
        axes.set_ylabel("")


def _named(axes: Axes) -> tuple[list[Artist], list[str]]:
    """Return the handles of a panel that have a name, and the names."""
    handles, labels = axes.get_legend_handles_labels()
    kept = [(handle, text) for handle, text in zip(handles, labels, strict=True) if text]
    return [handle for handle, _ in kept], [text for _, text in kept]


def _draw_curves(
    axes: Axes, curves: dict[str, list[Point]], *, per_dot_product: bool, offset: int = 0
) -> None:
    """Draw curves with bands of one standard deviation over seeds."""
    axes.axhline(_FULL_PERCENT * CHANCE, color=PALETTE[7], linewidth=0.8, linestyle=":")
    for index, (name, points) in enumerate(curves.items()):
        shown = [point for point in points if math.isfinite(point.mean)]
        x = [one.photons_per_mac * (one.inputs if per_dot_product else 1) for one in shown]
        mean = [_FULL_PERCENT * one.mean for one in shown]
        low, high = (
            [_FULL_PERCENT * min(1.0, one.mean + sign * one.spread) for one in shown] for sign in (-1, 1)
        )
        colour = _COLOURS[offset + index]
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0.0)
        axes.plot(
            x, mean, "-", marker=_MARKERS[index % len(_MARKERS)], markersize=3.5, color=colour, label=name
        )
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, minor=False)
    axes.set_ylim(0.0, 1.04 * _FULL_PERCENT)
    axes.set_ylabel("accuracy, %")
    axes.grid(visible=True)


def _curves(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return points by curve, in order."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.curve, []).append(point)
    return found


def _percent(point: Point) -> str:
    if math.isnan(point.mean):
        return "no link"
    return f"{_FULL_PERCENT * point.mean:.1f} \u00b1 {_FULL_PERCENT * point.spread:.1f}"


def _photons(value: float, curve: Sequence[Point] = ()) -> str:
    if math.isnan(value) and curve:
        return f"below {curve[0].photons_per_mac:g}"
    return "not reached" if math.isinf(value) else format_si(value)


@dataclass(frozen=True, kw_only=True)
class ByPhotons(Study):
    """Accuracy by photons per multiplication."""

    directory = "photons"

    model: tuple[Model, ...] = option(
        (), "perceptron or vision transformer; may be given twice; default both", metavar="mlp|vit"
    )
    digits: DigitSet | None = option(
        None, "handwriting, if scikit-learn is installed (the default there), or digits drawn from fonts"
    )
    quick: bool = option(False, "fewer images, seeds and vector lengths")
    seed: int = option(0, "first seed of the networks")

    def run(self, progress: Progress) -> PhotonResult:
        """Return all curves."""
        digits = DigitSet.usual() if self.digits is None else self.digits
        if digits is not DigitSet.REAL and self.digits is None:
            sys.stderr.write("scikit-learn is not installed: reading drawn digits, not handwriting.\n")
        models = tuple(one for one in Model if one in (self.model or Model))
        request = Request.of(quick=self.quick, seed=self.seed, models=models, digits=digits)
        return run_photons(request, progress)
