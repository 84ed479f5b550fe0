"""What etcd says when it does not do what it was asked, in the words of each version."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_distlock import LockBackendError, lock
from django_distlock.backends.etcd.errors import EtcdError, NoSuchLeaseError, error_of, remedy
from django_distlock.http import Answer, AsyncStream
from tests.backends.tools import elsewhere
from tests.claims import claim, granted
from tests.etcd.tools import Opener, entry_of
from tests.servers import Etcd
from tests.servers.base import free_port

LEASE = "etcdserver: requested lease not found"
TOKEN = "etcdserver: invalid auth token"
OLD = "etcdserver: revision of auth store is old"
CLOSING = "grpc: the client connection is closing"


def older(code: int, text: str) -> str:
    """As the gateway of 3.4 and 3.5 says it."""
    return f'{{"error":"{text}","code":{code},"message":"{text}"}}'


def newer(code: int, text: str) -> str:
    """As that of 3.6 does."""
    return f'{{"code":{code},"message":"{text}","details":[]}}'


def older_line(code: int, text: str) -> str:
    return f'{{"error":{{"grpc_code":{code},"http_code":503,"message":"{text}"}}}}'


def newer_line(code: int, text: str) -> str:
    return f'{{"error":{newer(code, text)}}}'


FORMS = (older, newer, older_line, newer_line)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("code", "text", "passes", "login"),
    [
        (5, LEASE, False, False),
        (16, TOKEN, False, True),
        (3, OLD, False, True),
        (2, "auth: revision in header is old", False, True),
        (1, CLOSING, True, False),
        (14, "etcdserver: no leader", True, False),
        (14, "etcdserver: request timed out", True, False),
        (8, "etcdserver: too many requests", True, False),
        (8, "etcdserver: mvcc: database space exceeded", False, False),
        (8, "grpc: received message larger than max (3 vs. 2)", False, False),
        (13, "etcdserver: server stopped", True, False),
        (2, "transport is closing", True, False),
        (2, "context deadline exceeded", False, False),
        (7, "etcdserver: permission denied", False, False),
    ],
)
def test_each_error_is_understood(
    form: Any, code: int, text: str, passes: bool, login: bool
) -> None:
    error = error_of(Answer(400, {}, form(code, text).encode()))
    assert (error.code, str(error)) == (code, text)
    assert (error.passes, error.is_login_over) == (passes, login)
    assert isinstance(error, NoSuchLeaseError) == (text == LEASE)


@pytest.mark.parametrize("status", [408, 502, 503, 504])
@pytest.mark.parametrize("body", [b"", b"upstream connect error", b"[]", b"1"])
def test_a_status_alone_may_pass(status: int, body: bytes) -> None:
    assert error_of(Answer(status, {}, body)).passes
    assert not error_of(Answer(404, {}, body)).passes


def test_a_certificate_with_a_name_is_told() -> None:
    said = "CommonName of client sending a request against gateway will be ignored"
    assert "without one" in remedy(EtcdError(said, 9), "here")


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that the server's user can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_change_of_users_ends_no_process(opened: Opener, name: str, readable: Path) -> None:
    """Tokens of the kind JWT carry the revision of the users, which any change makes old."""
    private, public = readable / "key", readable / "key.pub"
    arguments: tuple[list[str | Path], ...] = (
        ["genrsa", "-traditional", "-out", private, "2048"],
        ["rsa", "-in", private, "-pubout", "-out", public],
    )
    for words in arguments:
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    for path in (private, public):
        path.chmod(0o644)
    jwt = f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=5m"
    with Etcd(options=[f"--auth-token={jwt}"]) as server:
        server.ask("auth/user/add", {"name": "root", "password": "root"})
        server.ask("auth/role/add", {"name": "root"})
        server.ask("auth/user/grant", {"user": "root", "role": "root"})
        server.ask("auth/enable")
        backend = opened(server.url, USER="root", PASSWORD="root")
        with lock(name, using=backend.alias) as lease:
            for number in range(2):
                token = server.ask("auth/authenticate", {"name": "root", "password": "root"})
                server.ask(
                    "auth/user/add",
                    {"name": f"new{number}", "password": "x"},
                    token=token["token"],
                )
                lease.renew()
            assert elsewhere(lambda: lock(name, using=backend.alias, wait=0.2).acquire()) is None


def test_a_restored_cluster_is_taken_up_by_running_processes(opened: Opener, name: str) -> None:
    """It has another id; only servers that disagree, or may do so, are refused."""
    with Etcd() as first, Etcd() as second:
        second.kill()
        urls = [first.url, first.url.replace("127.0.0.1", "localhost")]
        backend = opened(urls)
        with lock(name, using=backend.alias):
            pass
        first.kill()
        second.port = first.port
        second.start()
        for _ in range(3):
            with lock(name, using=backend.alias):
                pass
        # One of them cannot be asked: it may be of the cluster before.
        half = opened([*urls, f"http://127.0.0.1:{free_port()}"])
        half._client._cluster = "another one"
        with pytest.raises(LockBackendError, match="different clusters"):
            lock(name, using=half.alias, wait=0).acquire()


def test_a_watch_of_a_loop_that_has_ended_gives_its_entry_back(opened: Opener, name: str) -> None:
    with Etcd() as server:
        backend = opened(server.url)
        entries = backend._client.http._permits
        before = len(entries)
        holder = claim(backend, name)
        assert granted(backend, holder)
        waiter = claim(backend, name)

        async def wait() -> None:
            await backend.atry_acquire(waiter, 5.0)
            await backend.aqueue(waiter, 0.2, 5.0)
            stream = entry_of(backend, waiter).stream
            assert isinstance(stream, AsyncStream)
            stream._connection.drop()  # the loop ends, the stream is not closed, its socket is
            await asyncio.sleep(0)

        asyncio.run(wait())
        assert len(entries) == before + 1, "nothing is watched"
        thread = threading.Thread(target=entry_of(backend, waiter).stop_watching)
        thread.start()
        thread.join()
        assert len(entries) == before
        backend.release(waiter)
        backend.release(holder)
