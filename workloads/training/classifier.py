"""Small readers of digits, fully connected and vision transformer: trained exactly, run through products.

Shape suffixes: N images, K inputs and M outputs of a layer, T patches of an image, P pixels of a patch, D
width, H heads, F hidden, C classes; Z all vectors of a batch, Q the head's part of the width.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

from simulator.errors import WorkloadError, check_positive, check_range
from simulator.interfaces import Numerics
from simulator.keys import mix_key
from workloads.training.digits import CLASSES, Digits

_WEIGHT_DECAY = 1e-2
_INITIAL_WEIGHTS, _ORDER = 0, 1


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """Network, data and settings of one training."""

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
    """A trained network; between its layers stand rectifiers, hence no input of a layer is negative."""

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
    """Return the share of images that are classified rightly.

    Parameters
    ----------
    classifier : Classifier
        The network.
    digits : Digits
        Images to classify.
    products : sequence of Numerics or None
        What executes the product of each layer; None for exact arithmetic.
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
    for layer, executes in enumerate(products):
        x_NK = x_NK.relu() if layer else x_NK
        weight_KM = classifier.weights_KM[layer]
        if executes is None:
            product_NM = x_NK @ weight_KM
        else:
            product_NM = executes.matmul(x_NK[None], weight_KM[None], mix_key(key, layer))[0]
        x_NK = product_NM + classifier.biases_M[layer]
    return float((x_NK.argmax(1) == torch.from_numpy(digits.labels)).float().mean())


_WARM_UP = 0.1
_POSITION_SPREAD = 0.02


class Product(StrEnum):
    """Every product of the model, by what it makes."""

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
"""Takes the product's name, its layer, and operands of shapes [B, M, K] and [B, K, N]."""


@dataclass(frozen=True, kw_only=True)
class VisionConfig:
    """Network, data and settings of one training."""

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
    """A trained model: norms before each part, learned positions, the mean over patches before the head.

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
        one = self.config
        return f"{one.layers} blocks of width {one.width}, {one.heads} heads, patches of {one.patch_side**2}"


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
    """Return logits, shape [N, C]; all that is not a product is digital and exact."""
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
    """Return the share of images that are classified rightly.

    Parameters
    ----------
    model : VisionTransformer
        The model.
    digits : Digits
        Images to classify.
    products : mapping
        What executes each product of every layer; those that are left out are exact.
    key : int
        Source of all noise.
    """
    numbers = {product: index for index, product in enumerate(Product)}

    def multiply(product: Product, layer: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        executes = products.get(product)
        if executes is None:
            return torch.bmm(a, b)
        return executes.matmul(a.contiguous(), b.contiguous(), mix_key(key, layer, numbers[product]))

    patches = patches_of(torch.from_numpy(digits.images), digits.side, model.config.patch_side)
    found_N = logits_of(model, patches, multiply).argmax(1)
    return float((found_N == torch.from_numpy(digits.labels)).float().mean())


def _exactly(product: Product, layer: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    del product, layer
    return torch.bmm(a, b)


def _name(product: Product, layer: int) -> str:
    return f"{product} {layer}"


def _initial(config: VisionConfig, patches: int, pixels: int) -> dict[str, torch.Tensor]:
    """Return weights to begin with: normal, variance one over the inputs; biases zero, gains one."""
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
