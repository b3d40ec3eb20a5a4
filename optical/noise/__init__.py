"""Noise of a product in light: from the power of the laser to the variance of a sample.

`receiver` symbols in time and the noise let in; `link_budget` path and the budget of a coherent dot product;
`detection` the budgets of arrays that hold weights; `chip` errors that are fixed for a chip or that outputs
share.
"""

from __future__ import annotations

from optical.noise.chip import CalibrationCost, Chip, Mismatch
from optical.noise.detection import DifferenceBudget, IntensityBudget, OscillatorBudget
from optical.noise.link_budget import (
    UNIFORM_MEAN_SQUARE,
    Element,
    LightBudget,
    LightNoise,
    LinkBudget,
    NoiseRatio,
    Source,
    check_closes,
    converter_ratios,
    elements_of,
    loss_db,
    source_of,
)
from optical.noise.receiver import Reading, Receiver, Symbols, reading_of

__all__ = [
    "UNIFORM_MEAN_SQUARE",
    "CalibrationCost",
    "Chip",
    "DifferenceBudget",
    "Element",
    "IntensityBudget",
    "LightBudget",
    "LightNoise",
    "LinkBudget",
    "Mismatch",
    "NoiseRatio",
    "OscillatorBudget",
    "Reading",
    "Receiver",
    "Source",
    "Symbols",
    "check_closes",
    "converter_ratios",
    "elements_of",
    "loss_db",
    "reading_of",
    "source_of",
]
