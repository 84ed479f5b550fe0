"""Showing text that came from outside in a message or a log line."""

from __future__ import annotations

__all__ = ["shown"]

MOST = 200


def shown(text: str, most: int = MOST) -> str:
    """Return ``text`` on one line, in printable characters, and ``most`` of them at most.

    What stands in a store may be foreign or hostile: line breaks forge log lines, escape sequences
    command a terminal, lone surrogates break whoever encodes the message.
    """
    cut = text[:most]  # first: it may be huge
    if not cut.isprintable():
        cut = "".join(map(_character, cut))
    return cut if len(text) <= most and len(cut) <= most else f"{cut[: most - 1]}…"


def _character(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
