"""Packet fabrics: fat tree, dragonfly, torus, NVLink domains, and switches that add."""
