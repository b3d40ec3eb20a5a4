"""Start of the command line; Ctrl-C ends it with one sentence from its first moment on.

What is imported here is not yet guarded, so nothing is that Python has not loaded before it comes here.
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run a command; return its exit code.

    Parameters
    ----------
    argv : list of str, optional
        Arguments; those of the process by default.
    """
    try:
        _set_up()
        from experiments.cli import run  # noqa: PLC0415 - Ctrl-C may come while it is imported

        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        sys.stderr.write("heliograph: interrupted; what was written until now stays\n")
        return 130


def _set_up() -> None:
    """Set the threads of linear algebra and the thresholds of garbage collection, for the whole process."""
    import gc  # noqa: PLC0415 - as above
    import os  # noqa: PLC0415 - as above

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # products here are small: threads wait for each other
    gc.set_threshold(50_000, 20, 20)  # steps are 100,000 small objects that stay: looking for cycles is vain


if __name__ == "__main__":
    sys.exit(main())
