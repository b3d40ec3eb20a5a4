"""Sweeps: points of any study on one machine or many, kept in an SQLite file that outlives interruptions.

`space` makes points of values and conditions, `work` says what points have in common and `points` what those
of steps do, `local` and `cluster` run many at once, `store` keeps what became of them, `running` joins these,
and `grid` is what a sweep returns. `study_file` reads a sweep from TOML. Nothing is imported here: a worker
loads what its points need.
"""
