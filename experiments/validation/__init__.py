"""Predictions against published measurements, ``heliograph validate``.

`driver` runs every kind, `rows` reads tables and counts errors, `machines` turns a row into hardware, model
and plan. `training` (memory, too), `famous` (power, too), `kernels`, `boards`, `collectives`, `photonic` and
`network` are the kinds; of the last `network_costs` and `network_failures` are parts, and `network_tables`
what stands beside. `peers` repeats other people's simulators.
"""
