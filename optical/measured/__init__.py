"""Parts that somebody measured or modelled, put into a core's link budget.

`scattering` has S-matrices from Touchstone files and models in the manner of SAX, checked; `parts` what
they say of a part at a core's lines, and comb lines as the source.
"""
