"""ASTRA-sim's analytical backends repeated to the nanosecond, and what the same wires allow."""

from experiments.validation.collective_simulator.algorithms import Method
from experiments.validation.collective_simulator.networks import Shape, Wires
from experiments.validation.collective_simulator.rows import run_of
from experiments.validation.collective_simulator.runs import Dimension, Run
from experiments.validation.collective_simulator.wires import ports_bound_s, wires_s

__all__ = ["Dimension", "Method", "Run", "Shape", "Wires", "ports_bound_s", "run_of", "wires_s"]
