"""The defects, read from the file that has them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Defect", "defects"]


@dataclass(frozen=True, slots=True)
class Defect:
    """One edit of one file, and what pytest is given to find it."""

    what: str
    file: str
    old: str
    new: str
    tests: list[str]
    stores: str


def defects() -> list[Defect]:
    """Return all of them."""
    text = Path(__file__).with_name("defects.toml").read_text()
    return [Defect(**each) for each in tomllib.loads(text)["defect"]]
