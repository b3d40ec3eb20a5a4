"""Basis of the project: interfaces, parameter tables and units, and the event simulation of a step.

Read first: the interfaces in `interfaces` and `fabric`, then `operators`, the work of a step. `node` models
accelerators and hosts, `layout` the placement of ranks. `engine` simulates a step; `collectives` and
`topology` model its traffic and the network's graph, `step_estimate` is its closed form, `results` its trace
and metrics; `operands` has statistics of the factors of products. `failures` and `goodput` model outages.
`tables`, `units`, `parameter_tree` and `files` read and change parameters; `plugins` loads users' code.
`amounts` is arithmetic for formulas on numbers or arrays, `keys` seeds randomness, `errors` has the errors.
"""
