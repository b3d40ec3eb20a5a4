"""Discrete events of one step: compute, network and circuits on one clock.

`simulation` is the reference, on simpy: it runs tasks, `network` carries their flows and turns circuits, and
`lookahead` says for which traffic ports should stay. `compiled` gives the same in arrays, to the last bit.
`replay` runs recorded work of single ranks, `flow_simulation` flows without tasks.
"""
