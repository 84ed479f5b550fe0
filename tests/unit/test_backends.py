"""What every backend has from its base."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_distlock import (
    InvalidLockError,
    LeaseLostError,
    LockBackendError,
    LockInfo,
    LockNotHeldError,
    lock,
)
from django_distlock.backends.base import BaseLockBackend
from django_distlock.conf import AliasConf
from django_distlock.exceptions import StoreConflictError

from .tools import (
    LIMIT,
    Conflict,
    Down,
    Gate,
    UnitBackend,
    claim_of,
    eventually,
    in_thread,
    opened,
)

# -- errors of the store -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("error", "kind"), [(Down("no route"), LockBackendError), (Conflict("x"), StoreConflictError)]
)
def test_the_stores_errors_become_ours(
    backend: UnitBackend, mode: str, error: Exception, kind: type[LockBackendError]
) -> None:
    backend.before["inspect"].append(error)

    def look() -> Any:
        if mode == "sync":
            return backend.call("inspect", "a", name="a")
        return asyncio.run(backend.acall("inspect", "a", name="a"))

    with pytest.raises(LockBackendError) as caught:
        look()
    assert type(caught.value) is kind
    assert caught.value.__cause__ is error
    assert (caught.value.name, caught.value.alias) == ("a", backend.alias)
    assert str(caught.value).startswith(
        f"Lock store error while inspecting: {type(error).__name__}: "
    )
    assert "Look at the store and its log" in str(caught.value)


def test_an_error_without_words_is_shown_by_its_kind(backend: UnitBackend) -> None:
    backend.before["inspect"].append(Down())
    with pytest.raises(LockBackendError, match=r"Down: Down\(\)"):
        backend.call("inspect", "a")


def test_other_errors_are_not_hidden(backend: UnitBackend) -> None:
    backend.before["inspect"].append(KeyError("a bug"))
    with pytest.raises(KeyError):
        backend.call("inspect", "a")


def test_a_store_with_an_asyncio_client_is_called_on_the_loop() -> None:
    class Native(UnitBackend):
        async def ainspect(self, name: str) -> LockInfo | None:
            threads.append(threading.current_thread())
            if name == "down":
                raise Down("x")
            return None

    threads: list[threading.Thread] = []

    async def main() -> None:
        assert await lock("a", using=backend.alias).alocked() is False
        with pytest.raises(LockBackendError):
            await lock("down", using=backend.alias).alocked()

    with opened(Native) as backend:
        asyncio.run(main())
    assert threads == [threading.current_thread()] * 2


def test_a_store_without_one_is_called_on_a_thread_of_the_alias(backend: UnitBackend) -> None:
    names: list[str] = []

    def look() -> bool:
        names.append(threading.current_thread().name)
        return False

    backend.gates["inspect"] = Gate(only=look)
    asyncio.run(lock("a", using=backend.alias).alocked())
    assert len(names) == 1
    assert names[0].startswith(f"distlock-{backend.alias}")


def test_a_thread_sensitive_store_is_called_where_djangos_database_is() -> None:
    class Sensitive(UnitBackend):
        thread_sensitive = True

        def inspect(self, name: str) -> LockInfo | None:
            threads.append(threading.get_ident())
            return super().inspect(name)

    threads: list[int] = []

    async def main() -> None:
        assert await lock("a", using=backend.alias).alocked() is False
        threads.append(await sync_to_async(threading.get_ident)())
        backend.before["inspect"].append(Down("x"))
        with pytest.raises(LockBackendError):
            await lock("a", using=backend.alias).alocked()

    with opened(Sensitive) as backend:
        asyncio.run(main())
    assert threads[0] == threads[1] == threads[2]


def test_a_call_cancelled_before_its_thread_began_never_begins() -> None:
    # Four calls fill the alias's threads; the fifth waits, and is given up.
    with opened() as backend:
        gate = backend.gates["inspect"] = Gate()

        async def main() -> None:
            look = [asyncio.create_task(backend.acall("inspect", f"{n}")) for n in range(4)]
            assert await asyncio.to_thread(eventually, lambda: backend.count("inspect") == 4)
            late = asyncio.create_task(backend.acall("inspect", "late"))
            await asyncio.sleep(0.01)
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(late), LIMIT)
            gate.open.set()
            await asyncio.gather(*look)

        asyncio.run(main())
        assert ("inspect", "late") not in backend.calls


def test_a_closed_backend_has_no_threads() -> None:
    with opened() as backend:
        asyncio.run(lock("a", using=backend.alias).alocked())
        executor = backend._executor
        assert executor is not None
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(print)
    backend.close()


# -- what is not implemented -------------------------------------------------------------------


def test_a_subclass_has_to_implement_the_primitives() -> None:
    bare = BaseLockBackend("bare", AliasConf(backend="x"))
    claim = claim_of(UnitBackend("u", AliasConf(backend="x")), "a")
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("try_acquire", (claim, 1.0)),
        ("renew", (claim,)),
        ("release", (claim,)),
        ("inspect", ("a",)),
        ("scan", ("",)),
    ]
    for verb, args in calls:
        with pytest.raises(NotImplementedError):
            getattr(bare, verb)(*args)
    assert bare.check() == []
    assert bare.max_ttl(5.0) == 5.0
    assert not bare.is_conflict(Down("x"))
    assert bare.command_timeout == 5.0
    bare.close_thread()


def test_an_option_of_the_base() -> None:
    conf = AliasConf(backend="x", options={"COMMAND_TIMEOUT": 2})
    assert UnitBackend("u", conf).command_timeout == 2.0


# -- looking -----------------------------------------------------------------------------------


def test_held_shows_what_is_held(backend: UnitBackend) -> None:
    before = datetime.now(UTC)
    with lock("a:1", using=backend.alias, ttl=20), lock("b:1", using=backend.alias):
        assert sorted(info.name for info in backend.held()) == ["a:1", "b:1"]
        (info,) = backend.held(prefix="a:")
    assert info.name == "a:1"
    assert info.acquired_at is not None
    assert before - timedelta(seconds=1) < info.acquired_at < datetime.now(UTC)
    assert info.expires_at is not None
    assert 15 < (info.expires_at - info.acquired_at).total_seconds() < 21
    assert info.waiters is None
    assert list(backend.held()) == []


def test_held_in_async_code(backend: UnitBackend) -> None:
    async def main() -> list[str]:
        found: AsyncIterator[LockInfo] = backend.aheld(prefix="a")
        return [info.name async for info in found]

    with lock("a", using=backend.alias), lock("b", using=backend.alias):
        assert asyncio.run(main()) == ["a"]


def test_a_store_that_fails_while_it_is_looked_at_says_so() -> None:
    class Failing(UnitBackend):
        def scan(self, prefix: str) -> Iterator[LockInfo]:
            yield from super().scan(prefix)
            raise Down("in the middle")

    with opened(Failing) as backend:
        with pytest.raises(LockBackendError, match="while listing locks: Down: in the middle"):
            list(backend.held())

        async def main() -> None:
            async for _ in backend.aheld():
                pytest.fail("nothing is held")

        with pytest.raises(LockBackendError, match="listing"):
            asyncio.run(main())


# -- forcing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_lock_can_be_broken(backend: UnitBackend, mode: str) -> None:
    def force(token: int | None = None) -> LockInfo:
        if mode == "sync":
            return backend.force_release("a", fencing_token=token)
        return asyncio.run(backend.aforce_release("a", fencing_token=token))

    with pytest.raises(LockNotHeldError, match="it is not held"):
        force()
    lease = in_thread(lock("a", using=backend.alias).acquire)
    assert lease is not None
    with pytest.raises(LockNotHeldError, match=f"token {lease.fencing_token} holds it"):
        force(lease.fencing_token - 1)
    assert backend.holds("a")
    info = force(lease.fencing_token)
    assert (info.name, info.fencing_token) == ("a", lease.fencing_token)
    assert not backend.holds("a")
    with pytest.raises(LeaseLostError):
        lease.renew()


def test_what_changed_hands_meanwhile_is_not_broken(backend: UnitBackend) -> None:
    lease = in_thread(lock("a", using=backend.alias).acquire)
    assert lease is not None
    others = []

    def change_hands() -> bool:
        backend.drop("a")
        others.append(in_thread(lock("a", using=backend.alias, wait=0).acquire))
        return False

    backend.gates["release"] = Gate(only=change_hands)
    with pytest.raises(LockNotHeldError, match="another grant holds it"):
        backend.force_release("a")
    (other,) = others
    assert other is not None
    other.check()
    assert backend.holds("a")


def test_breaking_in_conflict_is_tried_again(backend: UnitBackend) -> None:
    assert in_thread(lock("a", using=backend.alias).acquire) is not None
    backend.before["release"] += [Conflict("x")] * 2
    backend.force_release("a")
    assert not backend.holds("a")


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_name_that_is_none_cannot_be_broken(backend: UnitBackend, name: Any) -> None:
    with pytest.raises(InvalidLockError):
        backend.force_release(name)
    assert backend.calls == []
