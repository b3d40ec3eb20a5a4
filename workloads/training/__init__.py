"""Models trained in torch through a core's numerics.

`gpt` is a small GPT with its text and training; `pretraining` makes the one that ships and those that the law
of loss is fitted to; `probes` are products with known errors, and measurements of a core's errors.
`classifier` has readers of digits.
"""
