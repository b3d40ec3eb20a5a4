"""Noise of a product in light: from the power of the laser to the variance of a sample.

`receiver` symbols in time and the noise let in; `link_budget` path and the budget of a coherent dot product;
`detection` the budgets of arrays that hold weights; `chip` errors that are fixed for a chip or that outputs
share.
"""
