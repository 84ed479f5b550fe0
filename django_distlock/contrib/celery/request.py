"""Freeing the lock of a message whose task cannot do so: revoked, expired, or killed."""

from __future__ import annotations

from typing import Any

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.worker.request import Request

from ...handler import locks
from ...values import Claim
from ...watchdog import abandon
from .spec import TaskLock
from .ticket import Ticket

__all__ = ["OnceRequest"]

# What a worker's main process is told when a process of its pool has ended with its task.
GONE = (Terminated, TimeLimitExceeded, WorkerLostError, SystemExit, KeyboardInterrupt)


class OnceRequest(Request):
    """A message of a task with ``once=True``, in the main process of the worker."""

    _freed = False

    def revoked(self) -> bool:
        """Tell whether the task is not to be run; it is over then."""
        revoked = bool(super().revoked())
        if revoked:
            self._free()
        return revoked

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Note a time limit; at the hard one the process is killed."""
        super().on_timeout(soft, timeout)
        if not soft:
            self._free()

    def on_failure(
        self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False
    ) -> None:
        """Note a failure; where the process is gone nobody else frees the lock."""
        error = exc_info.exception
        error = getattr(error, "exc", error)  # it may be wrapped, to carry its traceback
        super().on_failure(exc_info, send_failed_event, return_ok)
        if isinstance(error, GONE) and not self._is_retried(error):
            self._free()

    def _is_retried(self, error: BaseException) -> bool:
        """Tell whether Celery sends the task of a lost process again, with its lock."""
        task: Any = self.task
        if isinstance(error, Terminated | TimeLimitExceeded):
            return False
        if not getattr(task, "retry_on_worker_lost", False):
            return False
        return task.max_retries is None or self.request_dict.get("retries", 0) < task.max_retries

    def _free(self) -> None:
        ticket = Ticket.of(self.request_dict, self.id)
        if self._freed or ticket is None or not ticket.owner:
            return
        self._freed = True
        task: Any = self.task
        spec: TaskLock = task.distlock
        backend = locks[spec.lock.using]
        claim = Claim(ticket.name, backend.key(ticket.name), ticket.owner, spec.ttl)
        # In the background: a store that hangs must not stop the worker.
        abandon(backend, claim, backend.place())
