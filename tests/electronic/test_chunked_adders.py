"""Sums in switches by chunks: limits of the formula, and what no knob may do."""

from dataclasses import replace
from itertools import pairwise

import pytest

from electronic.devices import ChunkedAdder, load_scale_up, table
from simulator.errors import ParameterError

PORT = 440e9
NVLS = table("network").build(ChunkedAdder, "nvls")


def test_chunks_double_up_to_the_longest_of_the_library():
    """NCCL src/enqueue.cc: 16, 32, 64 and 128 KiB, and shorter for vectors of less than all in flight."""
    assert [one.name for one in NVLS.adders(PORT)] == [f"nvls-{2**power}k" for power in range(8)]
    assert load_scale_up("nvlink4").adders == NVLS.adders(load_scale_up("nvlink4").capacity_bytes_per_s)


@pytest.mark.parametrize("wire_bytes", [1e5, 3e6, 1e9])
def test_a_vector_takes_its_rounds_and_one_to_fill(wire_bytes):
    flying = NVLS.chunks_in_flight * NVLS.least_chunk_bytes
    round_s = flying / (PORT * NVLS.efficiency) + NVLS.wait_s
    expected_s = NVLS.start_s + (1 + wire_bytes / flying) * round_s
    shortest = NVLS.adders(PORT)[0]
    assert shortest.start_s + wire_bytes / (PORT * shortest.efficiency) == pytest.approx(expected_s)


def test_longer_chunks_begin_later_and_are_thriftier():
    adders = NVLS.adders(PORT)
    for short, long in pairwise(adders):
        assert short.start_s < long.start_s
        assert short.efficiency < long.efficiency < NVLS.efficiency


def test_without_waits_only_the_fill_tells_chunks_apart():
    adders = replace(NVLS, wait_s=0.0).adders(PORT)
    assert {round(one.efficiency, 12) for one in adders} == {NVLS.efficiency}
    assert adders[1].start_s - NVLS.start_s == pytest.approx(2 * (adders[0].start_s - NVLS.start_s))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start_s", 1e-6),
        ("efficiency", 0.5),
        ("wait_s", 1e-6),
        ("least_chunk_bytes", 2048.0),
        ("most_chunk_bytes", 65536.0),
        ("chunks_in_flight", 64),
    ],
)
def test_every_knob_moves_an_adder(field, value):
    assert replace(NVLS, **{field: value}).adders(PORT) != NVLS.adders(PORT)


@pytest.mark.parametrize("field", ["least_chunk_bytes", "chunks_in_flight"])
def test_what_cannot_be_is_refused(field):
    with pytest.raises(ParameterError, match=field):
        replace(NVLS, **{field: 0})
    with pytest.raises(ParameterError, match="raise the former"):
        replace(NVLS, most_chunk_bytes=512.0)
