"""The table and the figure of training variants."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from experiments.accuracy import EXACT, NOTHING, difference_text
from experiments.plain import csv_text, make_directory, write_atomically
from experiments.report import ReportRow, table_text
from experiments.style import PALETTE, REFERENCE, new_figure, save, styled
from experiments.training_modes import told
from experiments.training_variants import Variants


def write(found: Variants, directory: Path) -> tuple[Path, ...]:
    """Write rows and figure into a directory; return their paths.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    make_directory(directory)
    table = directory / "variants.csv"
    write_atomically(table, csv_text(found.rows()))
    return (table, *draw(found, directory / "variants"))


def report(found: Variants) -> str:
    """Return the table as text, with the floor of chance."""
    rows, steps = [], found.steps
    for label, one in found.accuracies.items():
        cells: tuple[str, ...] = (f"{one.mean:.3f}", "", "", "")
        if label != EXACT:
            cells = (
                f"{one.mean:.3f}",
                difference_text(one.differences, found.floor),
                difference_text(one.exact_differences, found.floor),
                told(steps[label]),
            )
        rows.append(ReportRow(label=label, values=cells))
    count = len(found.accuracies[EXACT].final)
    title = f"Training through {found.system}, {count} seeds, nats/byte"
    text = table_text(title, ("final loss", "minus exact", "read out exactly", "steps to loss"), rows)
    return f"{text}\nNoise of nothing moves the loss of a seed by up to {found.floor:.2g} nats/byte."


def draw(found: Variants, path: Path) -> tuple[Path, Path]:
    """Draw the loss of each variant against exact arithmetic, seed by seed, over the floor of chance.

    Parameters
    ----------
    found : Variants
        What to draw.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    shown = [(label, one) for label, one in found.accuracies.items() if label not in (EXACT, NOTHING.label)]
    with styled():
        figure = new_figure(1.2 + 0.27 * len(shown))
        axes = figure.add_subplot()
        text = "what noise of nothing does to a seed"
        axes.axvspan(-found.floor, found.floor, color=PALETTE[9], alpha=0.4, linewidth=0.0, label=text)
        axes.axvline(0.0, color=REFERENCE, linewidth=0.9, linestyle="--", label="exact arithmetic")
        for index, (_, one) in enumerate(shown):
            below = [index + 0.25] * len(one.differences)  # else the mean's mark hides them
            axes.plot(one.differences, below, ".", color=PALETTE[4], markersize=5)
            error = one.difference_error
            axes.errorbar(
                statistics.fmean(one.differences),
                index,
                xerr=error if math.isfinite(error) else None,
                fmt="o",
                color=PALETTE[0],
                markerfacecolor=PALETTE[0] if one.resolved(found.floor) else "white",
                capsize=2,
                markersize=4,
                linewidth=1.0,
            )
        text, colour = "mean and standard error; dots: seeds", PALETTE[0]
        axes.errorbar([], [], xerr=[], fmt="o", color=colour, capsize=2, markersize=4, label=text)
        text = "not told from chance"
        axes.plot([], [], "o", color=colour, markerfacecolor="white", markersize=4, label=text)
        axes.set_yticks(range(len(shown)), [name for name, _ in shown])
        axes.invert_yaxis()
        axes.set_xlabel("final loss through the same products, minus exact (nats/byte)")
        axes.set_title(f"Training through {found.system}")
        axes.grid(visible=True, axis="x")
        figure.legend(loc="outside lower center", ncols=2)
        return save(figure, path)
