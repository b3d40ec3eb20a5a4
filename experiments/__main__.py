"""Start of the command line; Ctrl-C ends it with one sentence from its first moment on."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # products here are small: threads wait for each other
    gc.set_threshold(50_000, 20, 20)  # steps are 100,000 small objects that stay: looking for cycles is vain
    try:
        from experiments.cli import run  # noqa: PLC0415 - Ctrl-C may come while it is imported

        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        sys.stderr.write("heliograph: interrupted; what is finished is kept\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
