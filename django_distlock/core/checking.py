"""Messages of the system checks: each hint ends with the address that explains its id."""

from __future__ import annotations

from django.core.checks import Error, Info, Warning

from .documentation import page

__all__ = ["error", "info", "warning"]


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
