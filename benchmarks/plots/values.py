"""What is read of a run: numbers that are numbers, and texts that can stand anywhere."""

from __future__ import annotations

from typing import Any

__all__ = ["number", "quartiles", "said"]

LONGEST = 60  # characters of one text
MOST = 1e15


def said(text: object) -> str:
    """Return a text that can stand in any file: short, and of letters that the font has."""
    short = str(text) if len(str(text)) <= LONGEST else f"{str(text)[: LONGEST - 1]}…"
    plain = "".join(each if each == "…" or _printed(each) else "?" for each in short)
    return f" {plain}" if plain.startswith("_") else plain or "?"  # else no legend would have it


def _printed(character: str) -> bool:
    return character.isprintable() and ord(character) < 0x250


def number(of: Any, key: str) -> float | None:
    """Return a figure, if it is one."""
    got = of.get(key) if isinstance(of, dict) else None
    if isinstance(got, bool) or not isinstance(got, int | float):
        return None
    return float(got) if abs(got) <= MOST else None  # which a NaN is not, either


def quartiles(of: Any, name: str, middle: float) -> tuple[float, float]:
    """Return the lower and the upper one; the middle for each that is not known."""
    cycle = of.get(name) if isinstance(of, dict) else None
    if not isinstance(cycle, list) or len(cycle) != 2:
        return middle, middle
    known = dict(zip(("low", "high"), cycle, strict=True))
    low, high = number(known, "low"), number(known, "high")
    return middle if low is None else low, middle if high is None else high
