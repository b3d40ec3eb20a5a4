"""Studies of photonic cores.

`one` core under the lens, with its `page`; its predicted `precision` against the executed one; `every` core
beside the others and GPUs; `rescue` and parts ranked at equal precision.
"""
