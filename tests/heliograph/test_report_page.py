"""Pages of runs: safe with any name, complete, and at work in a real browser."""

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments import sweep as sweep_pages
from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from experiments.sweep import sweep_formulas
from heliograph.catalogue import show
from heliograph.records import COLUMNS
from heliograph.report_page.drawings import Bar, Line, Span, bars, lines, spans
from heliograph.report_page.page import (
    LAWS,
    PART_LAWS,
    Formula,
    Number,
    Page,
    Section,
    Sheet,
    step_formulas,
    write_page,
)
from heliograph.simulation import simulate
from tests.browser import Browser, needs_browser

EVIL = "<script>document.title='gone'</script>"
SMALL = ["--model", "llama-3-8b", "--plan", "tp=8,dp=2,global_batch=16,sequence_length=2048"]
VOID = {"meta", "input"}


def small_page(name=EVIL):
    formula = Formula(label=name, text=name, status="derived", source=name, value="1 s", inputs=("b",))
    other = Formula(label="b", text="as it stands", status="assumed", source=f"{name} & \u2028")
    rows = [[f"{name}{at}", Number(text=f"{at} s", value=float(at), key="a")] for at in (3, 1, 10, 2, 0)]
    rows.append(["none", Number(text="\u2013")])
    stacks = bars(
        name, [Bar(label=name, parts={"x": 1.0, name: 2.0})], {"x": "var(--c0)", name: "var(--c1)"}, unit="s"
    )
    more = lines(name, [Line(label=name, points=[(1.0, 2.0), (2.0, 3.0)])], x=("time", "s"), y=(name, ""))
    wide = spans(
        name, [Span(label=name, low=-850.0, high=3.0), Span(label="n", low=None, high=0.0)], unit="%"
    )
    return Page(
        title=name,
        asked=[(name, name)],
        answers=[name],
        sections=[
            Section(title=name, blocks=[name, Sheet(title=name, heads=(name, "time"), rows=rows)]),
            Section(title="figures", blocks=[[stacks]]),
            Section(title="more", blocks=[more, wide]),
        ],
        formulas={"a": formula, "b": other},
    )


class Elements(HTMLParser):
    """Elements of a page in order; complains of what is not closed."""

    def __init__(self, text):
        super().__init__()
        self.seen, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def of(self, tag):
        return [attributes for name, attributes in self.seen if name == tag]


def test_names_with_markup_stay_text():
    text = small_page().html()
    elements = Elements(text)
    assert len(elements.of("script")) == 2
    assert "document.title=" in text
    assert EVIL not in text


def test_a_page_asks_nothing_of_a_network_and_repeats_no_id():
    text = small_page().html()
    elements = Elements(text)
    assert not [one for _, one in elements.seen if {"src", "srcset", "action"} & set(one)]
    assert all(one["href"].startswith("#") for one in elements.of("a"))
    assert "url(" not in text
    assert "@import" not in text
    ids = [one["id"] for _, one in elements.seen if "id" in one]
    assert len(ids) == len(set(ids))
    named = [one[key] for _, one in elements.seen for key in ("aria-labelledby",) if key in one]
    assert set(named) <= set(ids)


def test_a_report_is_an_html_file(tmp_path, capsys):
    assert main(["compare", *SMALL, "--report", str(tmp_path / "report.pdf")]) == BAD_INPUT
    assert "ends in .html" in capsys.readouterr().err


def test_every_number_of_a_record_has_a_law():
    records = [simulate(name, *SMALL[1::2]).record() for name in ("photonic_ocs", "gpu_packet:fp8")]
    left = {"schema", "seed", "accelerators"}  # no results
    for record in records:
        numbers = {key for key in COLUMNS if isinstance(record.get(key), int | float)}
        assert numbers - left <= set(LAWS)


@pytest.mark.parametrize("name", ["photonic_ocs", "gpu_packet:fp8"])
def test_laws_name_numbers_and_parameters_that_are_there(name):
    result = simulate(name, *SMALL[1::2])
    formulas = step_formulas(result.record(), show(result.system).parameters)
    for one in formulas.values():
        assert set(one.follows) | set(one.inputs) <= set(formulas)
    without = {
        key for key, one in formulas.items() if key.startswith(f"{name}/energy_per") and not one.inputs
    }
    assert without <= {f"{name}/energy_per_token_j"}


def test_patterns_of_parts_are_used():
    assert all(law.inputs for law in PART_LAWS.values())


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("compared")
    path = directory / "report.html"
    words = ["compare", *SMALL, "--systems", "gpu_packet:fp8,photonic_ocs"]
    assert main([*words, "--out", str(directory / "run"), "--report", str(path)]) == 0
    return path


