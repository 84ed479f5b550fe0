"""Row locks: two threads that cross, waiters that nobody asks for again, and rows that vanish."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any
from unittest import mock

import pytest
from django.db import connections

from django_distlock import LockBackendError, lock
from django_distlock.backends import row as module
from django_distlock.backends.row import RowBackend
from django_distlock.backends.row.session import LockSession
from django_distlock.core.values import Claim, Grant, HolderInfo, Refusal
from tests.backends.rowlocks import on_servers, row, row_alias, taken, waits
from tests.backends.tools import LIMIT, SERVERS, Elsewhere, soon


class Mutex:
    """The mutex of a session, which tells when somebody asks for it."""

    def __init__(self, session: LockSession, before: Callable[[], object] = lambda: None) -> None:
        self.inner, self.asked, self.before = session.mutex, threading.Event(), before
        session.mutex = self  # type: ignore[assignment]

    def acquire(self, blocking: bool = True) -> bool:
        self.before()
        self.asked.set()
        return self.inner.acquire(blocking)

    def release(self) -> None:
        self.inner.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def claimed(backend: RowBackend, name: str, owner: str) -> Claim:
    """Return a claim of an owner."""
    return Claim(name, backend.key(name), owner, 20.0)


def granted(backend: RowBackend, claim: Claim, limit: float = 1.0) -> LockSession:
    """Take what must be there to be had; return its session."""
    assert isinstance(backend.try_acquire(claim, limit), Grant)
    return backend._sessions[claim.owner]


def queued(backend: RowBackend, claim: Claim) -> LockSession:
    """Join the server's queue; return the session that stands there."""
    assert isinstance(backend.try_acquire(claim, 1.0), Refusal)
    return backend._sessions[claim.owner]


VERBS: dict[str, Callable[[RowBackend, Claim], Any]] = {
    "acquire": lambda backend, claim: backend.try_acquire(claim, 1.0),
    "renew": lambda backend, claim: backend.renew(claim),
    "release": lambda backend, claim: backend.release(claim),
}


@on_servers
@pytest.mark.parametrize("verb", VERBS)
def test_who_comes_while_the_lock_is_released_has_it_no_more(
    store: str, name: str, verb: str
) -> None:
    backend = row(f"row-{store}")
    mine = claimed(backend, name, "mine")
    session = granted(backend, mine)
    mutex = Mutex(session)
    with mutex.inner:
        other = Elsewhere(lambda: VERBS[verb](backend, mine)).start()
        assert mutex.asked.wait(LIMIT)
        assert backend.release(mine)
    assert other.result() == (Refusal() if verb == "acquire" else False)
    taken(name, f"row-{store}", wait=0).release()


@on_servers
def test_an_attempt_that_is_withdrawn_before_it_was_made(store: str, name: str) -> None:
    with row_alias("rows", store, OPTIONS={"CONNECTIONS": 1}):
        backend = row("rows")
        taken(name, "rows").release()
        ((_, idle),) = backend._pool._idle._all
        mutex, mine = Mutex(idle), claimed(backend, name, "mine")
        with mutex.inner:
            other = Elsewhere(lambda: backend.try_acquire(mine, 1.0)).start()
            assert mutex.asked.wait(LIMIT)
            assert not backend.release(mine)
        assert other.result() == Refusal()
        taken(name, "rows", wait=0).release()


@on_servers
def test_who_gives_up_when_it_is_his_turn_leaves_the_lock_free(store: str, name: str) -> None:
    """The server has granted it, and nobody has read so."""
    backend = row(f"row-{store}")
    first, second = claimed(backend, name, "first"), claimed(backend, name, "second")
    granted(backend, first)
    session = queued(backend, second)
    assert backend.release(first)
    assert session.is_answered(LIMIT)
    assert not backend.release(second)
    assert isinstance(backend.try_acquire(claimed(backend, name, "third"), 0.0), Grant)
    assert backend.release(claimed(backend, name, "third"))


