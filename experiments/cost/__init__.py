"""Studies of cost, ``heliograph cost``.

`bill` lists materials, `goodput` what failures leave, `stranded` accelerators that failed nodes strand,
`jobs` runs several jobs on one system.
"""
