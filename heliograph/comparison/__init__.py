"""Comparison of systems: one model on each, with the best parallel plan that a search finds for it.

`plan_estimates` estimates many plans in closed form; `plan_search` runs the best of them on the engine and
returns the best plan of a system; `search` does so for variants of its fabric and explains the result;
`comparison` compares systems; `ranges` finds which input numbers could reverse the verdict. Nothing is
imported here.
"""
