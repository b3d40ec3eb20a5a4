"""Examples of property tests are drawn alike in every run and take the time they take on a busy machine."""

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

gc.set_threshold(50_000, 20, 20)  # as the command line does

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as what a script starts with & inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the processors; one that waits for another spins
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread, so that sums are added up in one order."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with the most slow tests first, each whole for its fixtures, so that none is begun last."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])
    gc.freeze()  # what is imported and collected stays: no search for cycles looks at it again
