"""Graphs that fabrics share.

`graphs` any fixed graph, stated or read from a file; `clos` fat-trees, `torus` tori; `scale_up` a node's
domain, cards and cables.
"""
