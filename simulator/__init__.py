"""The ground: units, tables, seams, and one clock for compute, network and circuits.

Read first: `interfaces`, then `fabric`, the seams, and `operators`, what runs. `node` puts units around a
memory, `layout` places ranks. `engine` plays a step, `collectives` and `topology` make its traffic and
graphs, `step_estimate` is its closed form, `results` its trace and metrics; `operands` are statistics of what
is multiplied. `failures` and `goodput` stop machines. Numbers come through `tables`, `units`,
`parameter_tree` and `files`, what users bring through `plugins`; `amounts` lets a formula stand once, `keys`
make randomness explicit, `errors` are sentences.
"""
