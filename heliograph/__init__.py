"""The ground of the co-simulator: units, tables, operators, seams, collectives, engine, trace, metrics."""

from heliograph._version import __version__

__all__ = ["__version__"]
