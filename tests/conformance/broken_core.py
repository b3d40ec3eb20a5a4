"""A core that is registered and cannot be built; a plugin of pytest, loaded before any collection."""

from optical.cores import Crossbar, register_core


class Broken(Crossbar):
    """A crossbar of no rows."""

    @classmethod
    def default(cls):
        return cls(rows=0, columns=1, wavelengths=1, temporal_accumulation=1, broadcast=1, summed=1, **LIGHT)


LIGHT = {"symbol_rate_hz": 5e9, "laser_power_w": 0.01}
register_core("broken", Broken)
