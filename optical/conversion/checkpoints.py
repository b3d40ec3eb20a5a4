"""Functions that the backward pass runs again, as torch's checkpoints have it: in the call of their layer."""

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
    """Let torch's checkpoints, of either kind, run a function again in the call of the layer that gave it.

    A module that is recomputed is a call itself. A method or a function with products of its own is none, and
    without the call around it, which has returned by then, its products would not reach the core.
    """
    entries: Any = checkpoint._CheckpointFrame
    reentrant: Any = checkpoint.CheckpointFunction
    begin, run = entries.__init__, reentrant.forward

    def begin_in_call(self: object, recompute: Callable[..., Any], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        begin(self, _in_present_call(recompute), *args, **kwargs)

    def run_in_call(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        again = _in_present_call(function)
        outputs = run(ctx, function, *args)
        ctx.run_function = again
        return outputs

    entries.__init__, reentrant.forward = begin_in_call, staticmethod(run_in_call)


def _in_present_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that always runs in the call of a converted layer as it stands now, if in one."""
    frame = current_frame()
    if frame is None:
        return function
    kept = frame.copy()

    def again(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        outermost = current_frame() is None
        with resumed(kept), Interception() if outermost else contextlib.nullcontext():
            return function(*args, **kwargs)

    return again
