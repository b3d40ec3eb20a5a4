"""Graphs that several fabrics share.

`graphs` has fixed graphs, in code or from a file, and routes on them; `clos` fat-trees, `torus` tori;
`scale_up` the domain of a node, library protocols, cards, cables and the bill of materials.
"""
