"""Studies, one file each, and the command line that runs them.

`study` is the shape of a study, `cli` the driver (`__main__` starts it), `hardware` the options that
several share. `compare`, `search`, `split`, `sweep` and `names` (list, show, diff) are commands; `cores`
holds the studies of photonic cores, `accuracy`, `cost`, `network` and `validation` those with a second
word. What a study cannot use it refuses with one sentence, a `HeliographError`.
"""
