"""The vision transformer that reads digits."""

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch

from optical.execution.numerics import CountingNumerics, Signs
from simulator.errors import WorkloadError
from workloads.training.classifier import (
    ATTENTION,
    Product,
    VisionConfig,
    draw_digits,
    logits_of,
    patches_of,
    train_vision_transformer,
    vision_accuracy,
)


@cache
def digits(stream, count):
    return draw_digits(count, generator=np.random.default_rng(stream))


@cache
def trained():
    return train_vision_transformer(VisionConfig(epochs=8, batch=32), digits(0, 600))


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Products this small only lose by more threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Recorder:
    """Exact products that note the shapes they were handed."""

    def __init__(self):
        self.shapes = []

    def matmul(self, a, b, key):
        self.shapes.append((tuple(a.shape), tuple(b.shape), key))
        return torch.bmm(a, b)


def test_a_patch_is_a_square_of_its_image():
    images = torch.arange(2 * 28 * 28, dtype=torch.float32).reshape(2, -1)
    patches = patches_of(images, 28, 7)
    assert patches.shape == (2, 16, 49)
    square = images[1].reshape(28, 28)[7:14, 21:28]
    assert torch.equal(patches[1, 1 * 4 + 3], square.reshape(-1))
    with pytest.raises(WorkloadError, match="patch_side"):
        patches_of(images, 28, 5)
    with pytest.raises(WorkloadError, match="heads"):
        VisionConfig(heads=3)


def test_it_learns_and_repeats():
    assert vision_accuracy(trained(), digits(1, 300), {}, key=0) > 0.4
    brief = VisionConfig(epochs=1, batch=100)
    one, again, other = (
        train_vision_transformer(config, digits(1, 300))
        for config in (brief, brief, dataclasses.replace(brief, seed=1))
    )
    assert all(torch.equal(one.weights[name], again.weights[name]) for name in one.weights)
    assert not torch.equal(one.weights["head 0"], other.weights["head 0"])


def test_every_product_is_handed_over_once_a_layer_with_a_key_of_its_own():
    """Weights bear no batch; attention's operands bear one product per image and head."""
    recorders = {product: Recorder() for product in Product}
    vision_accuracy(trained(), digits(1, 300), recorders, key=4)
    for product, recorder in recorders.items():
        once = product in {Product.PATCHES, Product.HEAD}
        assert len(recorder.shapes) == (1 if once else trained().config.layers), product
        expected = 600 if product in ATTENTION else 1
        assert all(a[0] == b[0] == expected for a, b, _ in recorder.shapes), product
    assert recorders[Product.SCORES].shapes[0][:2] == ((600, 16, 16), (600, 16, 16))
    keys = [key for recorder in recorders.values() for *_, key in recorder.shapes]
    assert len(set(keys)) == len(keys)


def test_the_order_of_images_and_their_company_change_nothing():
    patches = patches_of(torch.from_numpy(digits(1, 300).images), 28, 7)[:8]

    def logits(some):
        return logits_of(trained(), some, lambda product, layer, a, b: torch.bmm(a, b))

    assert torch.allclose(logits(patches)[5], logits(patches[5:6])[0], atol=1e-4)


def test_many_photons_read_as_exact_arithmetic_and_one_photon_in_all_as_a_guess():
    test = digits(1, 300)
    exact = vision_accuracy(trained(), test, {}, key=0)

    def counted(photons):
        numerics = CountingNumerics(photons_per_mac=photons, signs=Signs.PAIR)
        return vision_accuracy(trained(), test, dict.fromkeys(Product, numerics), key=1)

    assert counted(1e7) == pytest.approx(exact, abs=0.01)
    assert counted(1e-9) == pytest.approx(0.1, abs=0.08)
