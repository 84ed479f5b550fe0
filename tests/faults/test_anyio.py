"""anyio's scopes cancel again at each await: a block that is left by one keeps no lock."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import anyio
import pytest
from django.conf import settings

from django_distlock import lock, lock_all, locks

ALIASES = ("locmem", "sqlite", "redis", "etcd", "consul", "zookeeper")
TRIES = 60


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("alias", [each for each in ALIASES if each in settings.DISTLOCKS])
def test_a_scope_that_ends_at_any_moment(alias: str, many: bool, name: str) -> None:
    chance = random.Random(f"{alias}-{many}")
    names = [f"{name}-a", f"{name}-b"] if many else [f"{name}-a"]

    def guard() -> Any:
        if many:
            return lock_all(*names, using=alias, wait=5)
        return lock(names[0], using=alias, wait=5)

    async def block(limit: float) -> bool:
        with anyio.move_on_after(limit) as scope:
            async with guard():
                await anyio.sleep(0.001)
        return scope.cancelled_caught

    async def main() -> int:
        for _ in range(3):
            assert not await block(5)
        began = asyncio.get_running_loop().time()
        await block(5)
        whole = asyncio.get_running_loop().time() - began
        ended = []
        for _ in range(TRIES):
            ended.append(await block(chance.uniform(0, 1.5 * whole)))
            whole *= 1.1 if ended[-1] else 0.9  # as busy as the machine is now
        async with asyncio.timeout(10):
            for each in names:
                while [info async for info in locks[alias].aheld(each)]:
                    await asyncio.sleep(0.01)
        return sum(ended)

    # Most end in the block, some before it and some after: else nothing was tried.
    assert 0 < anyio.run(main) < TRIES
    with guard():
        pass
