"""Algorithms in MSCCL's XML: executed on chunks, refused where they deliver something else."""

import numpy as np
import pytest

from experiments.network.flows import FlowsOnFabric
from simulator.collectives.msccl import read_algorithm
from simulator.errors import ParameterError

FREE = 'cnt="1" depid="-1" deps="-1"'
STEP = '<step s="{s}" type="{kind}" srcbuf="i" srcoff="{at}" dstbuf="i" dstoff="{at}" ' + FREE + "/>"


def ring(n):
    """Return an all-reduce on a ring of n ranks, in place."""
    gpus = []
    for rank in range(n):
        steps = [("s", rank)]
        for hop in range(1, n):
            steps.append(("rrcs" if hop == n - 1 else "rrs", (rank - hop) % n))
        for hop in range(n - 2):
            steps.append(("rcs", (rank - hop) % n))
        steps.append(("r", (rank + 2) % n))
        body = "".join(STEP.format(s=place, kind=kind, at=at) for place, (kind, at) in enumerate(steps))
        block = f'<tb id="0" send="{(rank + 1) % n}" recv="{(rank - 1) % n}" chan="0">{body}</tb>'
        gpus.append(f'<gpu id="{rank}" i_chunks="{n}" o_chunks="{n}" s_chunks="0">{block}</gpu>')
    head = f'<algo name="ring" coll="allreduce" ngpus="{n}" nchunksperloop="{n}" nchannels="1" inplace="1">'
    return f"{head}{''.join(gpus)}</algo>"


def direct(n):
    """Return an all-to-all in which a thread block for each peer sends and receives."""
    gpus = []
    for rank in range(n):
        copy = f'<step type="cpy" srcbuf="i" srcoff="{rank}" dstbuf="o" dstoff="{rank}" {FREE}/>'
        blocks = [f'<tb id="{rank}" send="-1" recv="-1" chan="0">{copy}</tb>']
        for peer in range(n):
            if peer != rank:
                about = f'srcbuf="i" srcoff="{peer}" dstbuf="o" dstoff="{peer}" {FREE}'
                body = f'<step s="0" type="s" {about}/><step s="1" type="r" {about}/>'
                blocks.append(f'<tb id="{peer}" send="{peer}" recv="{peer}" chan="0">{body}</tb>')
        gpus.append(f'<gpu id="{rank}">{"".join(blocks)}</gpu>')
    return f'<algo coll="alltoall" ngpus="{n}" nchunksperloop="{n}">{"".join(gpus)}</algo>'


def written(tmp_path, text):
    file = tmp_path / "mine.xml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_ring_sums_in_two_rounds_of_its_hops(tmp_path, n):
    found = read_algorithm(written(tmp_path, ring(n)))
    assert found.shares.size == 2 * n * (n - 1)
    np.testing.assert_allclose(found.shares, 1.0 / n)
    assert np.all(found.destinations == (found.sources + 1) % n)


def test_on_one_switch_a_ring_takes_what_its_port_passes(tmp_path):
    """2 (n - 1) / n of the vector at the port's rate, and 2 (n - 1) latencies."""
    study = FlowsOnFabric(file=written(tmp_path, ring(8)), size_bytes=8e9)
    result = study.run(lambda *_: None)
    domain = result.fabric.traits.scale_up
    wanted_s = 2 * 7 / 8 * 8e9 / domain.capacity_bytes_per_s + 14 * domain.latency_s
    assert result.times.makespan_s == pytest.approx(wanted_s, rel=1e-6)


def test_messages_of_a_direct_exchange_wait_for_none(tmp_path):
    found = read_algorithm(written(tmp_path, direct(4)))
    assert found.shares.size == 12
    assert found.after.size == 0


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('type="rrcs"', 'type="rcs"', "is no all_reduce: in the end chunk"),
        ('type="rrs"', 'type="rr"', "has type 'rr'"),
        ('coll="allreduce"', 'coll="allreduse"', "did you mean 'allreduce'"),
        ('depid="-1" deps="-1"', 'depid="0" deps="3"', "waits for ever"),
        ('ngpus="3"', 'ngpus="4"', "gpus must be numbered 0 to 3"),
        ('srcoff="0"', 'srcoff="zero"', "srcoff 'zero'"),
        ('recv="2"', 'recv="-1"', "has no peer"),
        ("<algo", "<!DOCTYPE algo><algo", "declares a document type"),
        ("</algo>", "", "no XML"),
    ],
)
def test_what_is_no_collective_is_one_sentence(tmp_path, before, after, sentence):
    with pytest.raises(ParameterError, match=sentence):
        read_algorithm(written(tmp_path, ring(3).replace(before, after, 1)))
