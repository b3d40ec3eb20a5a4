"""Many plans at once, as arrays.

`plans` has the grid, its rules and memory, `costs` the pieces of their steps, `circuits` what turns in them.
"""
