"""Packet fabrics, each with links, routes, energy and a bill of materials.

`packets` has the base of fabrics with a card for each accelerator; `fat_tree` has fat-trees, rail-only
networks and a single switched domain; `dragonfly` and `torus` have the other topologies. `collectives`
computes times of single collectives as benchmarks print them.
"""
