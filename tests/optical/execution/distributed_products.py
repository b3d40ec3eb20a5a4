"""What one of two processes computes in `test_distributed_products.py`; run by it, not a test itself."""

import pathlib
import sys

import torch
import torch.distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from optical.conversion import convert, noise_key
from optical.cores import load_core
from optical.execution import ProductSpecs
from optical.execution.matmul import noisy_matmul
from simulator.errors import WorkloadError

ROWS, WIDTH, KEY = 64, 24, 9
SPECS = ProductSpecs.of(load_core("crossbar").analog, row_block=16)


class Layer(torch.nn.Module):
    """Two products through the core and a buffer, which replicas broadcast."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(4)
        self.first, self.second = (
            torch.nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator) / 5.0) for _ in range(2)
        )
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, first_block):
        self.count += 1
        hidden = noisy_matmul(x, self.first.mT, SPECS, KEY, place=(0,), first_block=first_block).tanh()
        return noisy_matmul(hidden, self.second.mT, SPECS, KEY, place=(1,), first_block=first_block)


def batch():
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(5))


def replicas(rank, size):
    """Data parallel in both ways; gradients of the mean over processes of their sums."""
    rows = ROWS // size
    x, first = batch()[rank * rows : (rank + 1) * rows], rank * rows // SPECS.row_block
    found = {}
    for name in ("ddp", "fsdp"):
        layer = Layer()
        wrapped = torch.nn.parallel.DistributedDataParallel(layer) if name == "ddp" else fully_shard(layer)
        out = wrapped(x, first)
        out.square().sum().backward()
        grads = [parameter.grad for parameter in layer.parameters()]
        grads = [grad.full_tensor() if isinstance(grad, DTensor) else grad for grad in grads]
        found[name] = [out.detach(), *[grad * size for grad in grads]]
    return found


def shards(mesh):
    """Shard rows of A, columns of B, the summed dimension, matrices of a batch."""
    x, weight = batch(), Layer().first.detach()
    found = {}
    layouts = {
        "rows": (Shard(0), Replicate()),
        "columns": (Replicate(), Shard(1)),
        "summed": (Shard(1), Shard(0)),
        "mixed": (Shard(0), Shard(1)),
    }
    for name, (of_a, of_b) in layouts.items():
        a = distribute_tensor(x, mesh, [of_a]).requires_grad_()
        b = distribute_tensor(weight.mT.contiguous(), mesh, [of_b]).requires_grad_()
        found[name] = product(a, b)
    a, b = (torch.randn(4, 8, WIDTH, generator=torch.Generator().manual_seed(6)) for _ in range(2))
    a, b = (distribute_tensor(each, mesh, [Shard(0)]).requires_grad_() for each in (a, b.mT.contiguous()))
    found["batch"] = product(a, b, weight=False)
    try:
        noisy_matmul(distribute_tensor(x[:40], mesh, [Shard(0)]), weight.mT, SPECS, KEY)
    except WorkloadError as error:
        found["refused"] = str(error)
    return found


class Wide(torch.nn.Module):
    """Two linear layers, the first cut by columns and the second by the sum in tensor parallelism."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(self.up(x).relu())


def tensor_parallel(mesh):
    """Outputs and gradients of a converted model under tensor parallelism, eager and compiled."""
    model = parallelize_module(
        convert(Wide(), SPECS), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    compiled, found = torch.compile(model, backend="aot_eager", fullgraph=True), {}
    for step in range(2):
        for name, run in (("eager", model), ("compiled", compiled)):
            model.zero_grad()
            with noise_key(KEY, step):
                out = run(batch())
                out.square().sum().backward()
            out = out.wait() if hasattr(out, "wait") else out
            found[name, step] = [out.detach(), *[each.grad.full_tensor() for each in model.parameters()]]
    found["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return found


def product(a, b, weight=True):
    out = noisy_matmul(a, b, SPECS, KEY, weight=weight)
    out.full_tensor().square().sum().backward()
    return [each.full_tensor().detach() for each in (out, a.grad, b.grad)]


def main(rank, folder):
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(folder / "store"), 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    found = {**replicas(rank, 2), **shards(mesh), "tensor parallel": tensor_parallel(mesh)}
    torch.save(found, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))
