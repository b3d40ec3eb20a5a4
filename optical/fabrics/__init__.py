"""Optical circuit-switched fabrics and the switches in them.

`switches` move lanes, `circuits` assign them to traffic; on both stand `rails`, `cubes`, `rotor`, `wafer`,
`transceiver_ring`, and with a packet network beside, `node_circuits` and `in_network_reduction`.
"""
