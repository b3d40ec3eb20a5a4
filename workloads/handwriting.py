"""Handwritten digits to classify, of the set that comes with scikit-learn; nothing is downloaded."""

from __future__ import annotations

import importlib.util

import numpy as np

from heliograph.errors import WorkloadError
from workloads.digits import Digits

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
    """Return what makes so many pixels of a row of the set's, linearly between their middles, [side, 8]."""
    middles = (np.arange(side) + 0.5) * (WRITTEN_SIDE / side) - 0.5
    return np.stack(
        [np.interp(middles, np.arange(WRITTEN_SIDE), one) for one in np.eye(WRITTEN_SIDE)], axis=1
    )
