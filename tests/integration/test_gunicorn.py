"""gunicorn: forked workers with threads, and its workers for ASGI, from the start to the end."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest

from django_distlock import lock
from tests.backends.tools import soon
from tests.hearing import hearing_signals
from tests.integration.test_gevent import ALIASES
from tests.servers.base import free_port

WORDS = {
    "wsgi": ("--threads=4", "--preload"),
    "asgi": ("--worker-class=asgi",),
}
ROOT = Path(__file__).parents[2]


class Gunicorn:
    """A server, whose workers are of one of the kinds in WORDS."""

    def __init__(self, kind: str, process: subprocess.Popen[bytes], port: int) -> None:
        self.kind = kind
        self.process = process
        self.port = port

    def path(self, view: str, **query: object) -> str:
        """Return the path of a view of the kind."""
        return f"/{'a' if self.kind == 'asgi' else ''}{view}?{urlencode(query)}"

    def get(self, path: str) -> str:
        """Return what the server answers; an error is raised."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=90) as answer:
            text: str = answer.read().decode()
            return text

    def is_there(self) -> bool:
        """Return whether it takes connections."""
        assert self.process.poll() is None, "gunicorn has ended: see what it wrote"
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@contextmanager
def gunicorn(kind: str, aliases: Sequence[str], *, workers: int = 2) -> Iterator[Gunicorn]:
    port = free_port()
    words = [f"tests.integration.under_gunicorn:{kind}", f"--bind=127.0.0.1:{port}"]
    words += [f"--workers={workers}", "--no-control-socket", "--log-level=warning", *WORDS[kind]]
    with hearing_signals():
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *words],
            cwd=ROOT,
            env=os.environ | {"GUNICORN_ALIASES": " ".join(aliases)},
        )
    with process:
        try:
            server = Gunicorn(kind, process, port)
            assert soon(server.is_there, 60)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[[str], Gunicorn]]:
    """Return the server of a kind, started when it is first asked for."""
    with ExitStack() as servers:
        yield functools.cache(lambda kind: servers.enter_context(gunicorn(kind, ALIASES)))


@pytest.fixture(params=WORDS)
def server(request: pytest.FixtureRequest, started: Callable[[str], Gunicorn]) -> Gunicorn:
    return started(request.param)


@pytest.mark.parametrize("alias", ALIASES)
def test_requests_take_turns(server: Gunicorn, alias: str, tmp_path: Path, name: str) -> None:
    file = tmp_path / "count"
    file.write_text("0")
    path = server.path("count", alias=alias, name=name, file=file)
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(server.get, [path] * 32))
    assert answers == ["counted"] * 32
    assert file.read_text() == "32"


@pytest.mark.parametrize("alias", ALIASES)
def test_a_client_that_goes_away_leaves_no_lock(server: Gunicorn, alias: str, name: str) -> None:
    """A task is cancelled then, and a thread goes on to the end of the view."""
    seconds = 200 if server.kind == "asgi" else 1
    path = server.path("hold", alias=alias, name=name, seconds=seconds)
    guard = lock(name, using=alias)
    with socket.create_connection(("127.0.0.1", server.port), 10) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert soon(guard.locked)
    assert soon(lambda: not guard.locked())


@pytest.mark.parametrize("kind", WORDS)
def test_what_runs_at_the_end_of_the_server_ends_with_its_answer(kind: str, name: str) -> None:
    alias = ALIASES[0]
    guard = lock(name, using=alias)
    answers: list[str] = []
    # One worker: it has started when it answers. A second one may be told to end before it has.
    with gunicorn(kind, [alias], workers=1) as server:
        path = server.path("hold", alias=alias, name=name, seconds=2)
        client = threading.Thread(target=lambda: answers.append(server.get(path)))
        client.start()
        assert soon(guard.locked)
        server.process.terminate()
        client.join(30)
        assert server.process.wait(30) == 0
    assert answers == ["held"]
    assert not guard.locked()
