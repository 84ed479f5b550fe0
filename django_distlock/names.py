"""Names of locks: what is accepted, the key in the store, and the copy that people read."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from typing import Any

from .exceptions import InvalidLockError

__all__ = ["check_name", "key_of", "readable", "unreadable"]


def check_name(name: Any, alias: str | None = None) -> str:
    """Return ``name`` when it can name a lock.

    Any non-empty ``str`` can: long ones, slashes, spaces, NUL, emoji, lone surrogates.
    Raises InvalidLockError otherwise.
    """
    if not isinstance(name, str):
        raise InvalidLockError(
            f"A lock's name is a str, not {type(name).__name__}: convert it yourself, "
            "so that two parts of the program cannot convert it differently",
            alias=alias,
        )
    if not name:
        raise InvalidLockError("A lock's name is not empty", name=name, alias=alias)
    return name


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
    return _ESCAPE.sub(_character, text)


_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[\\nrt])")
_SHORT = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    if code in _SHORT:
        return _SHORT[code]
    number = int(code[1:], 16)
    return chr(number) if number <= sys.maxunicode else escape[0]
