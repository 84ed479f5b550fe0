"""Reading the Markdown pages: code blocks, headings and links, by the few rules that we write by.

A fenced block begins at the margin and names a language; words after it are for the tests
(``python file=sale.py``, ``text output``). ``python settings`` are settings for a store that the
examples do not have: they are judged, not used. ``python parsed`` is not run. A comment that begins
with ``<!-- run`` holds Python which is run with the examples and not shown: what they need, and
what is asserted of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LANGUAGES", "ROOT", "Block", "Page", "PageError", "pages"]

ROOT = Path(__file__).parents[2]

LANGUAGES = ("python", "shell", "text", "sql", "ini", "mermaid")
"""What a block may be, so that none escapes the tests by a misspelt language."""

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>.*)$")
_HEADING = re.compile(r"^(#{1,6}) +(.*?) *#*$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(<?([^)>\s]+)>?\)|!\[[^\]]*\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'<a (?:id|name)="([^"]+)">')
_CODE = re.compile(r"`+[^`]*`+")


class PageError(Exception):
    """A page is not written by the rules above."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block or a hidden comment; ``line`` is that of its first line of text."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int
    hidden: bool = False

    @property
    def file(self) -> str | None:
        """The file that the reader is told to write the block to, if any."""
        return next((w.removeprefix("file=") for w in self.words if w.startswith("file=")), None)


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file."""

    path: Path

    def __str__(self) -> str:
        ours = self.path.is_relative_to(ROOT)
        return str(self.path.relative_to(ROOT)) if ours else self.path.name

    @property
    def text(self) -> str:
        """What stands in the file."""
        return self.path.read_text(encoding="utf-8")

    def blocks(self) -> list[Block]:
        """Return the fenced blocks and hidden examples, in order."""
        return [part for part in self._parts() if isinstance(part, Block)]

    def prose(self) -> list[tuple[int, str]]:
        """Return the lines outside of blocks, with their numbers."""
        return [part for part in self._parts() if not isinstance(part, Block)]

    def headings(self) -> list[str]:
        """Return the headings' texts."""
        found = (_HEADING.match(line) for _, line in self.prose())
        return [match[2] for match in found if match]

    def anchors(self) -> set[str]:
        """Return the anchors that a link may name, as GitHub makes them from the headings."""
        slugs: list[str] = []
        for heading in self.headings():
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            again = sum(1 for known in slugs if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", known))
            slugs.append(f"{slug}-{again}" if again else slug)
        return {*slugs, *_ANCHOR.findall(self.text)}

    def links(self) -> list[tuple[int, str]]:
        """Return the targets of links and pictures, with their lines."""
        lines = [""] * len(self.text.splitlines())
        for number, line in self.prose():
            lines[number - 1] = _CODE.sub("", line)
        text = "\n".join(lines)
        return [
            (text.count("\n", 0, found.start()) + 1, found[1] or found[2])
            for found in _LINK.finditer(text)
        ]

    def _parts(self) -> Iterator[Block | tuple[int, str]]:
        lines = iter(enumerate(self.text.splitlines(), start=1))
        for number, line in lines:
            if line.startswith("<!-- run"):
                if line.strip() != "<!-- run":
                    raise PageError(f"{self}:{number}: the code begins on the next line")
                yield Block("python", (), _until("-->", lines, self, number), number + 1, True)
                continue
            fence = _FENCE.match(line)
            if fence is None:
                yield number, line
                continue
            language, *words = fence["info"].split() or [""]
            if fence["indent"] or language not in LANGUAGES:
                raise PageError(
                    f"{self}:{number}: a block begins at the margin and is one of "
                    f"{', '.join(LANGUAGES)}, not {line!r}"
                )
            text = _until(fence["ticks"], lines, self, number)
            yield Block(language, tuple(words), text, number + 1)


def _until(end: str, lines: Iterator[tuple[int, str]], page: Page, begun: int) -> str:
    text: list[str] = []
    for _, line in lines:
        if line.rstrip() == end:
            return "\n".join([*text, ""])
        text.append(line)
    raise PageError(f"{page}:{begun}: what begins here has no end {end!r}")


def pages() -> list[Page]:
    """Return the README and every page under docs/."""
    return [Page(ROOT / "README.md"), *map(Page, sorted((ROOT / "docs").rglob("*.md")))]
