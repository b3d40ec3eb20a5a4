"""One training step as a graph of operators and collectives, and the memory that it needs.

`step` builds the graph, `stage` one pipeline stage's tasks, `sharding` pieces of parameters and `traffic`
their gathers and sums, `memory` the bytes of a rank.
"""
