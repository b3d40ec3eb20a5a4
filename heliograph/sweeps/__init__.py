"""Sweeps: points of any study on one machine or many, kept in an SQLite file that outlives interruptions.

`space` makes points of values and conditions, `points` gives each a key and runs it, `local` and `cluster`
run many at once, `store` keeps what became of them, `running` joins these, and `grid` is what a sweep
returns. `study_file` reads a sweep from TOML.
"""

from heliograph.sweeps.grid import Grid, Point
from heliograph.sweeps.running import sweep

__all__ = ["Grid", "Point", "sweep"]
