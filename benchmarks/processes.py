"""Forked processes that measure, and the cores that they and the servers run on."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

__all__ = ["Child", "in_child", "on_one_core", "one_core"]

T = TypeVar("T")

# Forked, so that what the parent has made ready need not be imported again by 32 processes. The
# parent has no threads and no connections then.
_fork = multiprocessing.get_context("fork")

Talk = Connection


class Failed(RuntimeError):
    """A child failed; its traceback is the message."""


class Child(Generic[T]):
    """A forked process that runs ``work(pipe, ...)`` and gives its result at the end."""

    def __init__(self, work: Callable[..., T], *arguments: Any) -> None:
        self.pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(target=self._run, args=(work, theirs, arguments))
        self._process.start()
        theirs.close()

    def _run(self, work: Callable[..., T], pipe: Connection, arguments: tuple[Any, ...]) -> None:
        self.pipe.close()
        try:
            answer = (True, work(pipe, *arguments))
        except BaseException:  # noqa: BLE001 - the parent raises it
            answer = (False, cast("T", traceback.format_exc()))
        with suppress(BrokenPipeError):
            pipe.send(answer)
        # Not by the interpreter's usual end: threads of the adapters must not delay it.
        os._exit(0)

    def result(self, limit: float | None = None) -> T:
        """Wait for the end and return the result; raises what the child raised."""
        try:
            good, answer = self.receive(limit)
        finally:
            self.end()
        if not good:
            raise Failed(f"in a child:\n{answer}")
        return cast("T", answer)

    def receive(self, limit: float | None) -> Any:
        """Return what the child sent."""
        if not self.pipe.poll(limit):
            raise Failed(f"a child gave no answer in {limit} s")
        try:
            return self.pipe.recv()
        except EOFError as error:
            raise Failed("a child ended without an answer") from error

    def expect(self, word: str, limit: float = 120.0) -> Any:
        """Return what the child sends with ``word``; raises when it has failed instead."""
        said, answer = self.receive(limit)
        if said != word:
            self.end()
            raise Failed(f"{word!r} was expected:\n{answer}")
        return answer

    def end(self) -> None:
        """See that the process is gone."""
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()

    def kill(self) -> None:
        """End it at once, whatever it does; nothing when it is gone."""
        self._process.kill()
        self.end()


def in_child(work: Callable[..., T], *arguments: Any) -> T:
    """Run ``work(pipe, *arguments)`` in a process of its own and return its result."""
    return Child(work, *arguments).result()


def one_core() -> int:
    """Return the core for what is measured on one core: the last one that we may use."""
    return max(os.sched_getaffinity(0))


@contextmanager
def on_one_core(pids: list[int]) -> Iterator[None]:
    """Keep these processes, with all their threads, and this one on one core.

    What they start later inherits it.
    """
    before = os.sched_getaffinity(0)
    core = {one_core()}
    _pin([os.getpid(), *pids], core)
    try:
        yield
    finally:
        _pin([os.getpid(), *pids], before)


def _pin(pids: list[int], cores: set[int]) -> None:
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").glob("*"):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.sched_setaffinity(int(thread.name), cores)