@on_servers
def test_a_waiter_that_nobody_asks_for_again_leaves_the_queue(
    store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a thread that was killed in its wait."""
    monkeypatch.setattr(module, "ABANDONED", 0.05)
    alias = f"row-{store}"
    backend = row(alias)
    first, lost = claimed(backend, name, "first"), claimed(backend, name, "lost")
    granted(backend, first)
    session = queued(backend, lost)
    time.sleep(0.1)
    with session.mutex:  # somebody is about to look after all
        Elsewhere(lambda: taken(f"{name}2", alias).release()).start().result()
        assert waits(name, alias)
    taken(f"{name}2", alias).release()
    assert soon(lambda: not waits(name, alias))
    assert backend.release(first)
    taken(name, alias, wait=0).release()


@on_servers
def test_a_session_that_is_released_while_it_is_given_up_is_counted_once(
    store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ABANDONED", 0.05)
    with row_alias("rows", store):
        backend = row("rows")
        first, lost = claimed(backend, name, "first"), claimed(backend, name, "lost")
        granted(backend, first)
        session = queued(backend, lost)
        time.sleep(0.1)
        seen: list[bool] = []

        def cross() -> None:
            if not seen:
                seen.append(True)
                seen.append(backend.release(lost))

        Mutex(session, cross)
        taken(f"{name}2", "rows").release()
        assert soon(lambda: seen == [True, False])  # waiters are given up in the background
        assert backend.release(first)
        assert backend._pool._out == 0


@on_servers
def test_what_is_remembered_is_bounded_and_may_be_forgotten(
    store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KNOWN", 2)
    monkeypatch.setattr(module, "MOST_REFUSED", 2)
    with row_alias("rows", store):
        backend = row("rows")
        mine = [claimed(backend, f"{name}:{number}", "mine" + str(number)) for number in range(3)]
        for claim in mine:
            granted(backend, claim)
        assert len(backend._known) <= 2
        others = [claimed(backend, f"{name}:0", f"other{number}") for number in range(4)]
        for claim in others:
            assert isinstance(backend.try_acquire(claim, 0.0), Refusal)
        assert len(backend._refused) <= 2
        for claim in others:
            assert not backend.renew(claim)
            assert not backend.release(claim)
        for claim in mine:
            assert backend.release(claim)


@on_servers
def test_a_row_that_is_removed_each_time_is_an_error_that_says_so(store: str, name: str) -> None:
    backend = row(f"row-{store}")
    made: list[str] = []
    kind = type(backend.dialect())
    make = kind.make

    def vanish(self: Any, session: LockSession, claim: Claim) -> None:
        make(self, session, claim)
        made.append(claim.key)
        with connections[store].cursor() as cursor:
            cursor.execute("DELETE FROM distlock_row WHERE digest = %s", [claim.key])

    with (
        mock.patch.object(kind, "make", vanish),
        pytest.raises(LockBackendError, match="removed each time"),
    ):
        lock(name, using=f"row-{store}", wait=0).acquire()
    assert len(made) % 3 == 0  # three times an attempt, of which the engine makes some
    assert set(made) == {backend.key(name)}
    taken(name, f"row-{store}", wait=0).release()


@on_servers
def test_a_session_that_has_waited_is_used_again(store: str, name: str) -> None:
    """That the row was locked is an answer, and says nothing against the session."""
    with row_alias("rows", store):
        backend = row("rows")
        first, second = claimed(backend, name, "first"), claimed(backend, name, "second")
        granted(backend, first)
        session = queued(backend, second)
        raw = session.connection.connection
        assert backend.release(first)
        assert session.is_answered(LIMIT)
        assert granted(backend, second) is session
        assert backend.release(second)
        assert isinstance(backend.try_acquire(first, 0.0), Grant)
        assert isinstance(backend.try_acquire(second, 0.0), Refusal)
        assert backend.release(first)
        idle = [each.connection.connection for _, each in backend._pool._idle._all]
        assert len(idle) == 2
        assert any(each is raw for each in idle)


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "mariadb"])
def test_a_row_that_another_is_just_making_is_held(store: str, name: str) -> None:
    alias = f"row-{store}"
    backend = row(alias)
    raw = connections[store].copy()
    with raw.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(
            "INSERT INTO distlock_row (digest, name, token, session, owner, note) "
            "VALUES (%s, '', 1, 0, '', '')",
            [backend.key(name)],
        )
        assert lock(name, using=alias, wait=0).acquire() is None
        cursor.execute("ROLLBACK")
    raw.close()
    taken(name, alias, wait=0).release()


@on_servers
def test_a_holder_with_much_to_tell(store: str, name: str) -> None:
    """More than the socket takes at once."""
    backend = row(f"row-{store}")
    note = HolderInfo(metadata={"why": "x" * 3_000_000}).dumps()
    mine = Claim(name, backend.key(name), "1" * 32, 20.0, note)
    assert isinstance(backend.try_acquire(mine, LIMIT), Grant)
    assert len(str(backend.inspect(name))) > 3_000_000
    assert backend.release(mine)


class Blind(asyncio.SelectorEventLoop):
    """An event loop that cannot watch sockets, as that of Windows."""

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


@on_servers
@pytest.mark.parametrize("why", ["loop", "driver"])
def test_tasks_poll_where_a_socket_cannot_be_watched(store: str, name: str, why: str) -> None:
    alias = f"row-{store}"
    lease = taken(name, alias)

    async def main() -> None:
        waiting = asyncio.create_task(lock(name, using=alias, wait=20).aacquire())
        await asyncio.sleep(0.15)
        assert not waiting.done()
        await asyncio.to_thread(lease.release)
        theirs = await waiting
        assert theirs
        await theirs.arelease()

    able = mock.patch.object(LockSession, "can_send", return_value=False)
    with asyncio.Runner(loop_factory=Blind if why == "loop" else None) as runner:
        if why == "driver":
            with able:
                runner.run(main())
        else:
            runner.run(main())
    assert soon(lambda: not waits(name, alias))
