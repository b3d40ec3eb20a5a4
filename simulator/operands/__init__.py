"""Operands of products.

`statistics` has their moments once scaled and rounded, and the signal over noise; `captured` those of
trained models.
"""
