"""What a forked child does not take over from its parent, in one place.

A child has copies of the parent's connections, which two processes must not use; none of its
threads; and the mutexes that those threads had locked. Whatever keeps such things registers here
what makes them its own.
"""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Callable
from types import MethodType

from .system import at_fork
from .threads import Mutex

__all__ = ["after_fork", "check", "park", "pid", "process"]

_pid = os.getpid()
_process = secrets.token_hex(8)
_mutex = Mutex()
_resets: list[Callable[[], Callable[[], None] | None]] = []
_parked: list[object] = []


def after_fork(reset: Callable[[], None]) -> None:
    """Have ``reset`` called in each forked child; a method only as long as its object lives."""
    kept = weakref.WeakMethod(reset) if isinstance(reset, MethodType) else lambda: reset
    with _mutex:
        _resets[:] = [*(each for each in _resets if each() is not None), kept]


def park(*inherited: object) -> None:
    """Keep what is the parent's as it is for as long as the child lives.

    A connection that the child closes, or collects, is closed for the parent too.
    """
    _parked.extend(inherited)


def pid() -> int:
    """Return the id of this process, as it was at the last `check`: to ask for it takes a call."""
    return _pid


def process() -> str:
    """Return what tells this process from all others, those of other machines too."""
    return _process


def check() -> None:
    """Call what a child has to call, if this is one and Python's own hook was not called.

    As under uWSGI, which runs the hooks only if it is told to (``py-call-uwsgi-fork-hooks``).
    """
    if _pid != os.getpid():
        _in_child()


def _in_child() -> None:
    global _pid, _process
    with _mutex:
        if _pid == os.getpid():  # another thread was faster
            return
        for each in tuple(_resets):
            reset = each()
            if reset is not None:
                reset()
        _process = secrets.token_hex(8)
        _pid = os.getpid()


def _hook() -> None:
    global _mutex
    _mutex = Mutex()  # a thread of the parent's may have been inside
    _in_child()


at_fork(_hook)
