"""Collectives as rounds of flows, and the traffic that they make.

`algorithms` says who sends what, `msccl` has algorithms of one's own, `ways` what a fabric and a library make
of them; `flow_groups` are flows that move as one, `traffic` takes the fastest way of each collective, `lines`
have its time and energy over the payload, for plans that are not played.
"""
