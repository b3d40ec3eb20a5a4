"""One HTML page of a run: what came out first, tables, figures, and where each number comes from.

`page` has the parts of a page and writes them, `drawings` its figures in SVG, `provenance` the formula and
the inputs of every column of a step's record. The page needs no network: style and script stand in it.
"""
