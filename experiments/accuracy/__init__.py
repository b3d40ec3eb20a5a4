"""Studies of accuracy, ``heliograph accuracy``: the loss that noise costs a transformer.

`prediction` predicts the loss and executes it (`report` tells it), `law` fits loss over size, tokens and
noise, `front` sets it against energy and time, `training` trains on the hardware, `width` asks what larger
models bear, `photons` counts them on digits, `capture` takes the operands of trained models.
"""
