"""What not every system has: on Windows there is no fork, no process group, and few signals.

All that asks for these asks here, so that the package can be imported, and used, everywhere.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

__all__ = [
    "GROUPS",
    "at_fork",
    "ending_with_us",
    "in_foreground",
    "lives",
    "send_to_group",
    "signals",
    "user_id",
]

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


def ending_with_us(command: Sequence[str]) -> list[str]:
    """Return ``command`` such that it is killed when this process ends before it.

    On Linux, by setpriv(1) of util-linux: a call of our own between fork and exec would not be safe
    beside other threads. Elsewhere it is as it was; so it is on a thread beside the main one, whose
    end would count as ours.
    """
    main = threading.current_thread() is threading.main_thread()
    if sys.platform != "linux" or not main or (program := shutil.which("setpriv")) is None:
        return list(command)
    asked = [program, "--help"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if "--pdeathsig" not in said.stdout:  # that of BusyBox
        return list(command)
    return [program, "--pdeathsig", "KILL", "--", *command]


def user_id() -> str:
    """Return the number of the user's account, where users have any."""
    return f"uid {os.getuid()}" if hasattr(os, "getuid") else "an unknown user"
