"""A program that runs under a lock: signals passed on, and ended when the lock is lost."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from django.core.management.base import CommandError

from ..core.system import ending_with_us, in_foreground, send_to_group, signals
from ..lease import Lease

__all__ = ["Child"]

FORWARDED = signals("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2")
BY_TERMINAL = signals("SIGINT", "SIGQUIT")
"""What a terminal sends to all programs in its foreground by itself."""

ENDING = signals("SIGTERM", "SIGINT", "SIGQUIT")
"""What asks a program to end; SIGHUP asks many for something else."""

NOT_FOUND, NOT_RUNNABLE, BY_SIGNAL = 127, 126, 128
"""Exit codes, as those of a shell."""

LOOK = 0.05  # seconds between two checks whether the last of its processes has ended


class Child:
    """One run of a program.

    Away from a terminal it leads a process group of its own, so that what it starts is reached
    too. On a terminal it has to stay in the foreground, with us.
    """

    def __init__(self, command: Sequence[str], *, kill_after: float) -> None:
        self._command = list(command)
        self._kill_after = kill_after
        self._leads = not in_foreground()
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []  # signals that came while it was being started
        self._lost = False
        self.is_told_to_end = False
        """Whether we were sent a signal that asks the program to end, for us to pass on."""
        self._killing = threading.Timer(kill_after, self._kill)
        self._killing.daemon = True

    def run(self, lease: Lease, environment: Mapping[str, str]) -> int:
        """Start the program, wait for its end, and return its exit code."""
        with self._forwarding():
            process = self._start(environment)
            self._process = process
            for number in self._early:
                self._send(number)
            lease.on_lost(lambda lost: self._stop())
            code = _end(process)
            if self._lost:
                self._wait_for_the_others()
                self._killing.cancel()
        return code if code >= 0 else BY_SIGNAL - code

    def _start(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command = self._command
        # Else Popen says by itself what is wrong with it.
        if shutil.which(command[0]) is not None:
            command = ending_with_us(command)
        try:
            return subprocess.Popen(  # noqa: S603 - what the user has asked for
                command,
                env=os.environ | environment,
                process_group=0 if self._leads else None,
            )
        except FileNotFoundError as error:
            raise CommandError(f"Not run: {error}", returncode=NOT_FOUND) from error
        except OSError as error:
            raise CommandError(f"Not run: {error}", returncode=NOT_RUNNABLE) from error

    # -- signals -----------------------------------------------------------------------------------

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # no other one may set handlers
            before = {number: signal.getsignal(number) for number in FORWARDED}
        for number, handler in list(before.items()):
            # Ignored by nohup, say, or not Python's: the program shall not hear it either.
            if handler in (signal.SIG_IGN, None):
                del before[number]
            else:
                signal.signal(number, self._forward)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.is_told_to_end = self.is_told_to_end or number in ENDING
        if not self._leads and number in BY_TERMINAL:
            return
        if self._process is None:
            self._early.append(number)
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        process = self._process
        if process is None:
            return
        try:
            if self._leads:
                send_to_group(process.pid, number)
            else:
                process.send_signal(number)
        except ProcessLookupError:
            pass  # it has ended meanwhile
        except PermissionError as error:
            sys.stderr.write(f"{signal.Signals(number).name} could not be passed on: {error}\n")

    # -- lost --------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """End the program, on the thread that tells of the loss: politely first."""
        self._lost = True
        sys.stderr.write("The lock is lost: the command is ended.\n")
        self._send(signal.SIGTERM)
        for number in signals("SIGCONT"):  # a stopped one would not hear it
            self._send(number)
        self._killing.start()

    def _kill(self) -> None:
        for number in signals("SIGKILL") or signals("SIGTERM"):  # which kills at once on Windows
            self._send(number)

    def _wait_for_the_others(self) -> None:
        """Wait for what the program has started, which was told to end as well."""
        end = time.monotonic() + self._kill_after + 1
        with suppress(ProcessLookupError):
            while self._leads and self._process is not None and time.monotonic() < end:
                send_to_group(self._process.pid, 0)
                time.sleep(LOOK)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a program, and hear every signal meanwhile.

    One that comes between the last look of Python's and the system's wait would be heard after the
    wait only; a byte in a pipe stays there (the "self-pipe trick", D. J. Bernstein).
    """
    if threading.current_thread() is not threading.main_thread():
        return process.wait()
    heard, tell = socket.socketpair()
    with heard, tell:
        tell.setblocking(False)
        before = signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)

        def wait() -> None:
            process.wait()
            with suppress(BlockingIOError):  # full of signals: it is woken anyway
                tell.send(b"\0")

        waiting = threading.Thread(target=wait, name="distlock-child", daemon=True)
        try:
            waiting.start()
            while process.returncode is None:
                heard.recv(64)
            waiting.join()
        finally:
            signal.set_wakeup_fd(before)
    return process.returncode
