"""Digits to classify without a download: distorted glyphs of matplotlib, or scikit-learn's handwriting."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.ft2font import FT2Font

from simulator.errors import WorkloadError, check_range

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
    """Distance that drawn digits stray from their glyphs; uniform within plus and minus each number."""

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
    """Images with what they show."""

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
    """Return so many digits, equally often each, every one distorted by its own draw.

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
        How far they stray.

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
    """Return what makes so many pixels of a row of the set's, linearly between their middles, [side, 8]."""
    middles = (np.arange(side) + 0.5) * (WRITTEN_SIDE / side) - 0.5
    return np.stack(
        [np.interp(middles, np.arange(WRITTEN_SIDE), one) for one in np.eye(WRITTEN_SIDE)], axis=1
    )
