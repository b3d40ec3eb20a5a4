"""Time of writing and reading a Chakra trace of 100,000 nodes, plain and gzip."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from workloads.traces import Attribute, Form, Node, NodeType, read_trace, write_trace

NODES = 100_000


def _nodes() -> list[Node]:
    return [
        Node(
            id=one,
            name=f"layer.{one}.attention.qkv",
            type=NodeType.COMP,
            data_deps=(one - 1,) if one else (),
            duration_us=one % 977,
            attributes={
                "is_cpu_op": Attribute(Form.BOOL, value=False),
                "num_ops": Attribute(Form.INT64, one * 12345),
                "tensor_size": Attribute(Form.UINT64, one * 999),
            },
        )
        for one in range(NODES)
    ]


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Print seconds and nodes per second."""
    nodes = _nodes()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("x.0.et", "x.0.et.gz"):
            path = Path(folder) / name
            wrote = _seconds(lambda path=path: write_trace(path, nodes))  # type: ignore[misc]
            read = _seconds(lambda path=path: sum(1 for _ in read_trace(path)))  # type: ignore[misc]
            size = path.stat().st_size
            rate = NODES / (wrote + read)
            sys.stdout.write(
                f"{name:10} {size:>9} B  wrote {wrote:.2f} s, read {read:.2f} s, {rate:,.0f} nodes/s\n"
            )


if __name__ == "__main__":
    main()
