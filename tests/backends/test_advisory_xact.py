"""Locks that the caller's own transaction holds: `lock(...).atomic(xact=True)`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, connections
from django.test import TestCase

from django_distlock import (
    AlreadyHeldError,
    InvalidLockError,
    LockNotAcquiredError,
    LockNotHeldError,
    LockTimeoutError,
    UnsupportedOperationError,
    lock,
    lock_all,
    locks,
)
from django_distlock.signals import lock_acquired, lock_contended, lock_released
from tests.backends.test_advisory import advisory_alias
from tests.backends.tools import (
    SERVERS,
    Elsewhere,
    database_alias,
    elsewhere,
    one_value,
    sessions,
)

POSTGRESQL = [store for store in SERVERS if store == "postgresql"]
OTHERS = [store for store in SERVERS if store != "postgresql"]
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
on_postgresql = pytest.mark.parametrize("store", POSTGRESQL)


@pytest.fixture
def alias(store: str) -> Iterator[str]:
    """The alias "advisory", whose sessions no other test has used."""
    with advisory_alias("advisory", store):
        yield "advisory"


def refused(name: str, **options: Any) -> bool:
    """Return whether another thread is refused the lock."""

    def attempt() -> bool:
        with lock(name, using="advisory", wait=0).atomic(xact=True):
            return False

    def judge() -> bool:
        try:
            return attempt()
        except LockNotAcquiredError:
            return True

    return elsewhere(judge)


@on_postgresql
def test_the_transaction_holds_the_lock(store: str, alias: str, name: str) -> None:
    mine = lock(name, using=alias, wait=0)
    with mine.atomic(xact=True) as lease:
        assert connections[store].in_atomic_block
        assert refused(name)
        assert elsewhere(lambda: mine.acquire(wait=0)) is None  # of a session
        assert lease.remaining() > 1e6
        lease.renew()
        lease.renew(5)
        lease.check()
        assert lease.remaining() > 1e6
        assert elsewhere(mine.locked)
    assert not mine.locked()
    assert not refused(name)
    with pytest.raises(LockNotHeldError):
        lease.check()


@on_postgresql
def test_a_session_excludes_transactions(store: str, alias: str, name: str) -> None:
    with lock(name, using=alias):
        assert refused(name)
    assert not refused(name)


@on_postgresql
def test_a_rollback_frees_it(store: str, alias: str, name: str) -> None:
    with pytest.raises(KeyError), lock(name, using=alias).atomic(xact=True) as lease:
        raise KeyError
    assert not refused(name)
    with pytest.raises(LockNotHeldError):
        lease.check()


@on_postgresql
def test_a_transaction_that_fails_is_an_error_of_its_own(store: str, alias: str, name: str) -> None:
    insert = "INSERT INTO django_migrations VALUES (-7, 'a', 'b', now()), (-7, 'a', 'b', now())"
    with pytest.raises(IntegrityError), lock(name, using=alias).atomic(xact=True):
        connections[store].cursor().execute(insert)
    assert not refused(name)


@on_postgresql
def test_it_takes_no_second_connection(store: str, alias: str, name: str) -> None:
    connections[store].ensure_connection()
    database = connections[store].settings_dict["NAME"]
    before = sessions(store, database)  # of which those of earlier tests may end meanwhile
    with lock(name, using=alias).atomic(xact=True):
        assert sessions(store, database) <= before
    assert sessions(store, database) <= before


@on_postgresql
def test_waiters_are_served_in_order(store: str, alias: str, name: str) -> None:
    order: list[int] = []

    def take(number: int) -> Callable[[], None]:
        def work() -> None:
            with lock(name, using=alias, wait=30).atomic(xact=True):
                order.append(number)

        return work

    waiters = []
    with lock(name, using=alias).atomic(xact=True):
        for number in range(4):
            waiters.append(Elsewhere(take(number)).start())
            end = time.monotonic() + 10
            while elsewhere(partial(one_value, store, WAITING)) <= number:
                assert time.monotonic() < end
        assert order == []
    for waiter in waiters:
        waiter.result()
    assert order == [0, 1, 2, 3]


@on_postgresql
def test_a_wait_that_ends_leaves_the_limit_as_it_was(store: str, alias: str, name: str) -> None:
    """Refuse in time; and what is waited for later in the transaction has its own limit."""
    gate = threading.Event()

    def hold() -> None:
        with lock(name, using=alias).atomic(xact=True):
            gate.wait(30)

    holder = Elsewhere(hold).start()
    try:
        while not refused(name):
            time.sleep(0.01)
        begun = time.monotonic()
        with pytest.raises(LockTimeoutError), lock(name, using=alias, wait=0.3).atomic(xact=True):
            pass
        assert 0.3 <= time.monotonic() - begun < 5
        waiter = Elsewhere(lambda: limit_after(name, store)).start()
        time.sleep(0.1)
    finally:
        gate.set()
        holder.result()
    assert waiter.result() == "0"


def limit_after(name: str, store: str) -> str:
    """Return the limit on waiting of the session, after it has waited for the lock."""
    with lock(name, using="advisory", wait=30).atomic(xact=True):
        answer: str = one_value(store, "SELECT current_setting('lock_timeout')")
        return answer


@on_postgresql
def test_tokens_rise_whoever_holds(store: str, alias: str, name: str) -> None:
    tokens = []
    for number in range(8):
        if number % 2:
            with lock(name, using=alias).atomic(xact=True) as lease:
                tokens.append(lease.fencing_token)
        else:
            with lock(name, using=alias) as lease:
                tokens.append(lease.fencing_token)
    assert tokens == sorted(set(tokens))


@on_postgresql
def test_its_holder_would_wait_for_itself(store: str, alias: str, name: str) -> None:
    mine = lock(name, using=alias, wait=0)
    with mine.atomic(xact=True) as outer:
        with pytest.raises(AlreadyHeldError):
            mine.acquire()
        with lock(name, using=alias, reentrant=True) as inner:
            assert inner.fencing_token == outer.fencing_token
        outer.check()
        assert outer.remaining() > 1e6
        with pytest.raises(RuntimeError), lock("other", using=alias).atomic(xact=True):
            pass
        with pytest.raises(LockNotHeldError, match="transaction"):
            outer.detach()
        assert refused(name)


@on_postgresql
def test_a_group_and_a_decorated_function(store: str, alias: str, name: str) -> None:
    @lock(name + "{number}", using=alias, wait=0).atomic(xact=True)
    def work(number: int) -> bool:
        return refused(f"{name}{number}")

    assert work(7)
    names = [f"{name}{number}" for number in range(3)]
    with lock_all(*names, using=alias, wait=0).atomic(xact=True) as leases:
        assert len({lease.fencing_token for lease in leases}) == 3
        assert all(refused(each) for each in names)
    assert not any(refused(each) for each in names)
    theirs = elsewhere(lock(names[1], using=alias).acquire)
    assert theirs is not None
    group = lock_all(*names, using=alias, wait=0)
    with pytest.raises(LockNotAcquiredError), group.atomic(xact=True):
        pass
    theirs.release()
    assert not any(refused(each) for each in names)


@on_postgresql
def test_signals_tell_of_it(store: str, alias: str, name: str) -> None:
    told: list[str] = []

    def hear(signal: Any, **facts: Any) -> None:
        told.append({lock_acquired: "a", lock_contended: "c", lock_released: "r"}[signal])

    for signal in (lock_acquired, lock_contended, lock_released):
        signal.connect(hear)
    try:
        with lock(name, using=alias).atomic(xact=True):
            assert told == ["a"]
            assert refused(name)
        assert told == ["a", "c", "r"]
    finally:
        for signal in (lock_acquired, lock_contended, lock_released):
            signal.disconnect(hear)


@on_postgresql
def test_an_open_transaction_is_no_mistake_here(store: str, name: str) -> None:
    for judged in ("error", "hold", "allow"):
        with advisory_alias("advisory", store, IN_TRANSACTION=judged):
            with lock(name, using="advisory", wait=0).atomic(xact=True):
                assert refused(name)
            assert not refused(name)


@on_postgresql
@pytest.mark.parametrize("level", [3, 4])  # of psycopg: repeatable read, serializable
def test_an_older_snapshot_is_refused(store: str, name: str, level: int) -> None:
    settings = connections.settings[store]
    options = {**settings["OPTIONS"], "isolation_level": level}
    with (
        database_alias("strict", {**settings, "OPTIONS": options}),
        advisory_alias("advisory", "strict"),
    ):
        mine = lock(name, using="advisory").atomic(xact=True)
        with pytest.raises(UnsupportedOperationError, match="needs READ COMMITTED"), mine:
            pass
        assert not lock(name, using="advisory").locked()


@on_postgresql
def test_another_database_is_refused(store: str, alias: str, name: str) -> None:
    with lock(name, using=alias).atomic(store, xact=True):
        assert refused(name)
    mine = lock(name, using=alias).atomic("default", xact=True)
    with pytest.raises(InvalidLockError, match=f"in database '{store}'"), mine:
        pass
    assert not refused(name)


@pytest.mark.parametrize("store", OTHERS)
def test_another_database_system_is_refused(store: str, alias: str, name: str) -> None:
    mine = lock(name, using=alias).atomic(xact=True)
    with pytest.raises(UnsupportedOperationError, match="needs PostgreSQL"), mine:
        pass
    assert not lock(name, using=alias).locked()


@pytest.mark.parametrize("using", ["locmem", "default", "redis"])
def test_another_backend_is_refused(using: str, name: str) -> None:
    if using not in locks:
        using = "dummy"
    mine = lock(name, using=using).atomic(xact=True)
    with pytest.raises(UnsupportedOperationError, match="needs the advisory backend"), mine:
        pass


@on_postgresql
def test_in_a_testcase_it_is_held_until_the_block_is_rolled_back(
    store: str, alias: str, name: str
) -> None:
    class Case(TestCase):
        databases = {store}  # noqa: RUF012 - as Django has it

        def runTest(self) -> None:
            with lock(name, using=alias).atomic(xact=True) as lease:
                lease.check()
            with lock(name, using=alias).atomic(xact=True) as lease:
                lease.check()

    outcome = Case().run()
    assert outcome is not None
    assert outcome.wasSuccessful(), outcome.errors + outcome.failures
    assert not refused(name)
