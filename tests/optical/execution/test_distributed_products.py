import os
import pathlib
import subprocess
import sys

import pytest
import torch

from optical.conversion import NoiseKey
from optical.execution.matmul import noisy_matmul
from tests.optical.execution import distributed_products as worker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results of two processes that talk over gloo."""
    folder = tmp_path_factory.mktemp("processes")
    root = pathlib.Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.optical.execution.distributed_products"]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(folder)], env=environment, cwd=root, stderr=subprocess.PIPE
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in running]
    assert [process.returncode for process in running] == [0, 0], errors
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def alone():
    """The same layer and batch in this process."""
    layer = worker.Layer()
    out = layer(worker.batch(), 0)
    out.square().sum().backward()
    return [out.detach(), *[parameter.grad for parameter in layer.parameters()]]


def product(a, b, weight=True, **options):
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    out = noisy_matmul(a, b, worker.SPECS, worker.KEY, weight=weight, **options)
    out.square().sum().backward()
    return [out.detach(), a.grad, b.grad]


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_replicas_draw_what_one_process_draws(found, alone, how):
    """Outputs bit for bit; gradients but for the order of the sum over row blocks."""
    assert torch.equal(torch.cat([rank[how][0] for rank in found]), alone[0])
    for rank in found:
        for mine, theirs in zip(rank[how][1:], alone[1:], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("how", ["rows", "mixed"])
def test_shards_of_rows_draw_what_one_process_draws(found, how):
    out, grad_a, grad_b = product(worker.batch(), worker.Layer().first.detach().mT.contiguous())
    for rank in found:
        assert torch.equal(rank[how][0], out)
        assert torch.equal(rank[how][1], grad_a)
        torch.testing.assert_close(rank[how][2], grad_b, rtol=1e-5, atol=1e-4)


def test_shards_of_a_batch_draw_what_one_process_draws(found):
    a, b = (torch.randn(4, 8, worker.WIDTH, generator=torch.Generator().manual_seed(6)) for _ in range(2))
    for mine, theirs in zip(found[0]["batch"], product(a, b.mT.contiguous(), weight=False), strict=True):
        assert torch.equal(mine, theirs)


def test_shards_of_columns_are_chips_of_their_own(found):
    """Each half of the columns draws by its global offset; gradients of A are summed."""
    x, b = worker.batch(), worker.Layer().first.detach().mT.contiguous()
    half = worker.WIDTH // 2
    parts = [product(x, b[:, start : start + half], place=(1, start)) for start in (0, half)]
    for rank in found:
        assert torch.equal(rank["columns"][0], torch.cat([part[0] for part in parts], 1))
        torch.testing.assert_close(rank["columns"][1], parts[0][1] + parts[1][1], rtol=1e-5, atol=1e-4)
        assert torch.equal(rank["columns"][2], torch.cat([part[2] for part in parts], 1))


def test_shards_of_the_sum_are_chips_whose_results_are_added(found):
    x, b = worker.batch(), worker.Layer().first.detach().mT.contiguous()
    half = worker.WIDTH // 2
    parts = [
        noisy_matmul(x[:, part], b[part], worker.SPECS, worker.KEY, place=(2, part.start))
        for part in (slice(0, half), slice(half, None))
    ]
    torch.testing.assert_close(found[0]["summed"][0], parts[0] + parts[1], rtol=1e-6, atol=1e-6)


def test_shards_that_cut_a_row_block_are_refused(found):
    assert "row_block (16 rows) must divide the shards" in found[1]["refused"]


def wide_alone(step):
    """The same model in this process, cut at the same places: layers 1 and 2, columns and then the sum."""
    model, key = worker.Wide(), torch.from_numpy(NoiseKey(seed=worker.KEY, step=step).numbers)
    halves = [slice(start, start + worker.WIDTH) for start in (0, worker.WIDTH)]

    def multiply(x, weight, *place):
        return noisy_matmul(x, weight.mT, worker.SPECS, key, place=place)

    wide = [multiply(worker.batch(), model.up.weight[half], 1, 0, 0, 0, 1, half.start) for half in halves]
    wide = (torch.cat(wide, 1) + model.up.bias).relu()
    sums = [multiply(wide[:, half], model.down.weight[:, half], 2, 0, 0, 0, 2, half.start) for half in halves]
    out = sum(sums) + model.down.bias
    out.square().sum().backward()
    return [out.detach(), *[parameter.grad for parameter in model.parameters()]]


@pytest.mark.parametrize("step", [0, 1])
def test_tensor_parallel_layers_draw_what_their_shards_draw_in_one_process(found, step):
    """Columns of one layer, the sum of the next, eager; but for the order in which sums are added."""
    for rank in found:
        for mine, theirs in zip(rank["tensor parallel"]["eager", step], wide_alone(step), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-4)


def test_compiled_tensor_parallel_layers_are_one_graph_that_draws_the_same(found):
    """Bit for bit, in a step that the compilation did not know."""
    for rank in found:
        parallel = rank["tensor parallel"]
        assert parallel["graphs"] == 1
        for step in range(2):
            for mine, theirs in zip(parallel["compiled", step], parallel["eager", step], strict=True):
                assert torch.equal(mine, theirs)
        assert not torch.equal(parallel["compiled", 0][0], parallel["compiled", 1][0])
