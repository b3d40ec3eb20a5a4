"""Models trained in torch through a core's numerics.

`gpt` is the small GPT with its text and training, `pretraining` makes the one that ships, `probes` what noise
does to its products, `noise_law` the runs of the law; `classifier` reads digits.
"""
