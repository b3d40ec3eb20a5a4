"""Packet fabrics, each as links, routes, energy and a bill of materials.

`packets` is what all with a card for each accelerator share; `fat_tree` has fat-trees, rails and one
switched domain, `dragonfly` and `torus` the others; `collectives` times single collectives as benchmarks
print them.
"""
