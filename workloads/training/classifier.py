"""Images of digits, and two small networks that classify them through a core's numerics.

Networks are trained with exact products. Digits need no download: distorted glyphs of matplotlib's fonts, or
scikit-learn's handwriting. The networks are a fully connected one and a vision transformer.

Shape suffixes: N images, K inputs and M outputs of a layer, T patches of an image, P pixels of a patch, D
width, H heads, F hidden, C classes; Z all vectors of a batch, Q the head's part of the width.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.ft2font import FT2Font

from simulator.errors import WorkloadError, check_positive, check_range
from simulator.interfaces import Numerics
from simulator.keys import mix_key

CLASSES = 10
"""Digits 0 to 9."""
_FAMILIES = ("DejaVu", "STIXGeneral")
"""Families whose every face has upright or oblique digits."""
_LEFT_OUT = ("Display",)
"""Faces with few glyphs."""
_GLYPH_SIDE = 64
"""Pixels of a glyph's canvas ..."""
_GLYPH_POINTS = 60.0
"""... and the size at which it is drawn, so that a digit fills about two thirds of it."""
_DOTS_PER_INCH = 72
_OPAQUE = 255.0
"""Grey level of FreeType's full coverage."""
_CHUNK = 256
"""Images that are drawn together, so that their scratch memory stays in cache."""


@dataclass(frozen=True, kw_only=True)
class Distortion:
    """Largest distortions of drawn digits; each is uniform within plus and minus its number."""

    rotation_rad: float = 0.25
    """Rotation."""
    shear: float = 0.2
    """Horizontal shear, dimensionless."""
    scale: float = 0.2
    """Relative change of width and of height, each on its own."""
    shift: float = 0.06
    """Displacement in either direction, in sides of the image."""
    noise: float = 0.1
    """Standard deviation of the grey value of each pixel, of full scale."""

    def __post_init__(self) -> None:
        check_range(self, "rotation_rad", "shear", "shift", "noise")
        check_range(self, "scale", high=0.9)


@dataclass(frozen=True, kw_only=True, eq=False)
class Digits:
    """Images of digits with their labels."""

    side: int
    """Pixels along an edge."""
    images: np.ndarray
    """Grey values from 0 to 1, float32, shape [N, side * side]."""
    labels: np.ndarray
    """Digits shown, int64, shape [N]."""

    @property
    def sha256(self) -> str:
        """Hash of images and labels; it changes with the fonts and the rasterizer of the installation."""
        return hashlib.sha256(self.images.tobytes() + self.labels.tobytes()).hexdigest()


def draw_digits(
    count: int, *, generator: np.random.Generator, side: int = 28, distortion: Distortion | None = None
) -> Digits:
    """Return images of digits, equally many of each, every one distorted by its own draw.

    Parameters
    ----------
    count : int
        Images, at least 1.
    generator : numpy.random.Generator
        Source of faces, distortions and noise. All but the noise does not depend on `side`: the same state
        gives the same digits at another resolution.
    side : int
        Pixels along an edge, at least 4.
    distortion : Distortion, optional
        Size of the distortions.

    Raises
    ------
    WorkloadError
        If a number is too small, or the fonts are missing.
    """
    for name, value, least in (("count", count, 1), ("side", side, 4)):
        if value < least:
            msg = f"draw_digits: {name} must be at least {least}; got {value}"
            raise WorkloadError(msg)
    distortion = distortion or Distortion()
    glyphs = _glyphs()
    labels = generator.permutation(np.arange(count) % CLASSES)
    faces = generator.integers(glyphs.shape[0], size=count)
    draws = generator.uniform(-1.0, 1.0, size=(count, 6))
    maps, shifts = _maps(draws, distortion)
    images = np.empty((count, side * side), np.float32)
    for start in range(0, count, _CHUNK):
        part = slice(start, start + _CHUNK)
        images[part] = _sample(glyphs[faces[part], labels[part]], maps[part], shifts[part], side)
    images += distortion.noise * generator.standard_normal(images.shape, dtype=np.float32)
    return Digits(side=side, images=images.clip(0.0, 1.0), labels=labels.astype(np.int64))


