"""Noise of a product in light: from the power of the laser to the variance of a sample.

`link_budget` path, receiver and the budget of a coherent dot product; `detection` the budgets of arrays that
hold weights; `laser_power` the power that a precision needs; `chip` errors that are fixed for a chip or that
outputs share.
"""

from __future__ import annotations

from optical.noise.chip import CalibrationCost, Chip, calibration_cost, gain_calibration
from optical.noise.detection import DifferenceBudget, IntensityBudget, OscillatorBudget
from optical.noise.laser_power import power_for_bits, solve_laser_power
from optical.noise.link_budget import (
    UNIFORM_MEAN_SQUARE,
    Element,
    LightBudget,
    LinkBudget,
    NoiseRatio,
    Receiver,
    Source,
    check_closes,
    converter_ratios,
    elements_of,
    loss_db,
    source_of,
    symbol_residue,
)

__all__ = [
    "UNIFORM_MEAN_SQUARE",
    "CalibrationCost",
    "Chip",
    "DifferenceBudget",
    "Element",
    "IntensityBudget",
    "LightBudget",
    "LinkBudget",
    "NoiseRatio",
    "OscillatorBudget",
    "Receiver",
    "Source",
    "calibration_cost",
    "check_closes",
    "converter_ratios",
    "elements_of",
    "gain_calibration",
    "loss_db",
    "power_for_bits",
    "solve_laser_power",
    "source_of",
    "symbol_residue",
]
