"""Under which names the time of a class is reported while it works or waits inside a run of operators."""

from __future__ import annotations

from heliograph.interfaces import Bound, Cost
from heliograph.operators import Elementwise, MatMul

COMMUNICATION = "communication"
"""Category of the time in which a class waits for a collective inside a sequence."""
PRODUCTS = "products"
"""Category of matrix products."""
OTHER_WORK = "other work"
"""Category of norms, softmax, activations, look-ups and the optimizer."""
ISSUE = "waiting for launches"
"""Category of the time in which a class's operators are done before the host has issued the next."""
SERVING = "server"
"""Where a class's ranks also serve: the channel of that work."""
MEMORY_BOUND = "memory-bound"
"""What is added to a category where the memory, not the unit, sets the time."""

LOADING_BOUND = "loading-bound"
"""What is added where a core is loaded for longer than it multiplies."""


def category(operator: MatMul | Elementwise, cost: Cost) -> str:
    """Return the name under which an operator's time is reported: its kind, and what slows the unit."""
    kind = PRODUCTS if isinstance(operator, MatMul) else OTHER_WORK
    limits = {Bound.MEMORY: MEMORY_BOUND, Bound.PROGRAMMING: LOADING_BOUND}
    return f"{kind}, {limits[cost.bound]}" if cost.bound in limits else kind
