"""Lets a training framework convert its model and draw anew at each step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from optical.conversion.convert import convert, set_model_key
from optical.conversion.noise_keys import NoiseKey
from optical.conversion.policy import Hardware, Policy


class StepwiseConverter:
    """Converts models in place, and moves their key on after each step of the optimizer.

    Notes
    -----
    It answers torchtitan's `ModelConverter` protocol (``torchtitan/protocols/model_converter.py``):
    `convert`, `post_optimizer_hook`, `key_filter`, `state_dict_transform` and `format_adapter`. A
    configuration of torchtitan that builds it hands it the data-parallel rank as `part`, and the step at
    which a run resumes. Convert before sharding and compiling, as torchtitan does; a compiled model
    stays one graph, which follows the key without another compilation.

    Parameters
    ----------
    system : ProductSpecs, core, accelerator or system
        What is made of products.
    seed : int
        Of all draws.
    step : int
        Step with which training starts or resumes.
    part : int
        Place of this process in the global batch (`NoiseKey.part`).
    alike : bool
        Whether a product has equally many rows in all processes (`NoiseKey.alike`).
    policy : Policy, optional
        Which products the core runs.
    exclude : iterable of str
        Patterns of modules that stay electronic.
    """

    def __init__(
        self,
        system: Hardware,
        *,
        seed: int,
        step: int = 0,
        part: int = 0,
        alike: bool = True,
        policy: Policy | None = None,
        exclude: Iterable[str] = (),
    ) -> None:
        self.system, self.policy, self.exclude = system, policy, tuple(exclude)
        self.key = NoiseKey(seed=seed, step=step, part=part, alike=alike)

    def convert(self, model: nn.Module) -> None:
        """Convert a model in place."""
        exclude = self.exclude or None
        convert(model, self.system, exclude=exclude, policy=self.policy, model_key=self.key, inplace=True)

    def post_optimizer_hook(self, model: nn.Module | list[nn.Module]) -> None:
        """Move the key of the model, or of its pipeline stages, on to the next step."""
        self.key = dataclasses.replace(self.key, step=self.key.step + 1)
        for one in model if isinstance(model, list) else [model]:
            set_model_key(one, self.key)

    def key_filter(self) -> Callable[[str], bool] | None:
        """Return None: no key of the state dict is its own."""
        return None

    def state_dict_transform(self) -> Callable[[dict[str, Any], bool], dict[str, Any]] | None:
        """Return None: states are saved as they are."""
        return None

    def format_adapter(self) -> type | None:
        """Return None: other formats of checkpoints see nothing new."""
        return None
