"""`heliograph network spreading`: packets as networks carry them, beside circuits."""

import dataclasses

import pytest
from matplotlib.axes import Axes

from experiments.hardware import Hardware, Workload
from experiments.network.links import BySpreading, Links
from experiments.study import Progress
from heliograph.systems import build_system
from simulator.errors import ParameterError
from simulator.topology.clos import Spreading

ASKED = BySpreading(
    workload=Workload(model="llama-3-8b", plan="tp=8,dp=64,zero=1,global_batch=64,sequence_length=2048"),
    queue_pairs=(1, 4, 16),
    seeds=3,
    hardware=Hardware(fabric="fat_tree"),
)


@pytest.fixture(scope="module")
def found():
    return ASKED.run(Progress())


def test_spraying_is_the_least_and_more_queue_pairs_come_near_it(found):
    sprayed, adaptive, one, few, many = (step.mean_s for step in found.steps)
    assert sprayed <= adaptive <= one
    assert sprayed <= many * (1 + 1e-12)  # a mean of three equal steps may be rounded
    assert many < few < one


def test_hashes_differ_and_their_band_holds_the_mean(found):
    hashed = found.steps[3]
    assert hashed.spreading is Spreading.HASHED
    assert hashed.steps_s.min() < hashed.mean_s < hashed.steps_s.max()


def test_the_verdict_is_the_range_over_real_networks(found):
    least, most = found.losses
    every = [step for one in found.steps[1:] for step in one.steps_s]
    assert least == pytest.approx(found.circuits.mean_s / max(every) - 1)
    assert most == pytest.approx(found.circuits.mean_s / min(every) - 1)
    assert f"{100 * least:+.2f} to {100 * most:+.2f} %" in found.report()[1]


def covered(figure):
    """Return the legends of a drawn figure that lie on a bar."""
    figure.canvas.draw()
    panels = figure.axes
    legends = [*figure.legends, *(one.get_legend() for one in panels if one.get_legend() is not None)]
    bars = [bar for one in panels for bars in one.containers for bar in getattr(bars, "patches", ())]
    return [
        one
        for one in legends
        if any(one.get_window_extent().overlaps(bar.get_window_extent()) for bar in bars)
    ]


def test_legends_lie_on_no_bar(found):
    links = (
        Links(system="gpu_ocs", workload=Workload(model="llama-3-8b"), accelerators=32)
        .run(Progress())
        .figure()
    )
    assert not covered(found.figure())
    assert not covered(links)
    nodes = next(one for one in links.findobj(Axes) if one.get_ylabel() == "source node")
    assert [int(one) for one in nodes.get_yticks()] == [0, 1, 2, 3]


def test_a_fabric_without_parallel_links_is_refused():
    with pytest.raises(ParameterError, match="no paths to choose from on fabric 'dragonfly'"):
        dataclasses.replace(ASKED, hardware=Hardware(fabric="dragonfly")).run(Progress())


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"queue_pairs": (0,)}])
def test_numbers_below_one_are_refused(wrong):
    with pytest.raises(ParameterError, match="1"):
        dataclasses.replace(ASKED, **wrong)


def test_circuits_beside_packets_are_of_the_same_accelerators(tmp_path):
    hardware, packets = Hardware(), build_system("gpu_packet:b200:fp8", accelerators=64)
    found = hardware.counterpart(packets, "gpu_packet:b200:fp8", None, on="circuits", accelerators=None)
    assert (found.name, found.accelerators, found.gpu) == ("gpu_ocs:b200:fp8", 64, packets.gpu)
    back = hardware.counterpart(found, "gpu_ocs:b200:fp8", None, on="packets", accelerators=None)
    assert back.name == "gpu_packet:b200:fp8"
    path = tmp_path / "mine.toml"
    path.write_text('base = "gpu_ocs"\naccelerators = 32\n')
    with pytest.raises(
        ParameterError, match="is a file; name the same accelerators on packets with --packets"
    ):
        hardware.counterpart(found, str(path), None, on="packets", accelerators=None)
    with pytest.raises(ParameterError, match="'mine' 32; give both files one number, or --accelerators"):
        hardware.counterpart(packets, "gpu_packet", str(path), on="circuits", accelerators=None)
    asked = hardware.counterpart(packets, "gpu_packet", str(path), on="circuits", accelerators=64)
    assert asked.accelerators == 64
