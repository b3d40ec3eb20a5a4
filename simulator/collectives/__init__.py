"""Collectives as rounds of flows, and the traffic that they make.

`algorithms` builds the rounds of every algorithm, `direct_links` those that are laid out over a graph without
switches; `msccl` reads algorithms from files. `ways` lists those that a fabric and a library allow for a
collective, `traffic` prices them and takes the fastest; its flows are `flow_groups`, which move as one.
`lines` has time and energy as lines over the payload, for plans that are estimated and not simulated.
"""
