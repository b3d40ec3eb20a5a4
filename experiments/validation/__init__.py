"""Predictions against published measurements: training, kernels, collectives, memory, photonics, networks."""
