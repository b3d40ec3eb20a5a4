"""Studies, one file each, and the command line that runs them.

`study` is the shape of a study, `cli` the driver (`__main__` starts it), `hardware` the options that
several share. `compare`, `search`, `split`, `sweep`, `names` (list, show, diff), `core` with `core_page` and
`core_precision`, `cores` and `rescue` are commands; `accuracy`, `cost`, `network` and `validation` hold
those with a second word. What a study cannot use it refuses with one sentence, a `HeliographError`.
"""
