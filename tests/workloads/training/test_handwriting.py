"""Handwritten digits of scikit-learn, where it is installed."""

import numpy as np
import pytest

from simulator.errors import WorkloadError
from workloads.training import classifier as handwriting
from workloads.training.classifier import WRITTEN_IMAGES, has_handwriting, read_handwriting

needed = pytest.mark.skipif(not has_handwriting(), reason="scikit-learn is not installed")


def read(training=1297, test=500, side=8, seed=0):
    return read_handwriting(training, test, generator=np.random.default_rng(seed), side=side)


@needed
def test_the_set_is_the_published_one_and_no_image_is_in_both_parts():
    """Alpaydin and Kaynak (UCI, 1998), optdigits.names: 1797 test images, 0 to 16, by digit."""
    training, test = read()
    labels = np.concatenate((training.labels, test.labels))
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    images = np.concatenate((training.images, test.images))
    assert len(images) == WRITTEN_IMAGES == len(np.unique(images, axis=0))
    assert images.dtype == np.float32
    assert np.unique(images * 16.0).tolist() == list(range(17))
    assert read(seed=0)[1].sha256 == test.sha256 != read(seed=1)[1].sha256


@needed
def test_more_pixels_show_the_same_digits():
    """Pairs of linearly interpolated pixels average to 1/8, 3/4 and 1/8 of a pixel and its neighbours."""
    coarse, fine = read()[1], read(side=16)[1]
    assert (coarse.labels == fine.labels).all()
    back = fine.images.reshape(-1, 8, 2, 8, 2).mean(axis=(2, 4)).reshape(len(fine.labels), -1)
    smooth = np.pad(coarse.images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)), mode="edge")
    smooth = 0.125 * smooth[:, :-2] + 0.75 * smooth[:, 1:-1] + 0.125 * smooth[:, 2:]
    smooth = 0.125 * smooth[..., :-2] + 0.75 * smooth[..., 1:-1] + 0.125 * smooth[..., 2:]
    assert np.allclose(back, smooth.reshape(back.shape), atol=1e-6)
    assert fine.images.min() >= 0.0
    assert fine.images.max() <= 1.0


def test_what_is_not_there_is_said(monkeypatch):
    with pytest.raises(WorkloadError, match=r"together at most 1797"):
        read(training=1700) if has_handwriting() else read_without(monkeypatch, there=True, training=1700)
    with pytest.raises(WorkloadError, match=r"install heliograph\[digits\], or take drawn digits"):
        read_without(monkeypatch, there=False)


def read_without(monkeypatch, *, there, training=10):
    monkeypatch.setattr(handwriting, "has_handwriting", lambda: there)
    return read(training=training)
