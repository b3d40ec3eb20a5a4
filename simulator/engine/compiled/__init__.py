"""The engine's step in arrays, its events in one loop that numba compiles; its reference is `Simulation`."""
