"""Other processes that take locks in the contract suite, seen from the test."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from types import TracebackType
from typing import Any, Self, cast

from django.db import connections

from .. import exceptions
from .counting import Round, Task

__all__ = ["Process", "ProcessEnded"]

HELPER = f"{__package__}.helper"


class ProcessEnded(Exception):
    """The process ended instead of answering."""


class Process:
    """A Python process of its own that takes locks when told to. Leaving it ends it.

    It reads the project's settings anew, so the alias has to stand in them; the names of the
    databases are taken over, for those of tests are not in the settings.
    """

    def __init__(self, kind: str, alias: str) -> None:
        names = {name: str(conf["NAME"]) for name, conf in connections.settings.items()}
        self._popen = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", HELPER, kind, alias, json.dumps(names)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._read)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._end, exc is not None)

    def _end(self, by_force: bool) -> None:
        if by_force:
            self._popen.kill()
        self._popen.communicate(timeout=30)

    async def kill(self) -> None:
        """Kill it (SIGKILL); it has no time for anything."""
        self._popen.kill()
        await asyncio.to_thread(self._popen.wait)

    async def ask(self, do: str, **arguments: Any) -> Any:
        """Send a request and return the answer; errors of locks are raised here."""
        self.tell(do, **arguments)
        return await asyncio.to_thread(self._read)

    def tell(self, do: str, **arguments: Any) -> None:
        """Send a request whose answer nobody reads."""
        stdin = cast("Any", self._popen.stdin)
        stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        stdin.flush()

    def _read(self) -> Any:
        line = cast("Any", self._popen.stdout).readline()
        if not line:
            raise ProcessEnded
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            kind = getattr(exceptions, answer["error"], AssertionError)
            raise kind(answer["message"])
        return answer

    async def acquire(self, name: str, *, wait: float = 0, **options: Any) -> int | None:
        """Acquire in the process; return the token, or None when it was not obtained."""
        token: int | None = await self.ask("acquire", name=name, wait=wait, options=options)
        return token

    async def release(self, name: str) -> None:
        """Release in the process."""
        await self.ask("release", name=name)

    async def count(self, task: Task, who: int) -> list[Round]:
        """Count in the process, as `counting.count`."""
        return [Round(*each) for each in await self.ask("count", task=task, who=who)]
