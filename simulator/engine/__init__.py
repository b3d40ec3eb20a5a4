"""Discrete events of one step: compute, network and circuits on one clock."""
