"""Plans of parallel training.

`plan` is made of the types in `parts`; `rules` say what cannot be together, `keys` what a plan's text may
have.
"""
