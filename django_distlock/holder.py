"""Describing who takes a lock, for the people who look at it later."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from pathlib import Path

from .values import Holder

__all__ = ["this_holder"]

_HERE = str(Path(__file__).parent) + os.sep
_SKIPPED = (_HERE, os.sep.join(("", "asyncio", "")), os.sep.join(("", "asgiref", "")))
_HOST = socket.gethostname()


def _site() -> str:
    """Return file:line of the nearest caller outside this package, and the event loop's code."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        inside = code.co_filename.startswith(_HERE) and f"{os.sep}testing{os.sep}" not in (
            code.co_filename
        )
        if not inside and not any(part in code.co_filename for part in _SKIPPED[1:]):
            name = getattr(code, "co_qualname", code.co_name)
            return f"{code.co_filename}:{frame.f_lineno} {name}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""


def this_holder() -> Holder:
    """Return the calling process, thread, task and place in the code."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return Holder(
        host=_HOST,
        pid=os.getpid(),
        thread=threading.current_thread().name,
        task="" if task is None else task.get_name(),
        site=_site(),
    )
