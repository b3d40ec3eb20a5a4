"""The same step in closed form, for searching millions of plans."""
