"""One of the processes that torchrun would start: ``python -m tests.heliograph.two_ranks DIRECTORY``."""

import json
import os
import sys
import time
import warnings
from pathlib import Path

import torch

from heliograph.accuracy.small_gpt import Arithmetic, train_all
from heliograph.processes import among_ranks, run_all
from heliograph.records import TrainingCache
from simulator.errors import ClippingWarning, HeliographError, ParameterError

TRAINED = (Arithmetic(label="bf16"),)
PATIENCE_S = 60.0


def meet(job):
    """Return the process, once the other job has begun too, which takes another process."""
    directory, mine, other = job
    (Path(directory) / mine).touch()
    deadline = time.monotonic() + PATIENCE_S
    while not (Path(directory) / other).exists():
        if time.monotonic() > deadline:
            msg = "the other job was not begun"
            raise HeliographError(msg)
        time.sleep(0.01)
    return os.getpid()


def warn(job):
    """Warn of a share of clipping, in each process one, and return the process."""
    directory, mine, other, share = job
    warnings.warn(ClippingWarning(f"{share:.0%} is clipping", share), stacklevel=1)
    return meet((directory, mine, other))


def refuse(job):
    """Refuse the second job, whoever does it."""
    if job:
        msg = f"job ({job}) must be 0"
        raise ParameterError(msg)
    return job


def trained(directory):
    """Return the losses of two arithmetics after one step."""
    found = train_all(TRAINED, seeds=(0,), quick=True, cache=TrainingCache(directory), model="tiny", steps=1)
    return {label: one.losses for label, one in found.items()}


def command(directory):
    """Do four lists of jobs, as a command would."""
    found = {"processes": []}
    pair = [(str(directory), "left", "right"), (str(directory), "right", "left")]
    run_all(pair, meet, lambda job, process: found["processes"].append(process))
    found["trained"] = trained(directory / "shared")
    try:
        run_all([0, 1], refuse, lambda job, result: None)
    except ParameterError as error:
        found["refusal"] = str(error)
    dubious = [(str(directory), "above", "below", 0.2), (str(directory), "below", "above", 0.4)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClippingWarning)
        run_all(dubious, warn, lambda job, process: None)
    found["warnings"] = sorted(one.message.share for one in caught)
    (directory / "found.json").write_text(json.dumps(found))


def main(directory):
    torch.set_num_threads(1)
    among_ranks(lambda: command(directory))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
