"""Any model of torch on a photonic core: convert it, open a `noise_key`, and use it as before.

- `convert`: converts a model and turns it back.
- `policy`: which products the core runs, and which electronics.
- `interception`: catches every torch function that a converted layer calls, in recomputations too.
- `products`: rewrites layers and functions of torch as matrix products.
- `frames`: the running layer, its call and its noise key, from which products draw.
- `report`: a table of all products and where they run.
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
