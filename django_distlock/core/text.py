"""Showing text that came from outside in a message or a log line."""

from __future__ import annotations

__all__ = ["duration", "shown"]

MOST = 200


def shown(text: str, most: int = MOST) -> str:
    """Return ``text`` on one line, in printable characters, and ``most`` of them at most.

    What is in a store may be foreign or hostile: line breaks forge log lines, escape sequences
    command a terminal, lone surrogates cannot be encoded.
    """
    cut = text[:most]  # first: it may be huge
    if not cut.isprintable():
        cut = "".join(map(_character, cut))
    return cut if len(text) <= most and len(cut) <= most else f"{cut[: most - 1]}…"


def duration(seconds: float) -> str:
    """Return seconds for people: ``4s``, ``2m05s``, ``3h07m``, ``5d02h``."""
    whole = max(0, int(seconds))
    for unit, size, smaller, part in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02}{smaller}"
    return f"{whole}s"


def _character(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
