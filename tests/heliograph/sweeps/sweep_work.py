"""A sweep of cheap points, some of which end their process, for the tests of engines and stores."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from heliograph.sweeps.running import Engine, Execution, SweepRequest, run_sweep
from heliograph.sweeps.space import Axis, Space
from simulator.errors import ParameterError

KILLS, FAILS, FAULTS = 7, 11, 13


@dataclass(frozen=True, kw_only=True)
class Squares:
    """The square of a number after some work; three numbers go wrong if `harmful`."""

    seconds: float = 0.0
    harmful: bool = False
    once: str = ""
    study: str = "squares"

    def keys(self, inputs):
        return [f"square {one.get('number')}" for one in inputs]

    def reader(self, name):
        return None

    def about(self, inputs):
        return {"number": inputs["number"]}

    def runner(self, expected):
        return self._square

    def _square(self, inputs):
        number = inputs["number"]
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        if self.harmful and number == KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.once and number == KILLS and not Path(self.once).exists():
            Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.harmful and number == FAILS:
            msg = "eleven is refused; try twelve"
            raise ParameterError(msg)
        if self.harmful and number == FAULTS:
            raise ZeroDivisionError
        return {"number": number, "square": number**2}


def asked(store, count, *, workers=1, engine=Engine.PROCESSES, scheduler=None, retry_failed=False, **work):
    space = Space(axes=(Axis(names=("number",), values=tuple((n,) for n in range(count))),))
    execution = Execution(
        store=store, workers=workers, engine=engine, scheduler=scheduler, retry_failed=retry_failed
    )
    return SweepRequest(name="squares", work=Squares(**work), space=space, execution=execution)


def told(label, done, total):
    sys.stdout.write(f"{label} {done}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    store, count, workers, seconds, engine, scheduler = sys.argv[1:7]
    try:
        run_sweep(
            asked(
                Path(store),
                int(count),
                workers=int(workers),
                seconds=float(seconds),
                engine=Engine(engine),
                scheduler=scheduler or None,
            ),
            told,
        )
    except KeyboardInterrupt:
        sys.exit(130)
