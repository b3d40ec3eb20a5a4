"""Keys of a plan as ``heliograph list plan`` and docs/plans.md have them, in the words of their fields."""

import re
from pathlib import Path

import pytest

from experiments.__main__ import main
from simulator.errors import WorkloadError
from workloads.plan.keys import described_keys
from workloads.plan.plan import ALIASES, ELSEWHERE, KEYS, Plan, parse_plan

PAGE = Path(__file__).parents[3] / "docs" / "plans.md"


def rows():
    """Return the rows that the page must have."""
    return [f"| `{one.name}` | {one.takes} | {one.usual} | {one.meaning} |" for one in described_keys()]


def test_every_key_says_what_it_takes_and_means():
    found = {one.name: one for one in described_keys()}
    assert found.keys() == KEYS.keys()
    assert all(one.meaning.endswith(".") and one.takes for one in found.values())
    assert all("`" not in one.meaning and "\n" not in one.meaning for one in found.values())
    assert found["zero"].takes == "one of 0, 1, 2, 3"
    assert found["grad_bytes"].takes == "one of 2, 4"
    assert found["delay"].takes == "0 or more"
    assert found["tp"].meaning == "Tensor-parallel ranks. Also tensor."
    assert "all_gather collects them first" in found["context_exchange"].meaning
    assert "flash: Scores stay on chip" in found["attention"].meaning


def test_usual_values_are_those_of_a_plan_that_says_nothing():
    usual = {one.name: one.usual for one in described_keys() if one.name != "sequence_length"}
    assert parse_plan(",".join(f"{key}={value}" for key, value in usual.items())) == Plan()
    assert set(ALIASES.values()) <= KEYS.keys()


def test_keys_of_others_are_none_of_ours_and_name_one():
    assert not ELSEWHERE.keys() & (KEYS.keys() | ALIASES.keys())
    for other, ours in ELSEWHERE.items():
        assert re.match(r"\w+", ours)[0] in KEYS, other


def test_the_page_has_the_row_of_every_key():
    """Where one lacks or lags, this is the row that belongs there."""
    told = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert [row for row in rows() if row not in told] == []
    assert [line for line in told if line not in rows()] == []


@pytest.mark.parametrize("key", ["pq", "tpp"])
def test_an_unknown_key_is_told_where_all_are(key):
    with pytest.raises(WorkloadError, match=r"heliograph list plan"):
        parse_plan(f"{key}=2")


def test_the_command_line_lists_them(capsys):
    assert main(["list", "plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in described_keys()]
    assert "optimizer_place        one of device, host, nvme; default device. Place" in "\n".join(lines)
