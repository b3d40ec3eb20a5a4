"""The engine's step in arrays, its events in one loop that numba compiles; the reference is `Simulation`.

Read `state` first: what the loop's state is and what events do to it. `step` is the entrance: it lays the
state out and reads the trace from it. `programs` turns tasks and their prices into programs, `loop` runs
these event by event, `circuits` turns circuits in between, by the tables of `circuit_tables`.
"""
