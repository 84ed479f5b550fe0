"""How Sphinx makes the site of these pages: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

project = "django-distlock"
author = "django-distlock contributors"
project_copyright = "django-distlock contributors"
extensions = ["myst_parser", "sphinxcontrib.mermaid", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["_build", "*.py"]
# The statements have parameters of drivers, which the lexers of SQL do not know. Members have
# headings of one level, whatever they stand under.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

html_theme = "furo"
html_title = "django-distlock"
html_copy_source = False

SECTION = re.compile(r"^\*\*(.+?)\*\*", re.MULTILINE)
ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>$', re.MULTILINE)
PAGE = re.compile(r"^- \[[^\]]+\]\(([\w./-]+)\.md\)", re.MULTILINE)


def _adapt(app: Any, name: str, source: list[str]) -> None:
    """Say in MyST's words what plain Markdown has none for: anchors, and the site's contents."""
    if name == "changelog":
        source[0] = (HERE.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    source[0] = ANCHOR.sub(r"(\1)=", source[0])
    if name != root_doc:
        return
    _, *parts = SECTION.split(source[0])
    for caption, text in zip(parts[::2], parts[1::2], strict=True):
        pages = "\n".join(PAGE.findall(text))
        title = caption.strip("\"'“”")
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


def setup(app: Any) -> None:
    """Connect what is above to Sphinx."""
    app.connect("source-read", _adapt)
