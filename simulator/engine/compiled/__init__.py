"""The engine's step in arrays, its events in one loop that numba compiles; the reference is `Simulation`.

`step` is the entrance, `programs` structure and prices as arrays, `memory` the tables of the loop, `loop`
its events, `turns` circuits that turn, `settings` those that turn part by part.
"""
