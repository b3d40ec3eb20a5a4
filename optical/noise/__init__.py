"""Noise of a product in light: from the power of the laser to the variance of a sample.

`receiver` has symbols in time and the noise let in, `link_budget` path and budget of a sample, `chip`
errors that are fixed for a chip or that outputs share.
"""
