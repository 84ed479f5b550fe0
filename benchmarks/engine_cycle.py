"""Cycles of a lock in memory, timed as it is asked on standard input: one line, one figure.

Run in a process of its own for each engine to be compared: the package is that of PYTHONPATH. Works
with every version of it, so it uses nothing but `lock`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable

CYCLES = 1000


def _locks() -> dict[str, Callable[[], None]]:
    """Return what runs the cycles: of the package, and of a bare lock of Python's."""
    import django
    from django.conf import settings

    backend = "django_distlock.backends.locmem.LocMemBackend"
    settings.configure(
        INSTALLED_APPS=["django_distlock"], DISTLOCKS={"default": {"BACKEND": backend}}
    )
    django.setup()
    from django_distlock import lock

    shared = lock("shared")
    bare = threading.Lock()

    def block() -> None:
        for _ in range(CYCLES):
            with lock("block"):
                pass

    def by_hand() -> None:
        for _ in range(CYCLES):
            lease = shared.acquire()
            assert lease is not None
            lease.release()

    async def cycles() -> None:
        for _ in range(CYCLES):
            async with lock("async"):
                pass

    def baseline() -> None:
        for _ in range(CYCLES):
            bare.acquire()
            bare.release()

    return {
        "with": block,
        "acquire, release": by_hand,
        "async with": lambda: asyncio.run(cycles()),
        "threading.Lock": baseline,
    }


def main() -> None:
    """Answer each line, the name of a cycle, with its microseconds of CPU."""
    cycles = _locks()
    for line in sys.stdin:
        run = cycles[line.strip()]
        began = time.process_time()
        run()
        print(f"{(time.process_time() - began) / CYCLES * 1e6:.3f}", flush=True)


if __name__ == "__main__":
    main()
