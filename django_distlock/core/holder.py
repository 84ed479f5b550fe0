"""The description of a lock's holder, for people."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from . import fork
from .values import Holder, HolderInfo

__all__ = ["NOWHERE", "Caller", "Place", "place_of", "taken_by", "this_note", "this_task"]

Place = tuple[str, int, str]
"""A file, a line of it, and the function there."""

NOWHERE: Final[Place] = ("", 0, "")

LONGEST_WORD = 500  # characters of a name that the program gives a thread, a task, a user

_HERE = str(Path(__file__).parents[1]) + os.sep
_LOOPS = tuple(os.sep.join(("", package, "")) for package in ("asyncio", "asgiref"))
_HOST = socket.gethostname()


@dataclass(frozen=True, slots=True)
class Caller:
    """For whom a lock is taken by a decorator, which the frames above do not tell: Django's own."""

    place: Place = NOWHERE
    view: str = ""
    user: str = ""


_caller: ContextVar[Caller | None] = ContextVar("django_distlock_caller", default=None)


@contextmanager
def taken_by(caller: Caller | None) -> Iterator[None]:
    """Have the next lock that is taken in the block show ``caller``.

    Only that one: a receiver of a signal may take a lock for itself meanwhile.
    """
    _caller.set(caller)
    try:
        yield
    finally:
        _caller.set(None)


def place_of(function: object) -> Place:
    """Return where a function is written, below its decorators."""
    while isinstance(function, functools.partial):
        function = function.func
    below: Any = inspect.unwrap(function) if callable(function) else function
    code = getattr(below, "__code__", None)
    if code is None:
        return NOWHERE
    return code.co_filename, code.co_firstlineno, code.co_qualname


def _is_inside(file: str) -> bool:
    """Return whether a file is of this package, or of the event loop's code."""
    if file.startswith(_HERE) and f"{os.sep}testing{os.sep}" not in file:
        return True
    return any(part in file for part in _LOOPS)


_inside: dict[str, bool] = {}  # what was asked already: a program has so many files


def _site() -> Place:
    """Return file, line and function of the nearest caller outside of what `_is_inside` tells."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        inside = _inside.get(file)
        if inside is None:
            inside = _inside[file] = _is_inside(file)
        if not inside:
            return file, frame.f_lineno, code.co_qualname
        frame = frame.f_back
    return NOWHERE


def this_task() -> asyncio.Task[Any] | None:
    """Return the current task, if an event loop runs on this thread."""
    loop = asyncio._get_running_loop()  # what get_running_loop() asks, and no error to be caught
    return None if loop is None else asyncio.current_task(loop)


def this_note(
    metadata: Mapping[str, Any] | None,
    *,
    show_caller: bool = True,
    ttl: float | None = None,
    renewed: bool = True,
    min_hold: float | None = None,
    shared: bool = False,
    limit: int | None = None,
) -> str:
    """Return the holder info of the calling process, thread, task or view, user and line of code.

    The last two are left out without ``show_caller``; the others are as `HolderInfo` has them.
    Raises TypeError or ValueError when JSON cannot hold the metadata.
    """
    task = this_task()
    name = "" if task is None else task.get_name()
    caller = _caller.get()
    if caller is None:
        view, user, place = "", "", _site() if show_caller else NOWHERE
    else:
        _caller.set(None)
        view, user, place = caller.view, "", NOWHERE
        if show_caller:
            user, place = caller.user, caller.place if caller.place[0] else _site()
    who = (fork.pid(), threading.current_thread().name, name, view, user, place)
    if metadata:
        return HolderInfo(_holder(*who), metadata, ttl, renewed, min_hold, shared, limit).dumps()
    return _plain_note(who, ttl, renewed, min_hold, shared, limit)


def _holder(pid: int, thread: str, task: str, view: str, user: str, place: Place) -> Holder:
    file, line, function = place
    site = f"{file}:{line} {function}" if file else ""
    thread, task, view, user = (word[:LONGEST_WORD] for word in (thread, task, view, user))
    return Holder(_HOST, pid, thread, task, site, view, user)


@functools.lru_cache(1024)
def _plain_note(
    who: tuple[int, str, str, str, str, Place],
    ttl: float,
    renewed: bool,
    min_hold: float | None,
    shared: bool,
    limit: int | None,
) -> str:
    return HolderInfo(_holder(*who), {}, ttl, renewed, min_hold, shared, limit).dumps()
