"""Gives a converted model its key as an input, so that an exported program draws anew at each step."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from optical.conversion.convert import conversion_of
from optical.conversion.noise_keys import TensorKey, opened


class KeyedModel(nn.Module):
    """A converted model whose first input is the key that it draws from.

    Notes
    -----
    For `torch.export`, whose programs keep what is no input as a constant, and for whatever else runs a model
    without Python around it. ``torch.from_numpy(NoiseKey(seed=0, step=3).numbers)`` is such a key: the
    program draws what the model draws within ``noise_key(0, 3)``.
    """

    def __init__(self, model: nn.Module) -> None:
        """Wrap a model.

        Parameters
        ----------
        model : torch.nn.Module
            A converted model.

        Raises
        ------
        WorkloadError
            If it is not converted.
        """
        super().__init__()
        conversion_of(model)
        self.model = model

    def forward(self, key: torch.Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run the model within a key.

        Parameters
        ----------
        key : torch.Tensor
            Value and part, int64, shape [2], on the CPU.
        *args, **kwargs
            What the model takes.
        """
        with opened(TensorKey(key)):
            return self.model(*args, **kwargs)
