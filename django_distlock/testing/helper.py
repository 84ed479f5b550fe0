"""The program of the other processes of the contract suite: ``python -m ... DATABASES SOCKET``.

It is a nursery, which forks a process for each WORLD and ALIAS that it is told. That one reads a
request a line, as JSON, and answers with a line. It ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.values import LockInfo
    from ..lease import Lease

__all__ = ["main"]


class Helper:
    """Carries out requests by one actor; each method is a request."""

    def __init__(self, actor: Any, alias: str) -> None:
        self._actor = actor
        self._alias = alias
        self._leases: dict[str, list[Lease]] = {}

    async def acquire(self, name: str, wait: float, options: dict[str, Any]) -> int | None:
        """Acquire; answer with the token, or None."""
        from .. import lock

        lease = await self._actor.acquire(lock(name, using=self._alias, **options), wait=wait)
        if lease is None:
            return None
        self._leases.setdefault(name, []).append(lease)
        return _token(lease)

    async def release(self, name: str) -> None:
        """Release what was acquired or attached."""
        await self._actor.release(self._leases[name].pop())

    async def attach(self, handle: str) -> int:
        """Attach; answer with the token."""
        lease = await self._actor.attach(handle)
        self._leases.setdefault(lease.name, []).append(lease)
        return _token(lease)

    async def detach(self, name: str) -> str:
        """Detach what was acquired."""
        return str(await self._actor.do(self._leases[name].pop().detach))

    async def held(self, prefix: str) -> list[Any]:
        """Answer with what is held: name, token, process and metadata of each."""
        from ..handler import locks

        return [_seen(info) for info in await self._actor.held(locks[self._alias], prefix)]

    async def see(self, name: str) -> Any:
        """Answer with the same of one lock, or None."""
        from ..handler import locks

        info = await self._actor.call(locks[self._alias], "inspect", name)
        return None if info is None else _seen(info)

    async def force(self, name: str) -> None:
        """Force a release."""
        from ..handler import locks

        await self._actor.force(locks[self._alias], name)

    async def count(self, task: list[Any], who: int) -> list[Any]:
        """Count in a file, as `counting.count`."""
        from .counting import Task, count

        return list(await count(self._actor, Task(*task), who))

    async def meet(self, contention: list[Any], who: int) -> list[Any]:
        """Meet others, as `crowds.meet`."""
        from .contention import Contention, meet

        return list(await meet(self._actor, Contention(*contention), who))

    async def fork(self, name: str) -> dict[str, str]:
        """Fork while holding; answer with what a child could do with the parent's lease."""
        from .. import lock

        lease = self._leases[name][-1]
        again = lock(name, using=self._alias, reentrant=True)
        forked: dict[str, str] = await self._actor.do(
            lambda: _in_child(
                {
                    "check": lease.check,
                    "renew": lease.renew,
                    "release": lease.release,
                    "acquire": lambda: _refused_or_freed(again),
                }
            )
        )
        return forked


def _seen(info: LockInfo) -> list[Any]:
    return [info.name, info.fencing_token, info.holder.pid, dict(info.metadata)]


def _token(lease: Lease) -> int:
    """Return the fencing token; 0 on a backend that has none."""
    return lease.fencing_token if lease._hold.backend.supports_fencing else 0


def _refused_or_freed(lock: Any) -> str:
    lease = lock.acquire(wait=0)
    if lease is None:
        return "refused"
    lease.release()
    return "granted"


def _in_child(calls: dict[str, Callable[[], object]]) -> dict[str, str]:
    """Make the calls in a forked child; return what each ended with."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: it is asked
        pid = os.fork()
    if pid == 0:
        try:
            ends = {what: _end_of(call) for what, call in calls.items()}
            os.write(writer, json.dumps(ends).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        ends = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return dict(ends)


def _end_of(call: Callable[[], object]) -> str:
    try:
        return str(call() or "done")
    except Exception as error:  # noqa: BLE001 - the test's to judge
        return type(error).__name__


async def main(kind: str, alias: str) -> None:
    """Answer requests until there are no more."""
    from ..exceptions import LockError
    from .runners import RUNNERS

    async with RUNNERS[kind](alias) as runner:
        helper = Helper(runner.actor(), alias)
        _answer(None)
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            try:
                _answer(await getattr(helper, request.pop("do"))(**request))
            except (LockError, AssertionError) as error:
                traceback.print_exc()
                _answer({"error": type(error).__name__, "message": str(error)})


def _answer(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    import django
    from django.conf import settings

    from .nursery import serve

    # The databases of the tests, which are others than those that the settings name.
    for database, name in json.loads(sys.argv[1]).items():
        settings.DATABASES[database]["NAME"] = name
    django.setup()
    from . import runners  # noqa: F401 - so that each process need not import it

    serve(int(sys.argv[2]), lambda kind, alias: asyncio.run(main(kind, alias)))
