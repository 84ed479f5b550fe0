"""Commands of which one instance runs at a time: `LockedCommand`, `locked_command`."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, ClassVar, TypeVar

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from .core import flow
from .core.durations import UNSET
from .core.holder import Caller, place_of, taken_by
from .core.names import label_of
from .current import running_under
from .decorators import fill
from .exceptions import LockBackendError, LockNotAcquiredError, LockNotHeldError
from .lease import Lease
from .lock import Lock, lock

__all__ = [
    "HELD",
    "LOST",
    "UNAVAILABLE",
    "AlreadyRunningError",
    "LockedCommand",
    "alone",
    "ending",
    "locked_command",
]

logger = logging.getLogger("django_distlock")

# As in sysexits.h: EX_TEMPFAIL, EX_UNAVAILABLE, EX_SOFTWARE.
HELD = 75
"""Exit code when the lock is held: nothing was done, and may be tried again."""
UNAVAILABLE = 69
"""Exit code when the store failed: nothing was done."""
LOST = 70
"""Exit code when the lock was lost on the way: what was done may be incomplete."""

C = TypeVar("C", bound=BaseCommand)


class AlreadyRunningError(CommandError):
    """The lock that the command needs is held: the command was not run."""


class LockedCommand(BaseCommand):
    """A base for commands of which one instance runs at a time, on all hosts.

    - ``lock_name``: the lock's name, a template over the command's options, such as
      ``"import:{tenant}"``; left empty it is ``command:`` and the command's name.
    - ``lock_options``: the options of `lock`. Unless ``wait`` is among them the command does not
      wait.
    - ``exit_when_held``: the exit code when another instance runs; 0 takes that for success.

    While ``handle`` runs, ``self.lease`` is its lease. When SIGTERM ends the command the lock is
    freed. Exit codes: 75 another instance runs, 69 the store failed, 70 the lock was lost. By
    `call_command` they are the ``returncode`` of CommandError, for the first of them
    AlreadyRunningError.
    """

    lock_name: ClassVar[str] = ""
    lock_options: ClassVar[Mapping[str, Any]] = {}
    exit_when_held: ClassVar[int] = HELD

    lease: Lease

    def get_lock_name(self, options: Mapping[str, Any]) -> str:
        """Return the lock's name for a run with these options."""
        return fill(self._template(), options, self.lock_options.get("using", "default"))

    def _template(self) -> str:
        return self.lock_name or f"command:{type(self).__module__.rpartition('.')[2]}"

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command under the lock."""
        usual = {"wait": 0, "label": label_of(self._template())}
        made = lock(self.get_lock_name(options), **{**usual, **self.lock_options})
        guard = replace(made, _literal=True)
        caller = Caller(place_of(type(self).handle))
        try:
            with alone(guard, held=self.exit_when_held, caller=caller) as self.lease:
                return super().execute(*args, **options)
        except AlreadyRunningError as error:
            if error.returncode:
                raise
            if options.get("verbosity", 1) > 0:
                (options.get("stdout") or self.stdout).write(f"Not run. {error}\n")
            return None


def locked_command(
    name: str = "", *, exit_when_held: int = HELD, **lock_options: Any
) -> Callable[[type[C]], type[C]]:
    """Return a class decorator that makes a command a `LockedCommand`.

    For a command that has its base class already. ``lock_options`` are those of `lock`.
    """

    def decorate(command: type[C]) -> type[C]:
        body = {
            "__module__": command.__module__,
            "__qualname__": command.__qualname__,
            "__doc__": command.__doc__,
            "lock_name": name,
            "lock_options": lock_options,
            "exit_when_held": exit_when_held,
        }
        return type(command.__name__, (LockedCommand, command), body)

    return decorate


@contextmanager
def alone(
    guard: Lock,
    *,
    held: int = HELD,
    caller: Caller | None = None,
    ended_by: Sequence[int] = (signal.SIGTERM,),
) -> Iterator[Lease]:
    """Run a block of a command under a lock, and have what goes wrong end it by its exit code.

    ``held`` is the exit code when the lock is held; ``caller`` is what the lock shows as its
    holder; ``ended_by`` are the signals that end the block, by 128 + their number.
    """
    with ending(ended_by):
        try:
            with taken_by(caller):
                lease = flow.run(guard._obtain(UNSET))
        except LockNotAcquiredError as error:
            raise AlreadyRunningError(str(error), returncode=held) from error
        except LockBackendError as error:
            raise CommandError(f"Not run: {error}", returncode=UNAVAILABLE) from error
        try:
            with running_under([lease]):
                yield lease
        except BaseException as error:
            _close_broken_connections()
            flow.run(lease._leave(error))
            raise
        _close_broken_connections()
        try:
            flow.run(lease._leave(None))
        except LockNotHeldError as error:
            raise CommandError(str(error), returncode=LOST) from error
        except LockBackendError as error:
            # It takes nothing away from what was done under the lock.
            logger.error("After the command: %s", error)  # noqa: TRY400 - it says all


@contextmanager
def ending(signals: Sequence[int]) -> Iterator[None]:
    """Have signals end the program as an exception does, so that the lock is freed.

    SIGINT too by SystemExit: a KeyboardInterrupt that has passed through code made from text, such
    as a dataclass, ends CPython by the signal, whatever the exit code asked for.
    """

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in signals} if main else {}
    usual = (signal.SIG_DFL, signal.default_int_handler)
    # A handler that is there already has its reason.
    ours = {number: handler for number, handler in before.items() if handler in usual}
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in ours.items():
            if signal.getsignal(number) is end:
                signal.signal(number, handler)


def _close_broken_connections() -> None:
    """Close connections that the server has ended during a long block, before they are used."""
    for connection in connections.all(initialized_only=True):
        if (
            connection.connection is not None
            and not connection.in_atomic_block
            and not connection.is_usable()
        ):
            connection.close()
