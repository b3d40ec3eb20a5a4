"""Training workloads: from a model's shape and a plan to the graph of a step.

`models` read shapes, `plan` says how ranks share the work, `layers` and `pipeline` make operators and the
order of passes, `step` the graph and its memory, `search` the same for arrays of plans; `training` trains
small models in torch, `traces` are those of other tools.
"""
