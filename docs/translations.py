#!/usr/bin/env python
"""Say which Chinese pages are behind their English page.

A Chinese page links to its English one in its first lines, and says at its end, as a digest, which
text of it was translated.

    python docs/translations.py                says which pages are behind; exit code 1 if any is
    python docs/translations.py --done PAGE    notes that a page is up to date now
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parent

_ENGLISH = re.compile(r"\[English\]\((?P<path>[^)]+)\)")
_MARK = re.compile(r"\n<!-- translated: (?P<digest>[0-9a-f]{12}) -->\n\Z")


def translated(docs: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each Chinese page, and its English one."""
    for page in [docs.parent / "README.zh-CN.md", *sorted((docs / "zh").glob("*.md"))]:
        link = _ENGLISH.search(page.read_text(encoding="utf-8"))
        if link is None:
            raise SystemExit(f"{page}: it has no link [English](...) to its English page")
        yield page, (page.parent / link["path"]).resolve()


def digest(page: Path) -> str:
    """Return what stands for a page's text."""
    return hashlib.sha256(page.read_bytes()).hexdigest()[:12]


def behind(docs: Path) -> list[tuple[Path, Path]]:
    """Return the Chinese pages whose English one has changed since, with that one."""
    found = []
    for page, english in translated(docs):
        mark = _MARK.search(page.read_text(encoding="utf-8"))
        if mark is None or mark["digest"] != digest(english):
            found.append((page, english))
    return found


def done(page: Path, english: Path) -> None:
    """Note that a page is up to date."""
    text = _MARK.sub("\n", page.read_text(encoding="utf-8")).rstrip()
    mark = f"<!-- translated: {digest(english)} -->"
    page.write_text(f"{text}\n\n{mark}\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Carry out what was asked for, and return the exit code."""
    root = DOCS.parent
    match arguments:
        case []:
            late = behind(DOCS)
            for page, english in late:
                names = page.relative_to(root), english.relative_to(root)
                sys.stdout.write("{} is behind {}\n".format(*names))
            return 1 if late else 0
        case ["--done", name]:
            for page, english in translated(DOCS):
                if page == (Path.cwd() / name).resolve():
                    done(page, english)
                    return 0
            sys.stderr.write(f"{name} is no Chinese page\n")
            return 2
    sys.stderr.write(__doc__ or "")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
