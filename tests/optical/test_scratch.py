"""Memory that is used again, and what is remembered of it."""

import pickle
import threading

import torch

from optical.cores import load_core
from optical.execution.numerics import AnalogNumerics
from optical.execution.scratch import remembered, scratch
from simulator.operators import Phase

CPU = torch.device("cpu")


def memory(count, use="test"):
    return scratch(use, torch.Size((count,)), torch.float32, CPU)


def test_what_is_remembered_is_made_anew_when_memory_moves():
    """A view of memory that has been left would hold another product's numbers."""
    memory(8)
    first = remembered(("view", 4), lambda: memory(4))
    assert remembered(("view", 4), lambda: memory(4)) is first
    grown = memory(4096)
    second = remembered(("view", 4), lambda: memory(4))
    assert second is not first
    assert second.data_ptr() == grown.data_ptr()


def test_memory_too_large_to_be_kept_is_not_remembered():
    """Every shape of a large model would keep megabytes of its own, for ever."""
    large = remembered(("large", 1), lambda: memory(2**22 + 1))
    assert remembered(("large", 1), lambda: memory(2**22 + 1)) is not large
    small = remembered(("small", 1), lambda: memory(16))
    assert remembered(("small", 1), lambda: memory(16)) is small


def test_threads_do_not_share_what_they_remember():
    mine, others = remembered(("view", 2), lambda: memory(2)), []
    thread = threading.Thread(target=lambda: others.append(remembered(("view", 2), lambda: memory(2))))
    thread.start()
    thread.join()
    assert others[0].data_ptr() != mine.data_ptr()


def test_products_of_many_shapes_do_not_disturb_each_other():
    """Memory grows, shrinks and is shared: each product comes out as it does alone."""
    numerics = AnalogNumerics(load_core("crossbar").analog(Phase.FORWARD))
    generator = torch.Generator().manual_seed(2)
    pairs = [
        (torch.randn(1, m, k, generator=generator), torch.randn(1, n, k, generator=generator).mT)
        for m, k, n in ((8, 32, 16), (64, 256, 128), (16, 48, 8), (128, 300, 256), (8, 32, 16))
    ]
    alone = []
    for a, b in pairs:
        thread = threading.Thread(target=lambda a=a, b=b: alone.append(numerics.matmul(a, b, 3)))
        thread.start()
        thread.join()
    for _ in range(2):
        for (a, b), expected in zip(pairs, alone, strict=True):
            torch.testing.assert_close(numerics.matmul(a, b, 3), expected, rtol=0, atol=0)


def test_products_made_without_gradients_serve_those_with_gradients():
    """What is remembered in inference mode may be written to outside of it."""
    numerics = AnalogNumerics(load_core("crossbar").analog(Phase.FORWARD))
    a, b = torch.randn(1, 9, 34), torch.randn(1, 34, 14)
    with torch.inference_mode():
        first = numerics.matmul(a, b, 1)
    assert torch.equal(first, numerics.matmul(a, b, 1))


def test_a_specification_does_not_carry_its_hash_to_other_processes():
    """Hashes of strings differ from process to process."""
    spec = load_core("crossbar").analog(Phase.FORWARD)
    hash(spec)
    assert "_hash" in vars(spec)
    copy = pickle.loads(pickle.dumps(spec))
    assert "_hash" not in vars(copy)
    assert copy == spec
    assert hash(copy) == hash(spec)
