"""The electronic baseline: GPUs, number formats and packet fabrics.

`gpu` has GPUs and vector lanes as compute units, `devices` the records of their tables, servers and
networks too, `formats` number formats with their precision, `numerics` their products in torch; `fabrics`
the packet networks.
"""
