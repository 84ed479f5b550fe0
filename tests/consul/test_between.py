"""What others do in Consul between two requests of one operation, or with keys of ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from django_distlock.backends.consul import ConsulBackend
from django_distlock.backends.consul.api import ConsulError
from django_distlock.backends.consul.records import Paths
from django_distlock.http import Request
from tests.claims import claim, granted, refused
from tests.consul.tools import Opener, keys_of
from tests.meddling import meddling
from tests.servers import Consul

LIMIT = 10.0
BOTH = pytest.mark.parametrize("behavior", ["delete", "release"])


def meddled(
    backend: ConsulBackend, meddle: Callable[[Request], None]
) -> AbstractContextManager[None]:
    """Have ``meddle`` told each request of the block before it is sent."""
    return meddling(backend._http, "ask", meddle)


def joins(request: Request) -> bool:
    """Tell whether a request queue."""
    return b"get-tree" in request.body


def end_session(server: Consul, request: Request) -> None:
    """End the session that a request names."""
    (session,) = set(re.findall(rb'"Session":"([^"]+)"', request.body))
    server.ask("PUT", f"/v1/session/destroy/{session.decode()}")


def test_a_session_that_ends_before_one_stands_in_line(opened: Opener, server: Consul) -> None:
    """Stand there by a new one."""
    backend, other = opened(server.url, prefix="ends"), opened(server.url, prefix="ends")
    holder, mine = claim(other, "a"), claim(backend, "a")
    granted(other, holder)
    ended: list[Request] = []

    def meddle(request: Request) -> None:
        if joins(request) and not ended:
            ended.append(request)
            end_session(server, request)

    with meddled(backend, meddle):
        answer = refused(backend, mine, LIMIT)
    assert ended
    assert answer.queue
    assert other.release(holder)
    assert backend.queue(mine, LIMIT, LIMIT)
    granted(backend, mine)
    assert backend.release(mine)


def test_sessions_that_end_again_and_again(opened: Opener, server: Consul) -> None:
    """Say that there is no place to be had, and why."""
    backend, other = opened(server.url, prefix="again"), opened(server.url, prefix="again")
    holder, mine = claim(other, "a"), claim(backend, "a")
    granted(other, holder)

    def meddle(request: Request) -> None:
        if joins(request):
            end_session(server, request)

    said = r"no queue entry.*invalid session"
    with meddled(backend, meddle), pytest.raises(ConsulError, match=said):
        backend.try_acquire(mine, LIMIT)
    assert not backend.is_queued(mine)
    assert other.release(holder)
    assert keys_of(server, backend) == []


@BOTH
def test_a_lock_that_is_freed_before_it_is_looked_at(
    opened: Opener, server: Consul, behavior: str
) -> None:
    """Take it, though it was refused a moment ago."""
    prefix = f"freed {behavior}"
    backend, other = (opened(server.url, prefix=prefix, BEHAVIOR=behavior) for _ in "ab")
    holder, mine = claim(other, "a"), claim(backend, "a")
    granted(other, holder)

    def meddle(request: Request) -> None:
        if request.method == "GET":
            assert other.release(holder)

    with meddled(backend, meddle):
        granted(backend, mine, 0.0)
    assert backend.release(mine)


def test_a_lock_that_is_taken_and_freed_all_the_time(opened: Opener, server: Consul) -> None:
    """Be refused in the end by one who is always faster."""
    backend, other = opened(server.url, prefix="flaps"), opened(server.url, prefix="flaps")
    holder, mine = claim(other, "a"), claim(backend, "a")

    def meddle(request: Request) -> None:
        if request.method == "GET":
            assert other.release(holder)
        elif request.target.startswith("/v1/txn"):
            granted(other, holder)

    with meddled(backend, meddle):
        assert not refused(backend, mine, 0.0).queue
    assert other.release(holder)
    assert keys_of(server, backend) == []


def test_a_mark_that_goes_before_the_release(opened: Opener, server: Consul) -> None:
    """Free the lock all the same: only the order hangs on the mark."""
    backend = opened(server.url)
    holder, mine = claim(backend, "a"), claim(backend, "a")
    granted(backend, holder)
    refused(backend, mine)
    assert backend.release(holder)
    assert backend.queue(mine, LIMIT, LIMIT)
    granted(backend, mine)
    server.ask("DELETE", f"/v1/kv/{Paths(backend._folder, mine.key).queue}")
    assert backend.release(mine)
    assert keys_of(server, backend) == []


def test_no_more_lines_are_remembered_than_a_few(opened: Opener, server: Consul) -> None:
    backend = opened(server.url)
    line = backend._algorithm.queue
    holder, mine, last = (claim(backend, "a") for _ in range(3))
    granted(backend, holder)
    refused(backend, mine)
    assert backend.release(holder)
    granted(backend, mine, LIMIT)
    refused(backend, last)
    line._contended.update({str(number): 0.0 for number in range(1001)})
    assert backend.release(mine)
    assert list(line._contended) == [mine.key]
    granted(backend, last)
    assert backend.release(last)


def test_a_key_that_somebody_else_has_locked(opened: Opener, server: Consul) -> None:
    """Wait for whoever holds it, though it says nothing of for how long."""
    backend = opened(server.url)
    mine = claim(backend, "a")
    path = f"/v1/kv/{Paths(backend._folder, mine.key).lock}"
    session = server.ask("PUT", "/v1/session/create", {"TTL": "20s", "LockDelay": "0s"})["ID"]
    assert server.ask("PUT", f"{path}?acquire={session}", "none of ours") is True
    refusal = refused(backend, mine)
    assert refusal.remaining is None
    assert refusal.note == ""
    assert refusal.queue
    assert backend.queue(mine, 0.3, LIMIT)
    assert refused(backend, mine).queue
    assert server.ask("PUT", f"{path}?release={session}") is True
    server.ask("DELETE", path)
    server.ask("PUT", f"/v1/session/destroy/{session}")
    granted(backend, mine)
    assert backend.release(mine)


def test_who_stands_in_no_line_has_nothing_to_wait_for(opened: Opener, server: Consul) -> None:
    backend = opened(server.url)
    mine = claim(backend, "a")
    assert backend.queue(mine, LIMIT, LIMIT) is False
    assert backend.withdraw(mine) is False
