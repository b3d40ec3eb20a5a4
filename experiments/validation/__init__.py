"""Predictions against published measurements, ``heliograph validate``.

`driver` runs every kind, `rows` reads tables and counts errors, `machines` turns a row into hardware, model
and plan. `training` (memory, too), `famous` (power, too), `kernels` (power of boards, too), `collectives`,
`photonic` and `network` are the kinds; of the last `network_costs` and `network_failures` are parts. `peers`
repeats other people's simulators.
"""
