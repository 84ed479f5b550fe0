"""Other processes that take locks in the contract suite, seen from the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from types import TracebackType
from typing import Any, Self

from django.db import connections

from .. import exceptions
from .contention import Contention, SeenGrant
from .counting import Round, Task
from .nursery import Nursery
from .runners import BUSY, ask_again

__all__ = ["Process", "ProcessEnded"]

HELPER = f"{__package__}.helper"


class ProcessEnded(Exception):
    """The process ended instead of answering."""


class Process:
    """A Python process of its own that takes locks when told to. Leaving it ends it.

    It reads the project's settings again, so the alias has to stand in them; the names of the
    databases are taken over, for those of tests are not in the settings.
    """

    def __init__(self, kind: str, alias: str) -> None:
        names = {name: str(conf["NAME"]) for name, conf in connections.settings.items()}
        self.pid, self._line = Nursery.of(HELPER, json.dumps(names)).born(kind, alias)
        self._answers = self._line.makefile("r", encoding="utf-8")

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
        if self._line.fileno() < 0:
            return  # it was killed
        if by_force:
            os.kill(self.pid, signal.SIGKILL)
        else:
            self._line.shutdown(socket.SHUT_WR)
        self._line.settimeout(30)
        with self._line, self._answers, contextlib.suppress(ConnectionResetError):
            self._answers.read()  # until it has ended

    async def kill(self) -> None:
        """Kill it (SIGKILL); it has no time for anything."""
        await asyncio.to_thread(self._end, by_force=True)

    async def ask(self, do: str, **arguments: Any) -> Any:
        """Send a request and return the answer; errors of locks are raised here."""
        self.tell(do, **arguments)
        return await self.answer()

    async def answer(self) -> Any:
        """Return the answer to what `tell` has sent; errors of locks are raised here."""
        return await asyncio.to_thread(self._read)

    def tell(self, do: str, **arguments: Any) -> None:
        """Send a request; its answer is read by `answer`, or not at all."""
        self._line.sendall((json.dumps({"do": do, **arguments}) + "\n").encode())

    def _read(self) -> Any:
        try:
            line = self._answers.readline()
        except ConnectionResetError:  # it left something unread
            line = ""
        if not line:
            raise ProcessEnded
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            kind = getattr(exceptions, answer["error"], AssertionError)
            raise kind(answer["message"])
        return answer

    async def acquire(self, name: str, *, wait: float = 0, **options: Any) -> int | None:
        """Acquire in the process; return the token, or None when it was not obtained.

        A server that is busy may have to be asked again.
        """
        token: int | None = await ask_again(
            lambda: self.ask("acquire", name=name, wait=wait, options=options),
            time.monotonic() + BUSY,
        )
        return token

    async def release(self, name: str) -> None:
        """Release in the process."""
        await self.ask("release", name=name)

    async def count(self, task: Task, who: int) -> list[Round]:
        """Count in the process, as `counting.count`."""
        return [Round(*each) for each in await self.ask("count", task=task, who=who)]

    async def meet(self, contention: Contention, who: int) -> list[SeenGrant]:
        """Meet others in the process, as `crowds.meet`."""
        return [SeenGrant(*each) for each in await self.ask("meet", contention=contention, who=who)]
