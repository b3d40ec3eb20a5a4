"""Discrete events of one step: compute, network and circuits on one clock.

`simulation` is the reference, on simpy, with `network` for flows and circuits and `lookahead` for what
ports wait for; `compiled` the same in arrays. `replay` runs recorded work of single ranks,
`flow_simulation` flows alone.
"""
