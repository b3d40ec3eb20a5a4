"""Traces of a run and the metrics drawn from them."""
