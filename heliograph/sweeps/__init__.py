"""Sweeps: points of any study on one machine or many, kept in an SQLite file that outlives interruptions.

`space` makes points of values and conditions, told in Python or by a TOML file, `work` says what points have
in common and runs many at once, `points` says what those of steps do, `store` keeps what became of them,
`running` joins these, for a grid and where an optimiser chooses the points. Nothing is imported here: a
worker loads what its points need.
"""