def _maps(draws: np.ndarray, distortion: Distortion) -> tuple[np.ndarray, np.ndarray]:
    """Return for each image the matrix from its plane to the glyph's, [N, 2, 2], and its shift, [N, 2]."""
    angle, shear = distortion.rotation_rad * draws[:, 0], distortion.shear * draws[:, 1]
    width, height = 1.0 / (1.0 + distortion.scale * draws[:, 2:4].T)
    cosine, sine = np.cos(angle), np.sin(angle)
    x_row = np.stack((width * cosine - shear * sine, width * sine + shear * cosine), axis=1)
    y_row = np.stack((-height * sine, height * cosine), axis=1)
    return np.stack((x_row, y_row), axis=1), distortion.shift * draws[:, 4:6]


def _sample(glyphs: np.ndarray, maps: np.ndarray, shifts: np.ndarray, side: int) -> np.ndarray:
    """Return images of distorted glyphs by bilinear interpolation, shape [N, side * side]."""
    axis = (np.arange(side) + 0.5) / side - 0.5
    plane = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    points = np.einsum("nij,nsj->nsi", maps, plane[None] - shifts[:, None]) + 0.5
    points = (points * _GLYPH_SIDE - 0.5).clip(0.0, _GLYPH_SIDE - 1.001)
    corner = points.astype(np.int64)
    right, down = np.moveaxis(points - corner, -1, 0)
    first = corner[..., 1] * _GLYPH_SIDE + corner[..., 0] + np.arange(len(glyphs))[:, None] * _GLYPH_SIDE**2
    flat = glyphs.reshape(-1)
    top = flat[first] * (1.0 - right) + flat[first + 1] * right
    bottom = flat[first + _GLYPH_SIDE] * (1.0 - right) + flat[first + _GLYPH_SIDE + 1] * right
    return top * (1.0 - down) + bottom * down


@functools.cache
def _glyphs() -> np.ndarray:
    """Return every digit of every face in the middle of its canvas, shape [faces, 10, side, side]."""
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    faces = sorted(
        path
        for path in folder.glob("*.ttf")
        if path.name.startswith(_FAMILIES) and not any(word in path.name for word in _LEFT_OUT)
    )
    if not faces:
        msg = f"no font of {' or '.join(_FAMILIES)} in '{folder}'; install matplotlib from its own package"
        raise WorkloadError(msg)
    return np.stack([_face(path) for path in faces])


