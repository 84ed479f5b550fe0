"""The aliases that a command is about: `--using`, `--all`."""

from __future__ import annotations

import argparse

from django.core.management.base import CommandError

from ..backends.base import BaseLockBackend
from ..exceptions import InvalidLockBackendError
from ..handler import locks
from ..inspection import open_all

__all__ = ["add_choice", "open_aliases"]


def add_choice(parser: argparse.ArgumentParser, using: str, everything: str) -> None:
    """Add `--using` and `--all`, each with its help."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--using", action="append", metavar="ALIAS", help=using)
    which.add_argument("--all", action="store_true", help=everything)


def open_aliases(
    using: str | list[str] | None,
) -> tuple[dict[str, BaseLockBackend], dict[str, str]]:
    """Return the backends of all aliases, and why those wanted could not be opened.

    ``using`` are the aliases wanted; None: all. Raises CommandError for one that is not there.
    """
    wanted = [using] if isinstance(using, str) else using
    try:
        known = list(locks)
    except InvalidLockBackendError as error:
        raise CommandError(str(error)) from error
    if unknown := [alias for alias in wanted or () if alias not in known]:
        raise CommandError(
            f"DISTLOCKS has no alias {', '.join(map(repr, unknown))}. "
            f"It has: {', '.join(map(repr, known))}."
        )
    opened, broken = open_all()
    return opened, {alias: why for alias, why in broken.items() if not wanted or alias in wanted}
