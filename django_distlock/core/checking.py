"""Where the documentation is published, and the messages of system checks, which lead there."""

from __future__ import annotations

import re
from typing import Final

from django.core.checks import Error, Info, Warning

__all__ = ["SITE", "error", "info", "page", "warning"]

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


def error(text: str, *, hint: str, id: str, obj: object = None) -> Error:
    """Return an error, with the remedy and the address of its section in the reference."""
    return Error(text, hint=_with_page(hint, id), obj=obj, id=id)


def info(text: str, *, hint: str, id: str) -> Info:
    """Return what is worth knowing, with the address of its section in the reference."""
    return Info(text, hint=_with_page(hint, id), id=id)


def warning(text: str, *, hint: str, id: str, obj: object = None) -> Warning:
    """Return a warning, with the remedy and the address of its section in the reference."""
    return Warning(text, hint=_with_page(hint, id), obj=obj, id=id)


def _with_page(hint: str, id: str) -> str:
    return f"{hint} See {page('reference/checks', id)}"
