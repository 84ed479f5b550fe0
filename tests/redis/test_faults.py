"""What a Redis and the network before it do to locks: deaths, lost answers, full memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_distlock import LockBackendError, lock
from django_distlock.backends.redis.connection import Connection
from django_distlock.core.values import Grant
from tests.claims import claim, granted, refused, soon, started
from tests.redis.tools import Opener
from tests.servers import Redis

LONG = 20.0
WAYS: list[Any] = [
    pytest.param({}, id="scripts"),
    pytest.param({"SCRIPTING": False}, id="transactions"),
]


@pytest.mark.parametrize("options", WAYS)
def test_a_server_without_memory(name: str, opened: Opener, options: dict[str, Any]) -> None:
    with Redis(persistent=False) as server:
        backend = opened(server.url(), **options)
        mine, waiter = claim(backend, name), claim(backend, name)
        token = granted(backend, mine)
        server.execute("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(LockBackendError, match="raise its maxmemory"):
            lock("other", using=backend.alias).acquire()
        if options:  # a server without memory queues no command of a transaction
            # But Valkey those that need none.
            valkey = "valkey" in server.execute("INFO", "server")
            for verb in ("release",) if valkey else ("renew", "release"):
                with pytest.raises(LockBackendError, match="raise its maxmemory"):
                    backend.call(verb, mine)
            info = backend.inspect(name)
            assert info is not None  # it is kept, and can be seen
            assert info.owner == mine.owner
            refused(backend, waiter)  # which writes nothing
        else:
            assert backend.renew(mine)
            assert backend.release(mine)
        server.execute("CONFIG", "SET", "maxmemory", "0")
        if options:  # the connection is as good as before
            assert backend.renew(mine)
            assert backend.release(mine)
        assert granted(backend, waiter) > token
        assert backend.release(waiter)


def test_a_lock_that_a_full_server_did_not_free_ends_with_its_lease(
    name: str, opened: Opener
) -> None:
    with Redis(persistent=False) as server:
        backend = opened(server.url(), SCRIPTING=False)
        mine, theirs = claim(backend, name, ttl=2.0), claim(backend, name)
        token = granted(backend, mine)
        server.execute("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(LockBackendError, match="raise its maxmemory"):
            backend.call("release", mine)
        soon(lambda: backend.inspect(name) is None)
        server.execute("CONFIG", "SET", "maxmemory", "0")
        assert granted(backend, theirs) > token
        assert backend.release(theirs)


def test_a_replica_is_refused(name: str, opened: Opener) -> None:
    with Redis(persistent=False) as master, Redis(persistent=False, replica_of=master) as replica:
        replica.wait_for_link()
        backend = opened(replica.url())
        with pytest.raises(LockBackendError, match="locks need the master"):
            lock(name, using=backend.alias).acquire()
        assert [each.id for each in backend.check_deploy()] == ["distlock.E024"]


def test_too_many_clients(name: str, opened: Opener) -> None:
    with Redis(persistent=False) as server:
        server.execute("CONFIG", "SET", "maxclients", "2")
        one, two = opened(server.url()), opened(server.url())
        mine = claim(one, name)
        granted(one, mine)
        granted(two, claim(two, "other"))
        third = opened(server.url())
        with pytest.raises(LockBackendError, match="raise its maxclients"):
            lock(name, using=third.alias).acquire(wait=0)
        assert one.release(mine)


def test_an_evicting_server_is_warned_of(opened: Opener) -> None:
    with Redis(persistent=False) as server:
        backend = opened(server.url())
        assert backend.check_deploy() == []
        server.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert backend.check_deploy() == []  # it has no limit, so it evicts nothing
        server.execute("CONFIG", "SET", "maxmemory", "1gb")
        assert [each.id for each in backend.check_deploy()] == ["distlock.W012"]
        server.kill()
        assert [each.id for each in backend.check_deploy()] == ["distlock.W013"]
        assert backend.check() == []


def test_scripts_are_sent_again_when_the_server_forgot_them(
    server: Redis, opened: Opener, name: str
) -> None:
    backend = opened(server.url())

    async def main() -> None:
        for _ in range(2):
            server.execute("SCRIPT", "FLUSH")
            mine = claim(backend, name)
            assert isinstance(await backend.atry_acquire(mine, LONG), Grant)
            server.execute("SCRIPT", "FLUSH")
            assert await backend.arenew(mine)
            server.execute("SCRIPT", "FLUSH")
            assert await backend.arelease(mine)

    asyncio.run(main())
    for _ in range(2):
        mine = claim(backend, name)
        server.execute("SCRIPT", "FLUSH")
        granted(backend, mine)
        for step in (backend.renew, backend.release):
            server.execute("SCRIPT", "FLUSH")
            assert step(mine)
    assert int(server.info("number_of_cached_scripts")) >= 1


def test_a_server_that_forbids_scripts(name: str, opened: Opener) -> None:
    with Redis(persistent=False, options=("--rename-command", "EVALSHA", "")) as server:
        server.execute("ACL", "SETUSER", "default", "-@scripting")
        scripted, other = opened(server.url()), opened(server.url(), SCRIPTING=False)
        with pytest.raises(LockBackendError, match="'SCRIPTING': False"):
            lock(name, using=scripted.alias).acquire(wait=0)
        with lock(name, using=other.alias) as lease:
            lease.renew()
            assert [info.name for info in other.held()] == [name]
        assert list(other.held()) == []


def test_a_transaction_that_others_crossed_is_begun_anew(
    server: Redis, opened: Opener, name: str
) -> None:
    backend = opened(server.url(), SCRIPTING=False)
    mine, theirs = claim(backend, name), claim(backend, name)
    talk = backend._way.acquire(mine, b"")
    wire = Connection(backend.located, 5.0)
    looked = wire.ask_all(next(talk), 5.0)
    token = started_and_done(lambda: granted(backend, theirs))  # on another connection
    again = talk.send(wire.ask_all(talk.send(looked), 5.0))
    with pytest.raises(StopIteration) as stop:
        talk.send(wire.ask_all(again, 5.0))
    assert stop.value.value.queue  # refused: it was read anew
    info = backend.inspect(name)
    assert info is not None
    assert (info.owner, info.fencing_token) == (theirs.owner, token)
    # So with a release and a renewal: what was read is no longer so.
    for begin in (backend._way.release, lambda each: backend._way.renew([each])):
        old, new = theirs, claim(backend, name)
        step: Any = begin(old)
        commands = step.send(wire.ask_all(next(step), 5.0))
        started_and_done(lambda old=old: backend.release(old))
        started_and_done(lambda new=new: granted(backend, new))
        again = step.send(wire.ask_all(commands, 5.0))
        with pytest.raises(StopIteration) as stop:
            step.send(wire.ask_all(again, 5.0))
        assert stop.value.value in (False, [False])
        assert backend.renew(new)
        theirs = new
    assert backend.release(theirs)
    wire.drop()


def started_and_done(work: Any) -> Any:
    """Do work on a thread of its own, so on a connection of its own, and return its answer."""
    done: list[Any] = []
    started(lambda: done.append(work())).join(LONG)
    return done[0]


def test_a_failover_to_a_replica_that_had_not_received_the_lock(name: str, opened: Opener) -> None:
    with Redis(persistent=False) as master, Redis(persistent=False, replica_of=master) as replica:
        replica.wait_for_link()
        old, new = opened(master.url()), opened(replica.url())
        mine, theirs = claim(old, name), claim(new, name)
        replica.promote()  # before it hears of the grant
        token = granted(old, mine)
        # Two hold it now, which nobody can keep from happening; a row that has seen the later
        # token refuses the earlier one.
        assert granted(new, theirs) > token
        master.kill()
        with pytest.raises(LockBackendError):
            old.call("renew", mine)
        assert not new.renew(mine)
        assert new.renew(theirs)
        assert new.release(theirs)
