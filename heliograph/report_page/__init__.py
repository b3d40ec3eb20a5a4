"""One HTML page of a run: what came out first, tables, figures, and where each number comes from.

`page` has the parts of a page and writes them, `drawings` its figures in SVG, `provenance` the formula and
the inputs of every column of a step's record. The page needs no network: style and script stand in it.
"""

from heliograph.report_page.drawings import Bar, Line, Span, bars, lines, spans
from heliograph.report_page.page import (
    Cell,
    Drawing,
    Formula,
    Number,
    Page,
    Section,
    Sheet,
    check_page_path,
    parameter_formulas,
    sheet_of,
    write_page,
)

__all__ = [
    "Bar",
    "Cell",
    "Drawing",
    "Formula",
    "Line",
    "Number",
    "Page",
    "Section",
    "Sheet",
    "Span",
    "bars",
    "check_page_path",
    "lines",
    "parameter_formulas",
    "sheet_of",
    "spans",
    "write_page",
]
