"""Collectives as rounds of flows, and the traffic that they make.

`algorithms` says who sends what, `all_to_all` exchanges in levels and turns, `library` what a communication
library adds, `msccl` algorithms of one's own, `flow_groups` flows that move as one, `traffic` the fastest
way of each, `lines` its time and energy as lines over the payload, for plans that are not played.
"""
