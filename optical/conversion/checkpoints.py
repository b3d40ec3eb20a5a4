"""Torch's activation checkpoints in converted models: functions are recomputed within their layer's call.

A checkpointed function runs a second time in the backward pass, when the call of the layer around it has
returned. Its products must still reach the core, with the draws of the first run.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from torch.utils import checkpoint

from optical.conversion.frames import current_frame, resumed
from optical.conversion.interception import Interception


@functools.cache
def follow_checkpoints() -> None:
    """Patch both kinds of torch's checkpoints so that they recompute in the call that checkpointed.

    A recomputed module opens a call of its own. A method or a function does not, and would have none.
    """
    non_reentrant: Any = checkpoint._CheckpointFrame
    reentrant: Any = checkpoint.CheckpointFunction
    init, forward = non_reentrant.__init__, reentrant.forward

    def init_in_call(self: object, recompute: Callable[..., Any], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        init(self, _in_present_call(recompute), *args, **kwargs)

    def forward_in_call(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        recompute = _in_present_call(function)
        outputs = forward(ctx, function, *args)
        ctx.run_function = recompute
        return outputs

    non_reentrant.__init__, reentrant.forward = init_in_call, staticmethod(forward_in_call)


def _in_present_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs in the present call of a converted layer, in its present state.

    Outside converted layers the function itself.
    """
    frame = current_frame()
    if frame is None:
        return function
    saved = frame.copy()

    def run_in_call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        outermost = current_frame() is None
        with resumed(saved), Interception() if outermost else contextlib.nullcontext():
            return function(*args, **kwargs)

    return run_in_call
