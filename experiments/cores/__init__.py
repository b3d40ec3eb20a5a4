"""Studies of photonic cores.

`one` core under the lens, with its `page`; `check` whether it keeps the laws of all cores; its predicted
`precision` against the executed one; `every` core beside the others and GPUs; `rescue` and parts ranked at
equal precision.
"""
