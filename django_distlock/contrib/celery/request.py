"""Freeing the lock of a message whose task cannot do so: revoked, expired, or killed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.worker.request import Request
from kombu.asynchronous import get_event_loop

from ...core import clock
from ...core.system import lives
from ...core.values import Claim
from ...core.worker import close_connections
from ...exceptions import LockBackendError
from ...handler import locks
from .spec import TaskLock, Ticket

__all__ = ["OnceRequest"]

logger = logging.getLogger("django_distlock")

LOOK = 0.1  # seconds between two checks of a process that is being killed
AGAIN = 1.0  # seconds between two attempts at a store that fails

# What a worker's main process is told when a process of its pool has ended with its task.
GONE = (Terminated, TimeLimitExceeded, WorkerLostError, SystemExit, KeyboardInterrupt)


class OnceRequest(Request):
    """A message of a task with ``once=True``, in the main process of the worker."""

    _freed = False

    def revoked(self) -> bool:
        """Return whether the task is not to be run; it is over then."""
        revoked = bool(super().revoked())
        if revoked:
            self._free()
        return revoked

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Note a time limit; at the hard one the process is killed."""
        super().on_timeout(soft, timeout)
        if not soft:
            self._free(self.worker_pid)

    def on_failure(
        self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False
    ) -> None:
        """Note a failure; where the process is gone no other releases the lock."""
        error = exc_info.exception
        error = getattr(error, "exc", error)  # it may be wrapped, to carry its traceback
        super().on_failure(exc_info, send_failed_event, return_ok)
        if isinstance(error, GONE) and not self._is_retried(error):
            self._free(self.worker_pid)

    def _is_retried(self, error: BaseException) -> bool:
        """Return whether Celery sends the task of a lost process again, with its lock."""
        task: Any = self.task
        if isinstance(error, Terminated | TimeLimitExceeded):
            return False
        if not getattr(task, "retry_on_worker_lost", False):
            return False
        return task.max_retries is None or self.request_dict.get("retries", 0) < task.max_retries

    def _free(self, pid: Any = None) -> None:
        """Free the lock, once the process ``pid`` is gone: Celery tells of it before it kills."""
        ticket = Ticket.of(self.request_dict, self.id)
        if self._freed or ticket is None or not ticket.owner:
            return
        self._freed = True
        task: Any = self.task
        spec: TaskLock = task.distlock
        _Freeing(
            spec.lock.using, spec.claim_of(ticket), pid, clock.now() + max(spec.ttl, 10 * AGAIN)
        )()


@dataclass(frozen=True, slots=True)
class _Freeing:
    """A release on the thread that forks the pool, by and by.

    Not on a thread beside it, as elsewhere: a process that is forked while another thread is inside
    of a driver inherits that driver's locks, held without end. SQLite's hung so.
    """

    using: str
    claim: Claim
    pid: Any
    end: float

    def __call__(self) -> None:
        """Release, or try again later."""
        if _lives(self.pid):
            self._later(LOOK)
            return
        try:
            locks[self.using].call("release", self.claim, name=self.claim.name)
        except LockBackendError as error:
            if not self._later(AGAIN):
                logger.warning("Of a task that is gone: %s", error)
        finally:
            close_connections()  # else the processes of the pool would inherit them

    def _later(self, seconds: float) -> bool:
        hub = get_event_loop()
        if hub is None or clock.now() > self.end:
            return False  # it ends with its ttl
        hub.call_later(seconds, self)
        return True


def _lives(pid: Any) -> bool:
    return isinstance(pid, int) and lives(pid)
