"""One HTML page of a run: what came out first, tables, figures, and where each number comes from.

`page` has the parts of a page, writes them, and knows the formula and inputs of every number of a step;
`drawings` its figures in SVG. It needs no network: style and script stand in it.
"""
