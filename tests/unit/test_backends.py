"""What every backend has from its base, and the two that need no store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_distlock import (
    InvalidLockError,
    LeaseLostError,
    LockBackendError,
    LockInfo,
    LockNotHeldError,
    lock,
)
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.dummy import DummyBackend
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.conf import AliasConf
from django_distlock.exceptions import StoreConflictError
from django_distlock.values import Grant, Refusal

from .tools import (
    LIMIT,
    Conflict,
    Down,
    Gate,
    UnitBackend,
    VirtualClock,
    claim_of,
    eventually,
    in_thread,
    opened,
)

# -- errors of the store -----------------------------------------------------------------------


@pytest.mark.parametrize("world", ["sync", "async"])
@pytest.mark.parametrize(
    ("error", "kind"), [(Down("no route"), LockBackendError), (Conflict("x"), StoreConflictError)]
)
def test_the_stores_errors_become_ours(
    backend: UnitBackend, world: str, error: Exception, kind: type[LockBackendError]
) -> None:
    backend.before["inspect"].append(error)
    with pytest.raises(LockBackendError) as caught:
        if world == "sync":
            backend.call("inspect", "a", name="a")
        else:
            asyncio.run(backend.acall("inspect", "a", name="a"))
    assert type(caught.value) is kind
    assert caught.value.__cause__ is error
    assert (caught.value.name, caught.value.alias) == ("a", backend.alias)
    assert str(caught.value).startswith(f"The store failed at inspect: {type(error).__name__}: ")
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
    gate = backend.gates["inspect"] = Gate(only=lambda: not names.append(threads_name()))
    gate.open.set()
    names: list[str] = []
    asyncio.run(lock("a", using=backend.alias).alocked())
    assert len(names) == 1
    assert names[0].startswith(f"distlock-{backend.alias}")


def threads_name() -> str:
    """Return the name of the current thread."""
    return threading.current_thread().name


def test_a_thread_sensitive_store_is_called_where_djangos_database_is() -> None:
    from asgiref.sync import sync_to_async

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
        assert backend._executor is not None
    assert backend._executor is None
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
        with pytest.raises(LockBackendError, match="failed at scan: Down: in the middle"):
            list(backend.held())

        async def main() -> None:
            async for _ in backend.aheld():
                pytest.fail("nothing is held")

        with pytest.raises(LockBackendError, match="scan"):
            asyncio.run(main())


# -- forcing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("world", ["sync", "async"])
def test_a_lock_can_be_broken(backend: UnitBackend, world: str) -> None:
    def force(token: int | None = None) -> LockInfo:
        if world == "sync":
            return backend.force_release("a", fencing_token=token)
        return asyncio.run(backend.aforce_release("a", fencing_token=token))

    with pytest.raises(LockNotHeldError, match="nobody holds it"):
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
    with pytest.raises(LockNotHeldError, match="changed hands"):
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


# -- locmem ------------------------------------------------------------------------------------


def test_the_same_owner_is_granted_the_same_token_with_its_ttl_anew(clock: VirtualClock) -> None:
    with opened(clock=clock) as backend:
        claim = claim_of(backend, "a", ttl=10)
        first = backend.try_acquire(claim, 1.0)
        clock.advance(9)
        assert backend.try_acquire(claim, 1.0) == first
        clock.advance(9)
        refusal = backend.try_acquire(claim_of(backend, "a", owner="other"), 1.0)
        assert refusal == Refusal(pytest.approx(1.0), "")
        clock.advance(1)
        assert not backend.renew(claim)
        assert not backend.release(claim)
        assert backend.inspect("a") is None
        assert list(backend.scan("")) == []
        second = backend.try_acquire(claim_of(backend, "a", owner="other"), 1.0)
        assert isinstance(first, Grant)
        assert isinstance(second, Grant)
        assert second.fencing_token > first.fencing_token


def test_aliases_of_one_location_share_their_locks() -> None:
    with (
        opened(location="a place of two") as one,
        opened(location="a place of two") as other,
        lock("a", using=one.alias),
    ):
        assert lock("a", using=other.alias, wait=0).acquire() is None


def test_a_forked_child_begins_with_none(backend: UnitBackend) -> None:
    backend.try_acquire(claim_of(backend, "a"), 1.0)
    with backend._space.mutex:  # as if another thread had been inside at the fork
        backend.forget_parent()
        assert not backend.holds("a")


def test_it_says_that_it_is_of_one_process() -> None:
    assert LocMemBackend.scope == DummyBackend.scope == "process"
    assert LocMemBackend.exclusive
    assert not DummyBackend.exclusive


# -- dummy -------------------------------------------------------------------------------------


def test_the_dummy_lets_everybody_in_with_rising_tokens() -> None:
    mine = lock("a", using="dummy", wait=0)
    with mine as lease:
        other = in_thread(mine.acquire)
        assert other is not None
        assert other.fencing_token > lease.fencing_token
        lease.renew()
        lease.check()
        assert not mine.locked()
        other.release()
    dummy = DummyBackend("dummy", AliasConf(backend="x"))
    assert list(dummy.held()) == []
    with pytest.raises(LockNotHeldError):
        dummy.force_release("a")