def _face(path: Path) -> np.ndarray:
    """Return the digits of one face, shape [10, side, side]."""
    found = np.zeros((CLASSES, _GLYPH_SIDE, _GLYPH_SIDE), np.float32)
    for digit in range(CLASSES):
        font = FT2Font(str(path))
        font.set_size(_GLYPH_POINTS, _DOTS_PER_INCH)
        font.set_text(str(digit))
        font.draw_glyphs_to_bitmap(antialiased=True)
        glyph = np.asarray(font.get_image(), np.float32) / np.float32(_OPAQUE)
        top, left = ((_GLYPH_SIDE - size) // 2 for size in glyph.shape)
        found[digit, top : top + glyph.shape[0], left : left + glyph.shape[1]] = glyph
    return found


WRITTEN_SIDE = 8
"""Pixels along an edge."""
WRITTEN_IMAGES = 1797
"""Images of the set."""
_LEVELS = 16.0
"""Largest grey value: points of 4 x 4 blocks of the scanned image that are ink."""


def has_handwriting() -> bool:
    """Return whether scikit-learn is installed."""
    return importlib.util.find_spec("sklearn") is not None


def read_handwriting(
    training: int, test: int, *, generator: np.random.Generator, side: int = WRITTEN_SIDE
) -> tuple[Digits, Digits]:
    """Return handwritten digits to train on and others to test with, no image in both.

    Parameters
    ----------
    training, test : int
        Images of each, at least 1; together at most `WRITTEN_IMAGES`.
    generator : numpy.random.Generator
        Source of the split, which does not depend on `side`. The writers of both parts are the same.
    side : int
        Pixels along an edge, at least that of the set; more are interpolated and show nothing new.

    Raises
    ------
    WorkloadError
        If scikit-learn is missing, or there are not so many images.

    References
    ----------
    E. Alpaydin and C. Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository
    (1998): the 1,797 test images, by 13 writers, as 8 x 8 counts from 0 to 16.
    """
    if not has_handwriting():
        msg = (
            "handwritten digits come with scikit-learn, which is not installed; install heliograph[digits], "
            "or take drawn digits"
        )
        raise WorkloadError(msg)
    if min(training, test) < 1 or training + test > WRITTEN_IMAGES:
        msg = (
            f"read_handwriting: training ({training}) and test ({test}) must be at least 1, and together at "
            f"most {WRITTEN_IMAGES}"
        )
        raise WorkloadError(msg)
    if side < WRITTEN_SIDE:
        msg = f"read_handwriting: side must be at least {WRITTEN_SIDE}, that of the set; got {side}"
        raise WorkloadError(msg)
    from sklearn.datasets import load_digits  # noqa: PLC0415 - optional, and takes seconds

    found = load_digits()
    order = generator.permutation(len(found.target))
    images = np.asarray(found.images, np.float64) / _LEVELS
    across = _interpolation(side)
    images = np.einsum("yr,nrc,xc->nyx", across, images, across).reshape(len(images), -1)
    images, labels = images.astype(np.float32), np.asarray(found.target, np.int64)
    parts = (order[:training], order[training : training + test])
    first, second = (Digits(side=side, images=images[part], labels=labels[part]) for part in parts)
    return first, second


def _interpolation(side: int) -> np.ndarray:
    """Return the matrix that interpolates a row of 8 pixels linearly to `side` pixels, shape [side, 8]."""
    middles = (np.arange(side) + 0.5) * (WRITTEN_SIDE / side) - 0.5
    return np.stack(
        [np.interp(middles, np.arange(WRITTEN_SIDE), unit) for unit in np.eye(WRITTEN_SIDE)], axis=1
    )


_WEIGHT_DECAY = 1e-2
_INITIAL_WEIGHTS, _ORDER = 0, 1


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """Layers of a fully connected network, and settings of its training."""

    hidden: tuple[int, ...] = (100, 100)
    """Neurons of each hidden layer."""
    epochs: int = 12
    """Passes over the images."""
    batch: int = 64
    """Images of an update."""
    learning_rate: float = 2e-3
    """Of AdamW at the start; it falls linearly to zero."""
    seed: int = 0
    """Of initial weights and of the order of images."""

    def __post_init__(self) -> None:
        check_range(self, "epochs", "batch", low=1)
        check_range(self, "seed")
        check_positive(self, "learning_rate")
        if not self.hidden or min(self.hidden) < 1:
            msg = f"ClassifierConfig: hidden must be one or more layers of at least 1; got {self.hidden}"
            raise WorkloadError(msg)


@dataclass(frozen=True, kw_only=True, eq=False)
class Classifier:
    """A trained fully connected network with rectifiers, so that no layer has a negative input."""

    weights_KM: tuple[torch.Tensor, ...]
    """Weights of each layer, shapes [K, M]."""
    biases_M: tuple[torch.Tensor, ...]
    """Biases of each layer, shapes [M]; they are added digitally."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Inputs of each layer, then classes."""
        return (*(weight.shape[0] for weight in self.weights_KM), self.weights_KM[-1].shape[1])


def _fit(
    config: ClassifierConfig | VisionConfig,
    parameters: Iterable[torch.Tensor],
    images: torch.Tensor,
    labels: torch.Tensor,
    logits: Callable[[torch.Tensor], torch.Tensor],
    *,
    warm_up: float = 0.0,
) -> None:
    """Train parameters by AdamW on cross-entropy; the rate rises over a share of the updates, then falls."""
    order = torch.Generator().manual_seed(mix_key(config.seed, _ORDER))
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=_WEIGHT_DECAY)
    updates = config.epochs * -(-len(images) // config.batch)
    rising = warm_up * updates
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min((done + 1) / rising if rising else 1.0, 1.0 - done / updates)
    )
    for _ in range(config.epochs):
        for chosen in torch.randperm(len(images), generator=order).split(config.batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            rate.step()


def train_classifier(config: ClassifierConfig, digits: Digits) -> Classifier:
    """Return a classifier trained in single precision; the same arguments give the same weights."""
    initial = torch.Generator().manual_seed(mix_key(config.seed, _INITIAL_WEIGHTS))
    widths = (digits.images.shape[1], *config.hidden, CLASSES)
    shapes = list(itertools.pairwise(widths))
    weights = [torch.randn(k, m, generator=initial).mul_((2.0 / k) ** 0.5) for k, m in shapes]
    biases = [torch.zeros(m) for _, m in shapes]
    parameters = [one.requires_grad_() for one in (*weights, *biases)]

    def logits(x_NK: torch.Tensor) -> torch.Tensor:
        for layer, (weight_KM, bias_M) in enumerate(zip(weights, biases, strict=True)):
            x_NK = torch.addmm(bias_M, x_NK.relu() if layer else x_NK, weight_KM)
        return x_NK

    _fit(config, parameters, torch.from_numpy(digits.images), torch.from_numpy(digits.labels), logits)
    return Classifier(
        weights_KM=tuple(one.detach() for one in weights), biases_M=tuple(one.detach() for one in biases)
    )


@torch.no_grad()
def accuracy(
    classifier: Classifier, digits: Digits, products: Sequence[Numerics | None], *, key: int
) -> float:
    """Return the share of images that are classified correctly.

    Parameters
    ----------
    classifier : Classifier
        The network.
    digits : Digits
        Images to classify.
    products : sequence of Numerics or None
        Numerics of each layer's product; None for exact arithmetic.
    key : int
        Source of all noise.

    Raises
    ------
    WorkloadError
        If products and layers differ in number.
    """
    layers = len(classifier.weights_KM)
    if len(products) != layers:
        msg = f"accuracy: products ({len(products)}) must be one per layer ({layers})"
        raise WorkloadError(msg)
    x_NK = torch.from_numpy(digits.images)
    for layer, numerics in enumerate(products):
        x_NK = x_NK.relu() if layer else x_NK
        weight_KM = classifier.weights_KM[layer]
        if numerics is None:
            product_NM = x_NK @ weight_KM
        else:
            product_NM = numerics.matmul(x_NK[None], weight_KM[None], mix_key(key, layer))[0]
        x_NK = product_NM + classifier.biases_M[layer]
    return float((x_NK.argmax(1) == torch.from_numpy(digits.labels)).float().mean())


_WARM_UP = 0.1
_POSITION_SPREAD = 0.02


class Product(StrEnum):
    """Products of the vision transformer, named after their results."""

    PATCHES = "patches"
    QKV = "qkv"
    SCORES = "scores"
    VALUES = "values"
    PROJECTION = "projection"
    UP = "up"
    DOWN = "down"
    HEAD = "head"


ATTENTION = (Product.SCORES, Product.VALUES)
"""Products both operands of which are activations: the queries with the keys, the shares with the values."""

Multiply = Callable[[Product, int, torch.Tensor, torch.Tensor], torch.Tensor]
"""Executes a product: from its kind, its layer, and operands of shapes [B, M, K] and [B, K, N]."""


@dataclass(frozen=True, kw_only=True)
class VisionConfig:
    """Shape of a vision transformer, and settings of its training."""

    patch_side: int = 7
    """Pixels along an edge of a patch."""
    width: int = 32
    """Elements of the vector of a patch."""
    layers: int = 2
    """Blocks of attention and two-layer perceptron."""
    heads: int = 2
    """Heads of attention; divides the width."""
    hidden: int = 64
    """Neurons between the two layers of a perceptron."""
    epochs: int = 16
    """Passes over the images."""
    batch: int = 64
    """Images of an update."""
    learning_rate: float = 4e-3
    """Of AdamW after the first tenth of the updates, over which it rises; it then falls linearly to zero."""
    seed: int = 0
    """Of initial weights and of the order of images."""

    def __post_init__(self) -> None:
        check_range(self, "patch_side", "width", "layers", "heads", "hidden", "epochs", "batch", low=1)
        check_range(self, "seed")
        check_positive(self, "learning_rate")
        if self.width % self.heads:
            msg = f"VisionConfig: heads ({self.heads}) must divide width ({self.width}); try 1, 2 or 4"
            raise WorkloadError(msg)


@dataclass(frozen=True, kw_only=True, eq=False)
class VisionTransformer:
    """A trained vision transformer: norms first, learned positions, a mean over patches before the head.

    References
    ----------
    A. Dosovitskiy et al., "An image is worth 16x16 words", arXiv:2010.11929, eqs. 1 to 4; with rectifiers and
    a mean in place of its class token.
    """

    config: VisionConfig
    """Its shape."""
    weights: Mapping[str, torch.Tensor]
    """Matrices, biases, gains of norms and positions, by name."""

    @property
    def shape(self) -> str:
        """The shape in a line."""
        config = self.config
        patch = f"patches of {config.patch_side**2}"
        return f"{config.layers} blocks of width {config.width}, {config.heads} heads, {patch}"


def patches_of(images: torch.Tensor, side: int, patch_side: int) -> torch.Tensor:
    """Return images, shape [N, side * side], cut into patches, shape [N, T, P].

    Raises
    ------
    WorkloadError
        If the patches do not tile the image.
    """
    if side % patch_side:
        msg = f"patch_side ({patch_side}) must divide the images' side ({side})"
        raise WorkloadError(msg)
    count = side // patch_side
    grid = images.reshape(-1, count, patch_side, count, patch_side).transpose(2, 3)
    return grid.reshape(len(images), count * count, patch_side * patch_side)


def logits_of(model: VisionTransformer, patches_NTP: torch.Tensor, multiply: Multiply) -> torch.Tensor:
    """Return logits, shape [N, C]; everything but the products is digital and exact."""
    config, weights = model.config, model.weights
    images, patches, _ = patches_NTP.shape

    def linear(product: Product, layer: int, x_ZK: torch.Tensor) -> torch.Tensor:
        name = _name(product, layer)
        product_ZM = multiply(product, layer, x_ZK[None], weights[name][None])[0]
        return product_ZM + weights[f"{name} bias"]

    def norm(name: str, x_ZD: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x_ZD, (config.width,), weights[f"{name} gain"])

    x_ZD = linear(Product.PATCHES, 0, patches_NTP.reshape(images * patches, -1))
    x_ZD = x_ZD + weights["positions"].repeat(images, 1)
    for layer in range(config.layers):
        qkv = linear(Product.QKV, layer, norm(f"attention {layer}", x_ZD))
        qkv = qkv.reshape(images, patches, 3, config.heads, -1).permute(2, 0, 3, 1, 4).flatten(1, 2)
        q_BTQ, k_BTQ, v_BTQ = qkv.unbind(0)
        scores_BTT = multiply(Product.SCORES, layer, q_BTQ, k_BTQ.transpose(1, 2))
        shares_BTT = (scores_BTT / (config.width // config.heads) ** 0.5).softmax(-1)
        mixed_BTQ = multiply(Product.VALUES, layer, shares_BTT, v_BTQ)
        mixed_ZD = mixed_BTQ.unflatten(0, (images, config.heads)).transpose(1, 2).reshape(x_ZD.shape)
        x_ZD = x_ZD + linear(Product.PROJECTION, layer, mixed_ZD)
        hidden_ZF = linear(Product.UP, layer, norm(f"perceptron {layer}", x_ZD)).relu()
        x_ZD = x_ZD + linear(Product.DOWN, layer, hidden_ZF)
    pooled_ND = norm("head", x_ZD).reshape(images, patches, -1).mean(1)
    return linear(Product.HEAD, 0, pooled_ND)


def train_vision_transformer(config: VisionConfig, digits: Digits) -> VisionTransformer:
    """Return a model trained in single precision; the same arguments give the same weights."""
    patches = patches_of(torch.from_numpy(digits.images), digits.side, config.patch_side)
    weights = {name: one.requires_grad_() for name, one in _initial(config, *patches.shape[1:]).items()}
    model = VisionTransformer(config=config, weights=weights)
    labels = torch.from_numpy(digits.labels)

    def logits(patches_NTP: torch.Tensor) -> torch.Tensor:
        return logits_of(model, patches_NTP, _exactly)

    _fit(config, weights.values(), patches, labels, logits, warm_up=_WARM_UP)
    return VisionTransformer(config=config, weights={name: one.detach() for name, one in weights.items()})


@torch.no_grad()
def vision_accuracy(
    model: VisionTransformer, digits: Digits, products: Mapping[Product, Numerics], *, key: int
) -> float:
    """Return the share of images that are classified correctly.

    Parameters
    ----------
    model : VisionTransformer
        The model.
    digits : Digits
        Images to classify.
    products : mapping
        Numerics of each kind of product in every layer; others are exact.
    key : int
        Source of all noise.
    """
    numbers = {product: index for index, product in enumerate(Product)}

    def multiply(product: Product, layer: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        numerics = products.get(product)
        if numerics is None:
            return torch.bmm(a, b)
        return numerics.matmul(a.contiguous(), b.contiguous(), mix_key(key, layer, numbers[product]))

    patches = patches_of(torch.from_numpy(digits.images), digits.side, model.config.patch_side)
    classes_N = logits_of(model, patches, multiply).argmax(1)
    return float((classes_N == torch.from_numpy(digits.labels)).float().mean())


def _exactly(product: Product, layer: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    del product, layer
    return torch.bmm(a, b)


def _name(product: Product, layer: int) -> str:
    return f"{product} {layer}"


def _initial(config: VisionConfig, patches: int, pixels: int) -> dict[str, torch.Tensor]:
    """Return initial weights: normal with variance one over the inputs; biases zero, gains one."""
    initial = torch.Generator().manual_seed(mix_key(config.seed, _INITIAL_WEIGHTS))
    width, hidden = config.width, config.hidden
    block = {
        Product.QKV: (width, 3 * width),
        Product.PROJECTION: (width, width),
        Product.UP: (width, hidden),
        Product.DOWN: (hidden, width),
    }
    shapes = {_name(Product.PATCHES, 0): (pixels, width)}
    shapes |= {_name(one, layer): shape for layer in range(config.layers) for one, shape in block.items()}
    shapes |= {_name(Product.HEAD, 0): (width, CLASSES)}
    weights = {name: torch.randn(k, m, generator=initial) * k**-0.5 for name, (k, m) in shapes.items()}
    weights |= {f"{name} bias": torch.zeros(m) for name, (_, m) in shapes.items()}
    norms = [f"{part} {layer}" for layer in range(config.layers) for part in ("attention", "perceptron")]
    weights |= {f"{name} gain": torch.ones(width) for name in (*norms, "head")}
    positions = torch.randn(patches, width, generator=initial) * _POSITION_SPREAD
    return weights | {"positions": positions}
