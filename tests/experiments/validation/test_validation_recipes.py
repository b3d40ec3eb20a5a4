"""What a source's recipe says counts for all its rows, a row's own word counts more."""

import pytest

from experiments.validation.plans import overlaps_tensor, recipes
from experiments.validation.rows import Record

SOURCE = "NVIDIA DGX Cloud benchmarking v25.02 (LLAMA3_70B bf16)"


@pytest.mark.parametrize(
    ("cells", "tp", "sharded", "expected"),
    [
        ({"source": SOURCE}, 4, True, True),
        ({"source": SOURCE, "tp_comm_overlap": "n"}, 4, True, False),
        ({"source": SOURCE}, 1, True, False),
        ({"source": SOURCE}, 4, False, False),
        ({"source": "NVIDIA DGX Cloud benchmarking v25.05.05 (LLAMA3.1_405B bf16)"}, 4, True, False),
        ({"source": "another", "tp_comm_overlap": "y"}, 4, True, True),
        ({"source": "another"}, 4, True, False),
    ],
)
def test_recipe_of_the_source_says_whether_traffic_overlaps(cells, tp, sharded, expected):
    record = Record(where="x:1", cells=cells)
    assert overlaps_tensor(record, tp, sequence_parallel=sharded) is expected
    assert bool(record.assumed) is (expected and "tp_comm_overlap" not in cells)


def test_every_recipe_cites_its_file():
    for row in recipes():
        assert row["citation"]
        assert row["overlap_tensor"] in {"y", "n", ""}
        assert row["overlap_tensor"] or 0.0 < float(row["recompute_share"]) < 1.0
    assert len({row["source"] for row in recipes()}) == len(recipes())
