"""Accuracy against photons per multiplication, as a command."""

import dataclasses
import json
import math
from functools import cache

import pytest

from experiments.__main__ import main
from experiments.accuracy import photons
from experiments.accuracy.photons import (
    GRID,
    LAW_GRID,
    DigitSet,
    Model,
    Point,
    Request,
    Scheme,
    photons_at,
    published,
    run_photons,
)
from heliograph.report import report_text
from tests.builders import csv_rows
from workloads.training import classifier as handwriting
from workloads.training.classifier import has_handwriting

pytestmark = pytest.mark.slow
TINY = Request(
    seeds=(0, 1),
    law_seeds=(0,),
    vision_seeds=(0,),
    sides=(14, 28),
    training_images=1500,
    test_images=300,
    vision_images=80,
    epochs=4,
    vision_epochs=8,
)


def told(result):
    return report_text(result.report())


@cache
def found():
    return run_photons(TINY)


def curve(name, model=0):
    one = found().models[model]
    return [point for point in (*one.points, *one.parts) if point.curve == name]


def test_a_transformer_needs_more_photons_than_a_perceptron_and_attention_the_fewest():
    """Vectors of 16 to 64 elements against 100 and 784: by Wang et al. (2022), Fig. 1c, the sum counts.

    80 readings by one network: 5.6 % sigma at one half.
    """
    pair, exact = curve(Scheme.PAIR, 1), found().models[1].exact
    assert [point.photons_per_mac for point in pair] == list(GRID)
    assert pair[0].mean < 0.3
    assert pair[-1].mean == pytest.approx(exact, abs=0.06)
    assert photons_at(0.8 * exact, pair) > 1.5 * photons_at(0.8 * found().models[0].exact, curve(Scheme.PAIR))
    assert all(one.mean < two.mean - 0.2 for one, two in zip(pair[:2], curve("values", 1)[:2], strict=True))
    assert all(one.mean < two.mean - 0.2 for one, two in zip(pair[:2], curve("scores", 1)[:2], strict=True))


@pytest.mark.parametrize("scheme", Scheme)
def test_more_photons_never_read_worse(scheme):
    """600 readings by two networks: 2 % sigma at one half."""
    means = [point.mean for point in curve(scheme)]
    assert [point.photons_per_mac for point in curve(scheme)] == list(GRID)
    assert all(mean > max(means[: i + 1]) - 0.06 for i, mean in enumerate(means))
    assert means[0] < means[-1] - 0.4


def test_the_limit_is_above_what_is_built_and_the_exact_accuracy_above_all():
    exact = found().models[0].exact
    for built, limit in zip(curve(Scheme.CORE), curve(Scheme.SHOT), strict=True):
        assert built.mean < limit.mean + 0.04
    assert max(point.mean for point in found().models[0].points) < exact + 0.02
    assert curve(Scheme.PAIR)[-1].mean == pytest.approx(exact, abs=0.02)


def test_a_vector_four_times_as_long_needs_a_fraction_of_the_photons():
    """Wang et al. (2022), Fig. 1c: noise averages over the sum. Weights differ, so the law is loose."""
    needed = found().needed()
    assert set(needed) == {196, 784}
    assert 2.0 < needed[196] / needed[784] < 8.0
    assert -1.5 < found().exponent < -0.5
    assert len(found().law) == 2 * len(LAW_GRID)


def test_wang_s_points_are_those_of_the_abstract():
    """Wang et al., Nature Communications 13, 123 (2022), abstract: 99 % with 3.1 photons, 90 % with 0.66."""
    assert [(one.photons_per_mac, one.accuracy) for one in published()] == [(3.1, 0.99), (0.66, 0.90)]


def test_photons_are_interpolated_in_logarithms():
    points = [
        Point(curve="", inputs=1, photons_per_mac=photons, accuracies=(accuracy,))
        for photons, accuracy in ((0.01, math.nan), (0.1, 0.2), (10.0, 0.8))
    ]
    assert photons_at(0.5, points) == pytest.approx(1.0)
    assert photons_at(0.9, points) == math.inf
    assert math.isnan(photons_at(0.1, points))
    assert points[1].spread == 0.0


def test_the_command_writes_table_rows_and_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(photons, "run_photons", lambda request, progress: found())
    assert main(["accuracy", "photons", "--quick", "--out", str(tmp_path / "here"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {path.rsplit(".", 1)[1] for path in record["files"]} == {"csv", "json", "png", "svg"}
    rows = csv_rows(tmp_path / "here" / "photons.csv")
    assert len(rows) == (2 * len(Scheme) + 3) * len(GRID) + 2 * len(LAW_GRID)
    assert {row["network"] for row in rows} == {"mlp", "vit"}
    assert (tmp_path / "here" / "photons.png").stat().st_size > 20_000
    text = told(found())
    assert all(scheme in text for scheme in Scheme)
    assert "Wang 2022" in text
    assert "784-100-100-10" in text


def test_the_same_request_gives_the_same_record():
    small = dataclasses.replace(
        TINY, seeds=(3,), law_seeds=(3,), vision_seeds=(3,), sides=(14,), training_images=200, test_images=50
    )
    small = dataclasses.replace(small, vision_images=20, epochs=1, vision_epochs=1)
    one, again = run_photons(small), run_photons(small)
    assert told(one) == told(again)  # points without a link are no numbers, which equal nothing
    alone = run_photons(dataclasses.replace(small, models=(Model.VIT,)))
    assert alone.models[0].parts == one.models[1].parts
    assert not alone.law
    assert "first layer" not in told(alone)


def test_a_directory_that_cannot_be_made_is_said_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(photons, "run_photons", lambda request, progress: pytest.fail("ran"))
    (tmp_path / "file").touch()
    assert main(["accuracy", "photons", "--out", str(tmp_path / "file" / "here")]) == 2
    assert "--out" in capsys.readouterr().err


@pytest.mark.skipif(not has_handwriting(), reason="scikit-learn is not installed")
def test_handwriting_is_read_where_it_is_installed():
    """64 pixels against 784: more photons per product, as the sum counts (Wang et al. 2022, Fig. 1c)."""
    assert DigitSet.usual() is DigitSet.REAL
    usual = Request.of(quick=True, models=(Model.MLP,), digits=DigitSet.REAL)
    result = run_photons(dataclasses.replace(usual, seeds=(0,), law_seeds=(0,), epochs=15))
    assert result.models[0].shape == "64-100-100-10"
    assert result.models[0].exact > 0.95
    needed = result.needed()
    assert set(needed) == {64, 784}
    assert needed[64] > 2.0 * needed[784]
    assert "handwriting" in told(result)


def test_without_handwriting_digits_are_drawn_with_a_line_of_notice(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(photons, "run_photons", lambda request, progress: asked.append(request) or found())
    monkeypatch.setattr(handwriting, "has_handwriting", lambda: False)
    assert main(["accuracy", "photons", "--out", str(tmp_path)]) == 0
    assert "scikit-learn is not installed" in capsys.readouterr().err
    assert main(["accuracy", "photons", "--digits", "drawn", "--out", str(tmp_path / "drawn")]) == 0
    assert "scikit-learn" not in capsys.readouterr().err
    assert [one.digits for one in asked] == [DigitSet.DRAWN] * 2
    monkeypatch.undo()
    monkeypatch.setattr(handwriting, "has_handwriting", lambda: False)
    real = ["--quick", "--model", "mlp", "--digits", "real", "--out", str(tmp_path / "real")]
    assert main(["accuracy", "photons", *real]) == 2
    assert "install heliograph[digits]" in capsys.readouterr().err
