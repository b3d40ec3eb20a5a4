"""What a benchmark's time holds beside a collective: the host's issue, and its way to an idle GPU."""

from dataclasses import replace

import pytest

from electronic.fabrics.collectives import collective_plan, load_caller
from simulator.errors import ParameterError

SMALLEST_US = {4: 16.88, 5: 20.8, 6: 25.2, 7: 29.5, 8: 33.7}
"""nccl-tests issue 123: all-reduces of 8 to 128 bytes, one process with so many A100."""


@pytest.mark.parametrize(("gpus", "measured_us"), SMALLEST_US.items())
def test_short_calls_of_one_process_last_as_long_as_their_issue(gpus, measured_us):
    """nccl-tests issue 123: in proportion to the GPUs, where hops would grow as 2(n - 1)."""
    taken_s = load_caller("nccl-tests").measured_s(collective_plan("a100", gpus, 64.0).alone_s, gpus)
    assert taken_s * 1e6 == pytest.approx(measured_us, rel=0.02)


def test_a_process_for_each_gpu_shows_the_collective_alone():
    caller = load_caller("nccl-tests")
    alone_s = collective_plan("h100", 8, 64.0).alone_s
    assert caller.measured_s(alone_s, 1) == alone_s
    assert caller.measured_s(alone_s, 8) > alone_s


def test_long_collectives_hide_their_issue():
    alone_s = collective_plan("a100", 8, 2.0**30).alone_s
    assert load_caller("nccl-tests").measured_s(alone_s, 8) == alone_s


def test_events_around_a_call_show_the_host_once():
    caller = load_caller("torch-events")
    lengths = (20e-6, 1e-3)
    shown = [caller.measured_s(alone_s, 1) - alone_s for alone_s in lengths]
    assert shown == pytest.approx([caller.exposed_s] * 2)
    assert caller.exposed_s > 0


def test_a_negative_time_of_the_host_is_refused():
    with pytest.raises(ParameterError, match="issue_s"):
        replace(load_caller("nccl-tests"), issue_s=-1e-6)
