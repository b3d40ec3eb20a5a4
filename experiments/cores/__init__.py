"""Studies of photonic cores.

`one` core under the lens, with its `page`; `checks` of the laws that all cores keep, and of predicted
precision against executed; `every` core beside the others and GPUs; `rescue` and parts ranked at equal
precision.
"""