@needs_browser
def test_markup_in_names_does_nothing_in_a_browser(browser, tmp_path):
    browser.open(write_page(small_page(), tmp_path / "evil.html"))
    browser.run("for (const one of document.querySelectorAll('button')) one.click(); return 1;")
    assert browser.run("return document.title") == EVIL
    assert browser.run("return document.querySelectorAll('main script').length") == 0
    assert browser.complaints == []


@needs_browser
def test_tables_sort_and_filter(browser, tmp_path):
    browser.open(write_page(small_page("n"), tmp_path / "small.html"))
    rows = "[...document.querySelectorAll('tbody tr:not(.unfolded)')].filter(row => !row.hidden)"
    times = f"return {rows}.map(row => row.cells[1].textContent)"
    heads = "th:nth-child(2) .sort"
    browser.click(heads)
    assert browser.run(times) == ["0 s", "1 s", "2 s", "3 s", "10 s", "\u2013"]
    browser.click(heads)
    assert browser.run(times) == ["10 s", "3 s", "2 s", "1 s", "0 s", "\u2013"]
    assert (
        browser.run("return document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"
    )
    browser.click("input[type=search]")
    browser.ask("Input.insertText", text="n1")
    assert browser.run(times) == ["10 s", "1 s"]
    assert browser.run("return document.querySelector('.count').textContent") == "2 of 6 rows"
    assert browser.complaints == []


@needs_browser
def test_a_number_unfolds_down_to_its_parameters_by_mouse_and_by_keys(browser, compared):
    browser.open(compared)
    browser.click(".why")
    told = "return document.querySelector('.unfolded')?.textContent ?? ''"
    assert "simulator/engine" in browser.run(told)
    browser.click(".unfolded .why")
    assert re.search(r"gpu\.chip\.clock_hz = .*NVIDIA", browser.run(told))
    browser.run("document.querySelector('.why').focus(); return 1")
    browser.key("Enter", "\r")
    assert browser.run(told) == ""
    assert browser.run("return document.querySelector('.why').getAttribute('aria-expanded')") == "false"
    assert browser.complaints == []
    assert browser.fetched == []


@needs_browser
def test_marks_of_figures_tell_values_on_hover_and_by_arrows(browser, compared):
    browser.open(compared)
    tip = "const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.textContent"
    assert browser.run(tip) == ""
    browser.click("svg .mark")
    first = browser.run(tip)
    assert re.search(r"gpu_packet:fp8, products: [\d.,]+ m?s, [\d.]+ %", first)
    browser.key("ArrowRight")
    assert browser.run(tip) not in ("", first)
    browser.key("Escape")
    assert browser.run(tip) == ""


@needs_browser
@pytest.mark.parametrize("look", [{}, {"dark": True}, {"width": 360, "height": 740, "touch": True}])
def test_a_page_is_readable_in_each_look(browser, compared, look):
    browser.open(compared, **look)
    assert browser.complaints == []
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    every = "[...document.querySelectorAll('button, input, [tabindex]')]"
    named = "one.textContent.trim() || one.ariaLabel || one.labels?.length"
    unnamed = f"return {every}.filter(one => !({named})).length"
    assert browser.run(unnamed) == 0
    levels = browser.run("return [...document.querySelectorAll('h1, h2, h3')].map(one => +one.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    ink, paper, soft = (
        browser.run(f"return getComputedStyle(document.querySelector('{one}')).{what}")
        for one, what in (("body", "color"), ("body", "backgroundColor"), (".count", "color"))
    )
    assert contrast(ink, paper) > 7
    assert contrast(soft, paper) > 4.5


@needs_browser
def test_a_page_prints(browser, compared):
    browser.open(compared)
    printed = browser.printed()
    assert printed.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 8


PAGES = {
    "compare": ["compare", *SMALL, "--systems", "gpu_packet:fp8,photonic_ocs"],
    "search": ["search", "--model", "gpt2", "--accelerators", "8", "--top", "1"],
    "sweep": ["sweep", *SMALL, "--workers", "1", "--set", "laser_power_w=100 mW,400 mW"],
    "core": ["core", "homodyne"],
}


@pytest.fixture(scope="module", params=PAGES)
def page(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert main([*PAGES[request.param], "--report", str(path)]) == 0
    return path


@needs_browser
@pytest.mark.skipif("AXE" not in os.environ, reason="AXE names no axe.min.js; accessibility is not audited")
@pytest.mark.parametrize("look", [{}, {"dark": True}, {"width": 360, "height": 740, "touch": True}])
def test_axe_finds_nothing(browser, page, look):
    browser.open(page, **look)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true; return 1")
    browser.click(".why")
    browser.ask("Runtime.evaluate", expression=Path(os.environ["AXE"]).read_text())
    found = "[r.passes.length, r.violations.map(v => [v.id, v.nodes[0].html])]"
    script = f"axe.run().then(r => JSON.stringify({found}))"
    told = browser.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
    passed, violations = json.loads(told["result"]["value"])
    assert passed > 10
    assert violations == []


def contrast(one, other):
    """Return the contrast of two colours as the WCAG defines it."""
    light = sorted(map(luminance, (one, other)))
    return (light[1] + 0.05) / (light[0] + 0.05)


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.slow
@needs_browser
def test_the_page_of_a_search_unfolds_every_number_and_complains_of_nothing(browser, tmp_path):
    path = tmp_path / "report.html"
    words = ["search", "--model", "gpt2", "--accelerators", "8", "--fabrics", "rails,torus", "--top", "1"]
    assert main([*words, "--report", str(path)]) == 0
    browser.open(path)
    assert browser.run("return document.querySelectorAll('.why').length") > 20
    browser.run("for (const one of document.querySelectorAll('.why')) one.click(); return 1")
    missing = "[...document.querySelectorAll('.unfolded')].filter(one => !one.textContent.includes('Source'))"
    assert browser.run(f"return {missing}.length") == 0
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints == []


@needs_browser
def test_the_page_of_a_sweep_tells_its_points_and_those_that_fail(browser, tmp_path):
    path = tmp_path / "report.html"
    words = ["sweep", *SMALL, "--store", str(tmp_path / "points.db"), "--workers", "1"]
    words += ["--set", "laser_power_w=100 mW,400 mW", "--set", "wall_plug_efficiency=0.05,0.1,2"]
    assert main([*words, "--report", str(path)]) == 0
    browser.open(path)
    answer = browser.run("return document.querySelector('.answer').textContent")
    assert "2 of 6 points have no result" in answer
    assert "Least energy" in answer
    assert "J/token)" in browser.run("return document.querySelector('svg').textContent")
    assert browser.run("return document.querySelectorAll('svg .mark').length") == 8
    browser.click("td .why")
    assert "set by the sweep" in browser.run("return document.querySelector('.unfolded').textContent")
    browser.run("for (const one of document.querySelectorAll('.why')) one.click(); return 1")
    assert browser.complaints == []


def test_points_that_are_told_alike_have_no_best():
    rows = [{"tdp_w": 100.0 * at, "step_time_s": 1.0 + 1e-9 * at, "energy_per_token_j": at} for at in (3, 2)]
    time, energy, _ = sweep_pages.answers_of(rows, rows, {"tdp_w": ()})
    assert time == "All points have the same time: 1.00 s."
    assert energy == "Least energy: 2.00 J/token at tdp_w 200 W."


@pytest.mark.parametrize("points", [5, 400])
def test_numbers_of_many_points_unfold_by_their_column(points):
    rows = [{"system": "gpu_packet", "tdp_w": 100.0 + at, "step_time_s": 1.0 + at} for at in range(points)]
    parameters = show("gpu_packet").parameters
    formulas = sweep_formulas(rows, {"tdp_w": ()}, {"step_time_s": "time"}, "gpu_packet", parameters)
    owners = {key.partition("/")[0] for key in formulas} - {"gpu_packet"}
    assert owners == ({"every point"} if points > 300 else {f"point {at + 1}" for at in range(points)})
    assert "gpu_packet/gpu.chip.tdp_w" not in formulas


@pytest.mark.parametrize(
    "times_s",
    [
        (33.81e-3, 33.81e-3 * (1.0 + 2e-16), 33.81e-3 * (1.0 + 4e-16), 33.81e-3),
        (66.2690e-3, 66.2752e-3, 66.2793e-3, 66.2814e-3),
        (1.0, 2.0, 3.0, 4.0),
    ],
)
def test_ticks_of_an_axis_are_told_apart(times_s):
    points = [(one, float(place)) for place, one in enumerate(times_s)]
    drawn = lines("title", [Line(label="a", points=points)], x=("time", "s"), y=("place", "")).svg
    for side in ("middle", "end"):
        texts = re.findall(f'class="tick {side}">([^<]*)<', drawn)
        assert len({float(one) for one in texts}) == len(texts) >= 3


def test_a_rate_has_a_prefix_on_an_axis_as_in_a_table():
    points = [(20e9, 3.0), (60e9, 2.5), (100e9, 2.0)]
    drawn = lines("title", [Line(label="a", points=points)], x=("bandwidth", "B/s"), y=("time", "s")).svg
    assert "bandwidth (GB/s)" in drawn
    assert ">75<" in drawn
