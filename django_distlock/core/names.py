"""Names of locks: what is accepted, the key in the store, and the copy that people read."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections.abc import Callable
from typing import Any

from ..exceptions import InvalidLockError

__all__ = ["LONGEST", "check_label", "check_name", "key_of", "label_of", "readable", "unreadable"]

# Characters of a name, and of metadata as JSON. Each store holds both in one request of the least
# size that is usual: ZooKeeper ends the connection of a client whose request is longer.
LONGEST = 10_000
LONGEST_LABEL = 200


def check_name(name: Any, alias: str | None = None) -> str:
    """Return ``name`` when it can name a lock.

    Any ``str`` of 1 to 10,000 characters can: slashes, spaces, NUL, emoji, lone surrogates.
    Raises InvalidLockError otherwise.
    """
    if not isinstance(name, str):
        raise InvalidLockError(
            f"A lock name must be a str; got {type(name).__name__}. Convert it yourself, "
            "so that two parts of the program cannot convert it differently",
            alias=alias,
        )
    if not name:
        raise InvalidLockError("A lock name must not be empty", name=name, alias=alias)
    if len(name) > LONGEST:
        raise InvalidLockError(
            f"A lock name has at most {LONGEST:,} characters; this one has {len(name):,}. Name the "
            "lock by an id, or by a digest of the text",
            name=name,
            alias=alias,
        )
    return name


def check_label(label: Any, name: str | None = None, alias: str | None = None) -> None:
    """Raise InvalidLockError unless ``label`` is None or a short str that is not empty."""
    if label is not None and not (isinstance(label, str) and 0 < len(label) <= LONGEST_LABEL):
        raise InvalidLockError(
            f"label must be a str of 1 to {LONGEST_LABEL} characters, shared by many locks",
            name=name,
            alias=alias,
        )


def label_of(name: str | Callable[..., str]) -> str:
    """Return what metrics call the locks of a decorator: its template, or its callable's name."""
    if callable(name):
        return f"{getattr(name, '__qualname__', type(name).__qualname__)}()"[-LONGEST_LABEL:]
    return name[:LONGEST_LABEL]


@functools.lru_cache(256)
def key_of(prefix: str, name: str) -> str:
    """Return the key of ``name`` in the store: 64 hexadecimal digits of SHA-256.

    A digest, because stores limit length and characters and some compare without case or accents.
    The prefix's length goes in first, so that prefix ``a`` with name ``b:c`` is not prefix ``a:b``
    with name ``c``.
    """
    head = prefix.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(b"%d:" % len(head))
    digest.update(head)
    digest.update(name.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@functools.lru_cache(256)
def readable(name: str) -> str:
    """Return ``name`` in printable ASCII, for a text column or a terminal.

    PostgreSQL refuses NUL, drivers refuse lone surrogates, and an old MariaDB character set
    refuses emoji. ``unreadable`` gives the name back.
    """
    return name.encode("unicode_escape").decode("ascii")


def unreadable(text: str) -> str:
    """Return the name that ``readable`` wrote; what it cannot have written stays as it is."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[\\nrt])")
_SHORT = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if code in _SHORT:
        return _SHORT[code]
    number = int(code[1:], 16)
    return chr(number) if number <= sys.maxunicode else escape[0]
