"""Operands of products: their statistics, captured ones, and their moments once scaled and rounded."""
