"""Documentation as Sphinx builds it: `make docs`; pages are Markdown, the reference comes from docstrings."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from heliograph import __version__

project = "Heliograph"
author = "Heliograph contributors"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["tutorials/*"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # some pages begin a section one level down
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc sections of the docstrings say them
napoleon_google_docstring = False
doctest_global_setup = "import warnings; warnings.simplefilter('ignore')"
html_theme = "furo"
html_title = "Heliograph"
html_show_sourcelink = False
html_static_path = []
pygments_style = "friendly"
pygments_dark_style = "monokai"


def setup(app: object) -> None:
    """Show tables (`csv`) as plain text, for which the highlighter has no lexer."""
    from pygments.lexers.special import TextLexer  # noqa: PLC0415 - for Sphinx only

    app.add_lexer("csv", TextLexer)  # type: ignore[attr-defined]
