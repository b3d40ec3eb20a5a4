"""Models trained in torch through a core's numerics.

`gpt` is the small GPT with its text and training, `pretraining` makes the one that ships and those of the law
of loss, `probes` are what noise does to its products; `classifier` reads digits.
"""
