"""Many plans at once, as arrays.

`plans` has the grid, its rules and memory, `costs` the pieces of their steps, `contention` what these lose on
links that are shared, `circuits` what turns in them.
"""
