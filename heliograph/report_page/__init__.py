"""One HTML page of a run: main results first, then tables, figures, and the origin of each number.

`page` defines and writes the parts of a page, and the formula and inputs of every number of a step;
`drawings` draws its figures in SVG. The page holds its style sheet and script, and needs no network.
"""
