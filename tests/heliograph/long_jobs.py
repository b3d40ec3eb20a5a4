"""A command whose jobs outlast any patience, for the tests of Ctrl-C."""

import sys
import time
from pathlib import Path

from heliograph.processes import run_all


def work(job):
    Path(job).touch()
    time.sleep(300.0)


if __name__ == "__main__":
    try:
        run_all(sys.argv[1:], work, lambda job, result: None)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)
