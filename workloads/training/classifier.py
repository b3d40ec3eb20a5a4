"""A small fully connected classifier: trained in exact arithmetic, run through given products.

Shape suffixes: N images, K inputs and M outputs of a layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from simulator.checks import check_positive, check_range
from simulator.errors import WorkloadError
from simulator.keys import mix_key
from workloads.training.digits import CLASSES, Digits

_WEIGHT_DECAY = 1e-2
_INITIAL_WEIGHTS, _ORDER = 0, 1


class Products(Protocol):
    """Executes the products of a layer."""

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N]; `key` fixes all of its noise."""
        ...


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


def train_classifier(config: ClassifierConfig, digits: Digits) -> Classifier:
    """Return a classifier trained in single precision; the same arguments give the same weights.

    Parameters
    ----------
    config : ClassifierConfig
        What to train, and how.
    digits : Digits
        Images to train on.
    """
    initial = torch.Generator().manual_seed(mix_key(config.seed, _INITIAL_WEIGHTS))
    order = torch.Generator().manual_seed(mix_key(config.seed, _ORDER))
    widths = (digits.images.shape[1], *config.hidden, CLASSES)
    shapes = list(itertools.pairwise(widths))
    weights = [torch.randn(k, m, generator=initial).mul_((2.0 / k) ** 0.5) for k, m in shapes]
    biases = [torch.zeros(m) for _, m in shapes]
    parameters = [one.requires_grad_() for one in (*weights, *biases)]
    images, labels = torch.from_numpy(digits.images), torch.from_numpy(digits.labels)
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=_WEIGHT_DECAY)
    updates = config.epochs * -(-len(images) // config.batch)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1.0 - done / updates)
    for _ in range(config.epochs):
        for chosen in torch.randperm(len(images), generator=order).split(config.batch):
            x_NK = images[chosen]
            for layer, (weight_KM, bias_M) in enumerate(zip(weights, biases, strict=True)):
                x_NK = torch.addmm(bias_M, x_NK.relu() if layer else x_NK, weight_KM)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(x_NK, labels[chosen]).backward()
            optimizer.step()
            decay.step()
    return Classifier(
        weights_KM=tuple(one.detach() for one in weights), biases_M=tuple(one.detach() for one in biases)
    )


@torch.no_grad()
def accuracy(
    classifier: Classifier, digits: Digits, products: Sequence[Products | None], *, key: int
) -> float:
    """Return the share of images that are classified rightly.

    Parameters
    ----------
    classifier : Classifier
        The network.
    digits : Digits
        Images to classify.
    products : sequence of Products or None
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
