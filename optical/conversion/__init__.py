"""Any model of torch on a photonic core: convert it, open a `noise_key`, and use it as before.

`convert` makes the model, `policy` divides it between light and electronics, `interception` sees the
functions of its layers and `products` makes them products of matrices; `frames` hold layer, call and key,
which `checkpoints` take along to the backward pass; `report` tells what became of each.
"""

from optical.conversion.convert import (
    KeyedModel,
    StepwiseConverter,
    convert,
    planned_specs,
    set_model_key,
    to_digital,
)
from optical.conversion.frames import NoiseKey, noise_key
from optical.conversion.interception import watch_products
from optical.conversion.policy import Policy, ProductException, ProductKind
from optical.conversion.report import RunsOn, describe
from optical.execution import Mode, ProductSpecs

__all__ = [
    "KeyedModel",
    "Mode",
    "NoiseKey",
    "Policy",
    "ProductException",
    "ProductKind",
    "ProductSpecs",
    "RunsOn",
    "StepwiseConverter",
    "convert",
    "describe",
    "noise_key",
    "planned_specs",
    "set_model_key",
    "to_digital",
    "watch_products",
]
