"""The same faults in each way a command may go: of threads and tasks, by scripts and transactions.

`test_faults.py` has those that need only one of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from django_distlock import Lease, LeaseLostError, LockBackendError, lock
from django_distlock.backends.redis import RedisBackend
from django_distlock.backends.redis.records import short_owner
from django_distlock.core.values import Claim, Grant
from django_distlock.testing.runners import RUNNERS, Actor, Runner
from tests.claims import claim
from tests.proxy import Proxy
from tests.redis.tools import Opener
from tests.servers import Redis

LONG = 20.0


@pytest.fixture(params=[{}, {"SCRIPTING": False}], ids=["scripts", "transactions"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """OPTIONS of the alias."""
    return dict(request.param)


@pytest.fixture(params=sorted(RUNNERS))
def runner(request: pytest.FixtureRequest) -> Runner:
    """Threads that use the sync API, or tasks that use the async one."""
    return RUNNERS[request.param]("")


def play(runner: Runner, body: Callable[[], Awaitable[None]]) -> None:
    """Run a test in its mode."""

    async def main() -> None:
        async with runner:
            await body()

    asyncio.run(main())


async def granted(actor: Actor, backend: RedisBackend, mine: Claim) -> int:
    """Have an attempt succeed; return the token."""
    answer = await actor.call(backend, "try_acquire", mine, LONG)
    return int(answer.fencing_token)


async def through(actor: Actor, proxy: Proxy, opened: Opener, **options: Any) -> RedisBackend:
    """Open an alias through the proxy, and make it connect."""
    backend = opened(f"redis://127.0.0.1:{proxy.port}/0", **options)
    warm = claim(backend, "warm")
    await granted(actor, backend, warm)
    await actor.call(backend, "release", warm)
    return backend


@pytest.mark.parametrize("to", ["request", "answer"])
def test_a_connection_reset_in_the_middle(
    runner: Runner,
    proxy: Proxy,
    opened: Opener,
    name: str,
    options: dict[str, Any],
    to: Literal["request", "answer"],
) -> None:
    async def body() -> None:
        actor = runner.actor()
        backend = await through(actor, proxy, opened, **options)
        for number in range(5):
            mine = claim(backend, f"{name}{number}")
            fault = proxy.fault(short_owner(mine.owner), to=to, keep=10 * number)
            token = await granted(actor, backend, mine)
            await asyncio.to_thread(fault.wait)
            assert await granted(actor, backend, mine) == token
            assert await actor.call(backend, "release", mine)

    play(runner, body)


def test_the_answer_to_an_attempt_is_lost(
    runner: Runner, proxy: Proxy, opened: Opener, name: str, options: dict[str, Any]
) -> None:
    async def body() -> None:
        actor = runner.actor()
        backend = await through(actor, proxy, opened, **options)
        mine = claim(backend, name)
        fault = proxy.fault(short_owner(mine.owner))
        answer = await actor.call(backend, "try_acquire", mine, LONG)
        assert isinstance(answer, Grant)
        await asyncio.to_thread(fault.wait)
        assert await actor.call(backend, "try_acquire", mine, LONG) == answer
        info = await actor.call(backend, "inspect", name)
        assert info is not None
        assert info.fencing_token == answer.fencing_token
        assert await actor.call(backend, "release", mine)

    play(runner, body)


def test_the_answer_to_a_release_is_lost(
    runner: Runner, proxy: Proxy, opened: Opener, name: str, options: dict[str, Any]
) -> None:
    async def body() -> None:
        actor = runner.actor()
        backend = await through(actor, proxy, opened, **options)
        mine = claim(backend, name)
        await granted(actor, backend, mine)
        fault = proxy.fault(b"EXEC" if options else short_owner(mine.owner))
        # What the second one finds freed, the first has freed.
        assert await actor.call(backend, "release", mine) is True
        await asyncio.to_thread(fault.wait)
        assert await actor.call(backend, "inspect", name) is None

    play(runner, body)


def test_a_server_that_was_killed_and_comes_back(
    runner: Runner, opened: Opener, name: str, options: dict[str, Any]
) -> None:
    async def body(server: Redis) -> None:
        alias = opened(server.url(), **options).alias
        holder, waiter = runner.actor(), runner.actor()
        lease = await holder.take(lock(name, using=alias))
        server.kill()
        with pytest.raises(LockBackendError, match=f"Look at redis://127.0.0.1:{server.port}"):
            await waiter.acquire(lock("other", using=alias), wait=0)
        server.start()
        await holder.renew(lease)  # the connection was closed, and the lock was kept
        waiting = waiter.begin(lock(name, using=alias), wait=LONG)
        while int(await asyncio.to_thread(server.info, "blocked_clients")) == 0:
            assert not waiting.done()
        await holder.release(lease)
        theirs = await waiting
        assert isinstance(theirs, Lease)
        assert theirs.fencing_token > lease.fencing_token
        await waiter.release(theirs)

    with Redis(persistent=True) as server:
        play(runner, lambda: body(server))


def test_a_server_that_comes_back_empty(
    runner: Runner, alone: Redis, opened: Opener, name: str, options: dict[str, Any]
) -> None:
    async def body() -> None:
        alias = opened(alone.url(), **options).alias
        actor = runner.actor()
        lease = await actor.take(lock(name, using=alias, renew=False))
        alone.kill()
        alone.start()
        with pytest.raises(LeaseLostError):
            await actor.renew(lease)
        theirs = await actor.take(lock(name, using=alias))
        assert theirs.fencing_token > lease.fencing_token
        await actor.release(theirs)

    play(runner, body)


def test_a_grant_waits_for_replicas(
    runner: Runner, alone: Redis, opened: Opener, name: str, options: dict[str, Any]
) -> None:
    async def body() -> None:
        hasty = opened(alone.url(), WAIT_REPLICAS=1, COMMAND_TIMEOUT=2.0, **options)
        actor = runner.actor()
        for _ in range(2):
            with pytest.raises(LockBackendError, match="lower WAIT_REPLICAS"):
                await actor.acquire(lock(name, using=hasty.alias), wait=0)
            assert await actor.call(hasty, "inspect", name) is None  # it was undone
        patient = opened(alone.url(), WAIT_REPLICAS=1, COMMAND_TIMEOUT=10.0, **options)
        with Redis(persistent=False, replica_of=alone) as replica:
            await asyncio.to_thread(replica.wait_for_link)
            lease = await actor.take(lock(name, using=patient.alias))
            assert int(replica.execute("DBSIZE")) > 0
            await actor.release(lease)

    play(runner, body)


def test_a_distant_server_with_replicas_hands_over(
    runner: Runner, alone: Redis, opened: Opener, name: str, options: dict[str, Any]
) -> None:
    """Claim what was handed over in time, though that takes a round trip longer than the usual."""
    workers, turns = 3, 3
    tokens: list[int | None] = []

    async def body() -> None:
        with (
            Redis(persistent=False, replica_of=alone) as replica,
            Proxy(alone.port) as proxy,
        ):
            await asyncio.to_thread(replica.wait_for_link)
            proxy.delay(0.3)
            url = f"redis://{proxy.host}:{proxy.port}/0"
            alias = opened(url, WAIT_REPLICAS=1, **options).alias

            async def work(actor: Actor) -> None:
                for _ in range(turns):
                    lease = await actor.take(lock(name, using=alias), wait=60)
                    tokens.append(lease.fencing_token)
                    await actor.release(lease)

            started = time.monotonic()
            await asyncio.gather(*(work(runner.actor()) for _ in range(workers)))
            assert time.monotonic() - started < 40
        assert len(set(tokens)) == workers * turns

    play(runner, body)


def test_a_paused_server_is_waited_for_no_longer_than_told(
    runner: Runner, alone: Redis, opened: Opener, name: str, options: dict[str, Any]
) -> None:
    async def body() -> None:
        alias = opened(alone.url(), **options).alias
        actor = runner.actor()
        lease = await actor.take(lock(name, using=alias))
        alone.execute("CLIENT", "PAUSE", "60000", "WRITE")
        begun = asyncio.get_running_loop().time()
        try:
            with pytest.raises(LockBackendError, match="COMMAND_TIMEOUT"):
                await actor.acquire(lock(f"{name}2", using=alias), wait=1.1)
            assert asyncio.get_running_loop().time() - begun < 5
        finally:
            alone.execute("CLIENT", "UNPAUSE")
        await actor.release(lease)

    play(runner, body)
