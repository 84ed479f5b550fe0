"""The other processes of the contract suite are forked from one in which Django is set up.

To start Python and Django takes half a second of CPU, to fork them a hundredth of that, and a suite
needs many processes. So there is one nursery for each environment that a process would be started
with; it ends with the process that started it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Nursery", "serve"]

MOST = 1_000_000  # bytes of a request


class Nursery:
    """A process that forks others, seen from the one that started it."""

    _all: dict[tuple[Any, ...], Nursery] = {}  # noqa: RUF012 - shared on purpose

    def __init__(self, words: Iterable[str]) -> None:
        self._line, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", *words, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    @classmethod
    def of(cls, *words: str) -> Nursery:
        """Return the nursery that runs ``python -m WORDS`` in what is the environment now."""
        now = frozenset(each for each in os.environ.items() if not each[0].startswith("PYTEST_"))
        key = (os.getpid(), now, words)
        if key not in cls._all:
            cls._all[key] = cls(words)
        return cls._all[key]

    def born(self, *words: str) -> tuple[int, socket.socket]:
        """Have a process forked; return its id, and the other end of its stdin and stdout."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._line, [json.dumps(words).encode()], [theirs.fileno()])
        answer = self._line.recv(64)
        if not answer:
            ours.close()
            raise RuntimeError(f"The process that forks others ended with {self._popen.wait()}")
        return int(answer), ours

    @classmethod
    def close_all(cls) -> None:
        """End the nurseries that this process has started."""
        for key in [key for key in cls._all if key[0] == os.getpid()]:
            nursery = cls._all.pop(key)
            nursery._line.close()
            nursery._popen.wait()


atexit.register(Nursery.close_all)


def serve(descriptor: int, live: Callable[..., object]) -> None:
    """Fork a process for each request; it calls ``live`` with the request's words, and ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(fileno=descriptor) as line:
        while True:
            request, descriptors, _flags, _address = socket.recv_fds(line, MOST, 1)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                line.close()
                _live(descriptors[0], lambda: live(*json.loads(request)))  # noqa: B023 - called now
            os.close(descriptors[0])
            line.sendall(str(pid).encode())


def _live(descriptor: int, life: Callable[[], object]) -> None:
    """Be a process of one's own: with a stdin and stdout, and an end."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for standard in (0, 1):
            os.dup2(descriptor, standard)
        os.close(descriptor)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - until it ends
        life()
        sys.stdout.flush()
        code = 0
    except BaseException:  # noqa: BLE001 - it is shown, and ends the process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
