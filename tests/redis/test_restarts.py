"""A Redis that is killed while somebody waits, and comes back with its data."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from django_distlock import LockBackendError, lock
from django_distlock.backends.redis import RedisBackend
from tests.claims import claim, granted, soon, started
from tests.proxy import Proxy
from tests.redis.tools import Opener
from tests.servers import Redis

LONG = 30.0
TTL = 120.0

pytestmark = [
    pytest.mark.parametrize("options", [{}, {"SCRIPTING": False}], ids=["scripts", "transactions"]),
    pytest.mark.parametrize("on_loop", [False, True], ids=["thread", "event loop"]),
]


class Waiter:
    """Somebody who waits for a lock, and what they get in the end: its token, or an error."""

    def __init__(self, backend: RedisBackend, name: str, on_loop: bool) -> None:
        self.lock = lock(name, using=backend.alias, wait=LONG)
        self.token = 0
        self.error: LockBackendError | None = None
        self.thread: threading.Thread = started(self._on_loop if on_loop else self._on_thread)

    def _on_thread(self) -> None:
        try:
            with self.lock as lease:
                self.token = lease.fencing_token or 0
        except LockBackendError as error:
            self.error = error

    def _on_loop(self) -> None:
        async def main() -> None:
            async with self.lock as lease:
                self.token = lease.fencing_token or 0

        try:
            asyncio.run(main())
        except LockBackendError as error:
            self.error = error

    def blocks(self, server: Redis) -> None:
        """Wait until the server has them blocked."""
        soon(lambda: int(server.info("blocked_clients")) == 1)

    def end(self) -> None:
        """Wait until they have got something."""
        self.thread.join(2 * LONG)
        assert not self.thread.is_alive()


def test_who_waits_is_told_when_the_server_dies(
    name: str, opened: Opener, options: dict[str, Any], on_loop: bool
) -> None:
    with Redis(persistent=True) as server:
        backend = opened(server.url(), **options)
        mine = claim(backend, name, ttl=TTL)
        token = granted(backend, mine)
        waiter = Waiter(backend, name, on_loop)
        waiter.blocks(server)
        server.kill()
        waiter.end()  # at once, not at the end of their wait
        assert waiter.token == 0
        assert f"Look at redis://127.0.0.1:{server.port}" in str(waiter.error)
        server.start()
        assert backend.renew(mine)
        again = Waiter(backend, name, on_loop)
        again.blocks(server)
        assert backend.release(mine)
        again.end()
        assert again.error is None
        assert again.token > token
        assert backend.inspect(name) is None


def test_who_waits_goes_on_when_the_server_is_back_before_they_are_cut_off(
    name: str, opened: Opener, options: dict[str, Any], on_loop: bool
) -> None:
    with Redis(persistent=True) as server, Proxy(server.port) as proxy:
        holding = opened(server.url(), **options)
        theirs = opened(f"redis://127.0.0.1:{proxy.port}/0", COMMAND_TIMEOUT=LONG, **options)
        mine = claim(holding, name, ttl=TTL)
        token = granted(holding, mine)
        waiter = Waiter(theirs, name, on_loop)
        waiter.blocks(server)
        proxy.silence()
        server.kill()
        server.start()
        assert int(server.info("blocked_clients")) == 0
        proxy.mend()
        waiter.blocks(server)
        assert holding.renew(mine)
        assert holding.release(mine)
        waiter.end()
        assert waiter.error is None
        assert waiter.token > token
        assert holding.inspect(name) is None
