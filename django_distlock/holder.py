"""Describing who takes a lock, for the people who look at it later."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from .values import Holder, Note

__all__ = ["this_note", "this_task"]

_HERE = str(Path(__file__).parent) + os.sep
_LOOPS = tuple(os.sep.join(("", package, "")) for package in ("asyncio", "asgiref"))
_HOST = socket.gethostname()


@functools.lru_cache(1024)
def _is_inside(file: str) -> bool:
    """Tell whether a file is of this package, or of the event loop's code."""
    if file.startswith(_HERE) and f"{os.sep}testing{os.sep}" not in file:
        return True
    return any(part in file for part in _LOOPS)


def _site() -> tuple[str, int, str]:
    """Return file, line and function of the nearest caller outside of what `_is_inside` tells."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not _is_inside(code.co_filename):
            return code.co_filename, frame.f_lineno, code.co_qualname
        frame = frame.f_back
    return "", 0, ""


def this_task() -> asyncio.Task[Any] | None:
    """Return the current task, if an event loop runs on this thread."""
    loop = asyncio._get_running_loop()  # what get_running_loop() asks, and no error to be caught
    return None if loop is None else asyncio.current_task(loop)


def this_note(metadata: Mapping[str, Any] | None) -> str:
    """Return the note of the calling process, thread, task and place in the code.

    Raises TypeError or ValueError when JSON cannot hold the metadata.
    """
    task = this_task()
    name = "" if task is None else task.get_name()
    who = (os.getpid(), threading.current_thread().name, name, *_site())
    return Note(_holder(*who), metadata).dumps() if metadata else _plain_note(*who)


def _holder(pid: int, thread: str, task: str, file: str, line: int, function: str) -> Holder:
    site = f"{file}:{line} {function}" if file else ""
    return Holder(host=_HOST, pid=pid, thread=thread, task=task, site=site)


@functools.lru_cache(1024)
def _plain_note(*who: Any) -> str:
    return Note(_holder(*who)).dumps()
