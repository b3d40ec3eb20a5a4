"""Predictions against published measurements: training, kernels, collectives, memory, photonics, networks."""

from experiments.validation.driver import KINDS, report, validate, write
from experiments.validation.rows import Outcome, Statistics, Validation, statistics

__all__ = ["KINDS", "Outcome", "Statistics", "Validation", "report", "statistics", "validate", "write"]
