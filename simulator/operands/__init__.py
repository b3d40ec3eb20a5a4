"""Statistics of the operands of matrix products, from which their precision is predicted without drawing.

`statistics` has the distribution of operands, their moments after scaling and rounding, and the
signal-to-noise ratio of a product; `captured` has operands measured in trained models.
"""
