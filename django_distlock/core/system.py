"""What not every system has: on Windows there is no fork, no process group, and few signals.

All that asks for these asks here, so that the package can be imported, and used, everywhere.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

__all__ = ["GROUPS", "at_fork", "in_foreground", "lives", "send_to_group", "signals", "user_id"]

GROUPS: Final = hasattr(os, "killpg")
"""Whether processes have groups, and a terminal one in its foreground."""


def at_fork(hook: Callable[[], None]) -> None:
    """Have ``hook`` called in each forked child, where there are any."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=hook)


def signals(*names: str) -> tuple[int, ...]:
    """Return the signals of these names that the system has."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


def lives(pid: int) -> bool:
    """Return whether a process of this machine lives; True where that cannot be asked."""
    if not GROUPS:
        return True  # there the signal 0 is Ctrl-C
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def send_to_group(pid: int, number: int) -> None:
    """Send a signal to the group of processes that ``pid`` leads."""
    os.killpg(pid, number)


def in_foreground() -> bool:
    """Return whether this program has the terminal, and what it types as Ctrl-C."""
    if not GROUPS:
        return True  # a console sends Ctrl-C to all its programs
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # no terminal
        return False


def user_id() -> str:
    """Return the number of the user's account, where users have any."""
    return f"uid {os.getuid()}" if hasattr(os, "getuid") else "an unknown user"
