"""Where the documentation is published: what is installed has no copy of it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SITE", "page"]

SITE: Final = "https://django-distlock.example/"
"""The address of the site; this one, which is reserved for examples, is replaced on publishing."""


def page(name: str, heading: str = "") -> str:
    """Return the address of a page of the documentation, or of one heading on it.

    Args:
        name: The path of the page below ``docs/``, without its suffix.
        heading: The text of the heading.
    """
    anchor = "-".join(re.findall(r"[a-z0-9]+", heading.lower()))
    return f"{SITE}{name}.html" + (f"#{anchor}" if anchor else "")
