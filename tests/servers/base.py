"""Start, pause, kill and end private servers for the tests.

A server lives in a temporary folder of its own (``TMPDIR`` is honoured) and listens on a free
loopback port. It reads no configuration of the machine and writes nothing outside its folder.
Only the standard library is needed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from . import watcher

HOST = "127.0.0.1"


class ServerError(RuntimeError):
    """A test server cannot be found, started or used."""


_reserved: list[int] = []


def free_port() -> int:
    """Reserve a loopback port for this process, below the range that the kernel gives to clients.

    A port of the client range could be taken by a client while the server is down for a restart.
    The port stays bound until the process ends, so no other call returns it, here or in another
    process of the run. A server can listen on it, as servers bind with SO_REUSEADDR.
    """
    for port in random.sample(range(15_000, 32_000), 200):
        probe = socket.socket()
        try:
            probe.bind((HOST, port))  # without SO_REUSEADDR, so that a reserved port is refused
        except OSError:
            probe.close()
            continue
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.append(probe.detach())  # a descriptor needs no closing at the end
        return port
    raise ServerError("no free loopback port between 15000 and 32000")


class Server(ABC):
    """One private server: start it, use it, stop it.

    ``restart``, and ``start`` after ``kill``, keep the data and the port. ``stop`` ends everything
    and deletes the folder; it also runs at the end of a ``with`` block and of the interpreter.
    When this process dies without having the time for that, ``watcher.py`` does it.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    """The Debian package to install."""
    programs: ClassVar[tuple[str, ...]]
    """What has to be installed."""
    places: ClassVar[tuple[str, ...]] = ("/usr/local/sbin", "/usr/sbin")
    """Folders to look in besides PATH; the first one wins."""
    accounts: ClassVar[tuple[str, ...]] = ("nobody",)
    """Who runs the server when we are root: the first of these that exists."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    start_limit: ClassVar[float] = 30.0
    stop_limit: ClassVar[float] = 20.0

    def __init__(self, *, options: Sequence[str] = ()) -> None:
        self.host = HOST
        self.port = 0
        self.options = list(options)
        self._folder: Path | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._creator = os.getpid()
        self._uid, self._gid = self._account() if os.geteuid() == 0 else (-1, -1)

    # What each kind of server says about itself

    @abstractmethod
    def prepare(self) -> None:
        """Fill the new, empty folder."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that runs the server in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Tell whether this very server, and no other, answers a request."""

    def after_kill(self) -> None:  # noqa: B027 - most servers leave nothing
        """Remove what a killed server could not remove itself."""

    # What a test uses

    @property
    def folder(self) -> Path:
        """The temporary folder of a server that was started."""
        if self._folder is None:
            raise ServerError(f"{self.name} is not started")
        return self._folder

    @property
    def running(self) -> bool:
        """Whether the server's main process lives, paused or not."""
        return self._watcher is not None and watcher.lives(self._watcher)

    @property
    def pids(self) -> list[int]:
        """The processes of the server, the main one first."""
        if self._watcher is None or not self.running:
            return []
        return list(watcher.family(self._watcher.pid))[1:]

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        if not self.running:
            try:
                if self._folder is None:
                    self._create()
                else:
                    self._launch()
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """End the server and delete its folder."""
        if self._folder is None or self._creator != os.getpid():  # a forked child has but a copy
            return
        self._halt()
        shutil.rmtree(self._folder)
        self._folder = None
        atexit.unregister(self.stop)

    def restart(self) -> Self:
        """Stop the server as an operator would, and start it again on its data."""
        self._halt()
        return self.start()

    def kill(self) -> None:
        """Kill all processes of the server (SIGKILL); ``start`` brings it back with its data."""
        if self._watcher is not None and (pids := self.pids):
            watcher.kill(pids[0])
            self._watcher.wait(self.stop_limit)
            self.after_kill()

    def pause(self) -> None:
        """Freeze all processes of the server (SIGSTOP): connections stay, answers do not come."""
        if not self.running:
            raise ServerError(f"{self.name} is not running")
        watcher.freeze(self.pids[0])

    def resume(self) -> None:
        """Let a paused server go on."""
        for pid in self.pids:
            watcher.send(pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # Tools for the subclasses

    def program(self, name: str) -> str:
        """Return the path of a program, or say which package to install."""
        path = os.pathsep.join((*self.places, os.environ.get("PATH", os.defpath)))
        found = shutil.which(name, path=path)
        if found is None:
            raise ServerError(f"{name} not found. Install it: apt-get install {self.package}")
        return found

    def run(self, program: str, *arguments: str, limit: float = 60.0, **environment: str) -> str:
        """Run a program as the server's user and return what it printed."""
        done = subprocess.run(
            [self.program(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=limit,
            cwd=self.folder,
            env=self._environment() | environment,
            **self._user(),
        )
        output: str = done.stdout.strip()
        if done.returncode:
            raise ServerError(f"{program} ended with {done.returncode}:\n{output}")
        return output

    def make_certificate(self, stem: str) -> None:
        """Write ``stem.key`` and ``stem.crt``, a certificate that is its own authority."""
        names = ("-addext", f"subjectAltName=DNS:localhost,IP:{self.host}")
        kind = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost")
        self.run("openssl", "req", *kind, *names, "-keyout", f"{stem}.key", "-out", f"{stem}.crt")

    @property
    def client(self) -> tuple[str, str]:
        """The certificate of the clients of a ``mutual`` server, and its key."""
        return str(self.folder / "client.crt"), str(self.folder / "client.key")

    def trust_clients(self, *others: str) -> str:
        """Make the certificate of the clients; return a file of what the server is to trust."""
        self.make_certificate("client")
        trusted = [(self.folder / f"{each}.crt").read_text() for each in ("client", *others)]
        self.write("trusted.crt", "".join(trusted))
        return str(self.folder / "trusted.crt")

    def write(self, name: str, text: str) -> None:
        """Write a file into the folder, for the server's user only."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        self._own(path)

    def log_tail(self, lines: int = 20) -> str:
        """Return the end of the server's log."""
        log = self.folder / "server.log"
        text = log.read_text(errors="replace") if log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    # Inside

    def _account(self) -> tuple[int, int]:
        for name in self.accounts:
            with contextlib.suppress(KeyError):
                found = pwd.getpwnam(name)
                return found.pw_uid, found.pw_gid
        raise ServerError(f"{self.name} does not run as root, and no user {self.accounts} exists")

    def _user(self) -> dict[str, Any]:
        """Return the arguments that make ``subprocess`` change the user."""
        if self._uid < 0:
            return {}
        return {"user": self._uid, "group": self._gid, "extra_groups": []}

    def _own(self, path: Path) -> None:
        """Give a file or folder to the server's user."""
        if self._uid >= 0:
            os.chown(path, self._uid, self._gid)

    def _environment(self) -> dict[str, str]:
        """Return a clean environment: no PGPORT, MYSQL_HOME and the like of the developer's."""
        here = str(self.folder)
        path = os.environ.get("PATH", os.defpath)
        return {"PATH": path, "HOME": here, "TMPDIR": here, "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def _create(self) -> None:
        """Make the folder and start on a free port; try others when somebody was faster."""
        for name in self.programs:
            self.program(name)
        self._folder = Path(tempfile.mkdtemp(prefix=f"distlock-{self.name}-"))
        self._creator = os.getpid()
        atexit.register(self.stop)
        self._own(self._folder)
        self.prepare()
        for tries_left in (2, 1, 0):
            self.port = free_port()
            try:
                self._launch()
                break
            except ServerError:
                if not tries_left or "in use" not in self.log_tail(200):
                    raise

    def _launch(self) -> None:
        """Start the server below a watcher and wait until it answers."""
        numbers = (os.getpid(), self._uid, self._gid, int(self.stop_signal))
        words = [watcher.__file__, *map(str, numbers), str(self.folder), *self.command()]
        with (self.folder / "server.log").open("a") as log:
            self._watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C in a terminal is for the tests only
            )
        deadline = time.monotonic() + self.start_limit
        while time.monotonic() < deadline:
            if not self.running:
                raise ServerError(f"{self.name} ended while starting. Its log:\n{self.log_tail()}")
            if self._port_is_open() and self._ready():
                return
            time.sleep(0.02)
        problem = f"{self.name} gave no answer in {self.start_limit:.0f} s."
        raise ServerError(f"{problem} Its log:\n{self.log_tail()}")

    def _ready(self) -> bool:
        with contextlib.suppress(ServerError, subprocess.TimeoutExpired):
            return self.answers()
        return False

    def _port_is_open(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1.0):
            return True
        return False

    def _halt(self) -> None:
        """End the processes: by the server's own signal, or by force when that takes too long."""
        if self._watcher is None or not self.running:
            return
        self.resume()
        pids = self.pids
        if not pids:  # interrupted before the watcher had started the server
            watcher.kill(self._watcher.pid)
            self._watcher.wait(self.stop_limit)
            return
        watcher.send(pids[0], self.stop_signal)
        try:
            self._watcher.wait(self.stop_limit)
        except subprocess.TimeoutExpired:
            self.kill()


class DatabaseServer(Server):
    """A server that Django can use as a database."""

    user = "distlock"
    password = ""

    def __init__(self, *, durable: bool = False, options: Sequence[str] = ()) -> None:
        """Prepare a server; only a ``durable`` one waits for the disk at each commit."""
        super().__init__(options=options)
        self.durable = durable

    @abstractmethod
    def settings(self, name: str) -> dict[str, Any]:
        """Return a ``DATABASES`` entry for the database ``name``, which need not exist yet."""

    @abstractmethod
    def execute(self, sql: str, *, limit: float = 60.0) -> str:
        """Run SQL with the server's own client, as its administrator, and return the answer."""

    def create_database(self, name: str) -> dict[str, Any]:
        """Create an empty database and return its ``DATABASES`` entry."""
        self.execute(f"CREATE DATABASE {name}")
        return self.settings(name)
