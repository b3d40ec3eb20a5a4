import pytest

from experiments.validation.driver import Validation
from experiments.validation.rows import Outcome, statistics


def outcome(name, measured, predicted, *, source="s", constant=None, skipped=None):
    return Outcome(
        id=name,
        source=source,
        unit="s",
        measured=measured,
        predicted=predicted,
        constant=constant,
        skipped=skipped,
    )


ROWS = (
    outcome("a", 10.0, 11.0, constant=15.0),  # +10 %, constant +50 %
    outcome("b", 10.0, 8.0, constant=10.0),  # -20 %, constant 0 %
    outcome("c", 2.0, 2.6, constant=1.0),  # +30 %, constant -50 %
    outcome("d", 4.0, 4.0, source="t", constant=4.4),  # 0 %, constant +10 %
    outcome("e", 4.0, None, source="t", skipped="no heads"),
)


def test_statistics_are_those_worked_out_by_hand():
    found = statistics(ROWS[:3])
    assert found.n == 3
    assert found.mean_abs_error == pytest.approx(0.2)
    assert found.median == pytest.approx(0.2)
    assert found.p90 == pytest.approx(0.28)  # between 0.2 and 0.3, at 1.8 of 2 steps
    assert found.max == pytest.approx(0.3)
    assert found.bias == pytest.approx((0.1 - 0.2 + 0.3) / 3)
    assert found.constant_mean_abs_error == pytest.approx(1.0 / 3)


def test_skipped_rows_do_not_count():
    assert statistics(ROWS[3:]).n == 1
    empty = statistics(ROWS[4:])
    assert list(vars(empty).values()) == [0] + [None] * 6


def test_rows_without_a_constant_leave_its_error_open():
    found = statistics([outcome("a", 1.0, 2.0)])
    assert found.constant_mean_abs_error is None
    assert found.mean_abs_error == 1.0


def test_the_record_has_the_keys_that_were_promised():
    record = Validation(kind="training", outcomes=ROWS).record()
    assert set(record) == {"rows", "by_source", "overall"}
    row = {"id", "source", "measured", "predicted", "unit", "relative_error", "assumed", "skipped"}
    assert all(set(one) == row for one in record["rows"])
    promised = {"n", "mean_abs_error", "median", "p90", "max", "bias", "constant_mean_abs_error"}
    assert all(set(one) == promised for one in (record["overall"], *record["by_source"].values()))
    assert list(record["by_source"]) == ["s", "t"]
    assert record["overall"]["n"] == 4


def test_a_row_that_was_skipped_tells_why_and_predicts_nothing():
    row = ROWS[4].record()
    assert row["skipped"] == "no heads"
    assert row["predicted"] is None
    assert row["relative_error"] is None
    assert row["measured"] == 4.0
    assert ROWS[0].record()["skipped"] is None


def test_rows_that_miss_by_more_than_a_fifth_are_named_worst_first():
    assert [one.id for one in Validation(kind="training", outcomes=ROWS).far_off] == ["c"]


def test_sources_can_be_taken_together_by_their_beginnings():
    found = Validation(kind="training", outcomes=ROWS)
    assert found.of("s").n == 3
    assert found.of("s", "t").n == 4
