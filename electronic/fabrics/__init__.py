"""Packet fabrics: rails, fat tree, dragonfly, torus and NVLink domains.

`packets` has what all with network cards share, `collectives` the times of single collectives on them.
"""
