"""One buying process: reads jobs from its input, and ends when the input ends.

Started by the demo as ``python -m testproject.shop.demo.worker NUMBER``.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType

import django

from .jobs import GO, Job
from .journal import Journal

Lines = queue.SimpleQueue[str | None]


def main(number: int) -> None:
    """Take jobs until the demo goes away."""
    signal.signal(signal.SIGTERM, _interrupt)
    django.setup()
    lines: Lines = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    with suppress(KeyboardInterrupt):  # leaving its blocks released the lock
        _serve(number, lines)


def _serve(number: int, lines: Lines) -> None:
    from . import work  # the models can be imported only now

    while (line := lines.get()) is not None:
        job = Job.loads(line)
        with closing(Journal(Path(job.journal))) as journal:
            work.warm_up(job, journal)
            if lines.get() == GO:
                work.do(job, journal, number)


def _read(lines: Lines) -> None:
    """Pass the input on; when the demo closes it, or dies, end whatever we are doing."""
    # Without a buffer: a buffered stream that a thread still reads cannot be closed at exit.
    with open(0, "rb", buffering=0, closefd=False) as pipe:
        for line in pipe:
            lines.put(line.decode().strip())
    lines.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not disturb the release
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(int(sys.argv[1]))
