"""One of two processes that train together: ``python -m tests.optical.conversion.ranks RANK DIRECTORY``."""

import contextlib
import dataclasses
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from optical.conversion import ProductSpecs, convert, noise_key
from optical.cores import load_core
from optical.execution.matmul import RowBlocks
from tests.optical.conversion.architectures import WIDTH, Llama, Mixture

SPECS = ProductSpecs.of(load_core("crossbar").analog, row_block=16)
RANKS, SAMPLES, LENGTH = 2, 8, 8
SEED, STEP = 3, 5


def model_and_tokens():
    """Return the converted model and the global batch, whose parts are whole row blocks."""
    torch.manual_seed(0)
    return convert(Llama(), SPECS), torch.randint(40, (SAMPLES, LENGTH))


def gradients(model, tokens, *, part):
    """Return the loss, a mean over samples, and its gradients, under the key of a part."""
    with noise_key(SEED, STEP, part=part):
        loss = model(tokens).square().mean()
        loss.backward()
    found = {name.removeprefix("module."): p.grad for name, p in model.named_parameters()}
    return {
        name: grad.full_tensor() if hasattr(grad, "full_tensor") else grad for name, grad in found.items()
    }


@contextlib.contextmanager
def watched_blocks():
    """Yield a list that gets the place and the number of each row block that draws."""
    blocks, key_of = [], RowBlocks.key_of

    def watched(self, number):
        if number >= 0:  # others are shared on purpose, as the codes of a weight are
            blocks.append((self.place, number))
        return key_of(self, number)

    RowBlocks.key_of = watched
    try:
        yield blocks
    finally:
        RowBlocks.key_of = key_of


def drawn_blocks(run, x, *, part, alike=True):
    """Return which row blocks a pass forward and backward draws, each once."""
    with watched_blocks() as blocks, noise_key(SEED, STEP, part=part, alike=alike):
        run(x).square().mean().backward()
    assert len(set(blocks)) == len(blocks)
    return set(blocks)


def mixture():
    """Return a converted model whose experts gather what the router says, in blocks of two tokens."""
    torch.manual_seed(0)
    return convert(Mixture(), dataclasses.replace(SPECS, row_block=2))


def mixture_blocks(rank):
    """Return the blocks that each process draws of experts, replicated and sharded."""
    x, found = torch.randn(4, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1 + rank)), {}
    sharded = mixture()
    for expert in sharded.experts:
        fully_shard(expert)
    for kind, model in (
        ("replicated", DistributedDataParallel(mixture())),
        ("sharded", fully_shard(sharded)),
    ):
        found[kind] = [set()] * RANKS
        distributed.all_gather_object(found[kind], drawn_blocks(model, x, part=rank))
    return found


def main(rank, directory):
    torch.set_num_threads(1)
    store = distributed.FileStore(str(directory / "store"), RANKS)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    mine = slice(rank * SAMPLES // RANKS, (rank + 1) * SAMPLES // RANKS)
    model, tokens = model_and_tokens()
    found = {"replicated": gradients(DistributedDataParallel(model), tokens[mine], part=rank)}
    model, _ = model_and_tokens()
    mesh = distributed.init_device_mesh("cpu", (RANKS,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert isinstance(model, nn.Module)
    found["sharded"] = gradients(model, tokens[mine], part=rank)
    found["keys"] = list(model.state_dict())
    found["mixture"] = mixture_blocks(rank)
    if rank == 0:
        torch.save(found, directory / "found.pt")
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
