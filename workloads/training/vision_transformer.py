"""A small vision transformer that reads digits: trained in exact arithmetic, run through given products.

Shape suffixes: N images, T patches of an image, P pixels of a patch, D width, H heads, F hidden, C classes;
Z all vectors of a batch, Q the head's part of the width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch

from simulator.checks import check_positive, check_range
from simulator.errors import WorkloadError
from simulator.keys import mix_key
from workloads.training.classifier import Products
from workloads.training.digits import CLASSES, Digits

_WEIGHT_DECAY = 1e-2
_WARM_UP = 0.1
_INITIAL_WEIGHTS, _ORDER = 0, 1
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
    """Return a model trained in single precision; the same arguments give the same weights.

    Parameters
    ----------
    config : VisionConfig
        What to train, and how.
    digits : Digits
        Images to train on.
    """
    order = torch.Generator().manual_seed(mix_key(config.seed, _ORDER))
    patches = patches_of(torch.from_numpy(digits.images), digits.side, config.patch_side)
    labels = torch.from_numpy(digits.labels)
    weights = {name: one.requires_grad_() for name, one in _initial(config, *patches.shape[1:]).items()}
    model = VisionTransformer(config=config, weights=weights)
    optimizer = torch.optim.AdamW(weights.values(), lr=config.learning_rate, weight_decay=_WEIGHT_DECAY)
    updates = config.epochs * -(-len(patches) // config.batch)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min((done + 1) / (_WARM_UP * updates), 1.0 - done / updates)
    )
    for _ in range(config.epochs):
        for chosen in torch.randperm(len(patches), generator=order).split(config.batch):
            optimizer.zero_grad()
            logits_NC = logits_of(model, patches[chosen], _exactly)
            torch.nn.functional.cross_entropy(logits_NC, labels[chosen]).backward()
            optimizer.step()
            rate.step()
    return VisionTransformer(config=config, weights={name: one.detach() for name, one in weights.items()})


@torch.no_grad()
def vision_accuracy(
    model: VisionTransformer, digits: Digits, products: Mapping[Product, Products], *, key: int
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
