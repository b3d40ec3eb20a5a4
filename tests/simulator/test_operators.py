"""Operators refuse what they are not made of."""

import pytest

from simulator.errors import WorkloadError
from simulator.operators import Collective, CollectiveKind, Phase


def collective(kind):
    return Collective(name="sum", phase=Phase.FORWARD, kind=kind, axis="dp", size=4, payload_bytes=1.0)


@pytest.mark.parametrize("kind", ["all_reduce", "allreduce", None])
def test_a_collective_takes_its_kind_from_the_enumeration(kind):
    with pytest.raises(WorkloadError, match=r"'sum' cannot be .* its kind is a CollectiveKind: all_reduce, "):
        collective(kind)
    assert collective(CollectiveKind.ALL_REDUCE).kind is CollectiveKind.ALL_REDUCE
