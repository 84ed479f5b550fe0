"""Bad input is refused before the store is touched."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from .... import InvalidLockError, lock, lock_all
from ...runners import Runner
from ...taps import untouchable
from ..base import ContractBase, applies_to_all

__all__ = ["Inputs"]

NAN, INF = float("nan"), float("inf")
NAMES: tuple[Any, ...] = ("", None, 5, b"a", object(), ["a"], True, "x" * 10_001)
NO_NUMBERS: tuple[Any, ...] = (True, False, "5", "", b"5", Decimal(5), [], {}, object(), 1j)
TOO_MUCH = (NAN, INF, -INF, 10**400)
TTLS: tuple[Any, ...] = (
    *NO_NUMBERS,
    *TOO_MUCH,
    *(None, 0, 0.0, -0.0, -1, -0.1, 0.0004, 1e15, 1e18, 10**30, 2**63),
    *(timedelta(0), timedelta(seconds=-1), timedelta.max, timedelta.min),
)
WAITS: tuple[Any, ...] = (*NO_NUMBERS, *TOO_MUCH, -1, -0.001, timedelta(microseconds=-1))


class Inputs(ContractBase):
    """Names, ttls and waits that are out of range."""

    @applies_to_all
    async def test_bad_input_never_reaches_the_store(self, runner: Runner) -> None:
        """Refuse it by InvalidLockError, which is a ValueError and names the alias."""
        a, backend = runner.actor(), self.backend()
        good = runner.name()
        with untouchable(backend):
            for name in NAMES:
                with pytest.raises(InvalidLockError) as refused:
                    lock(name, using=self.alias)
                assert refused.value.alias == self.alias
            for ttl in TTLS:
                with pytest.raises(ValueError, match="ttl"):
                    lock(good, using=self.alias, ttl=ttl)
            for wait in WAITS:
                with pytest.raises(InvalidLockError, match="wait"):
                    lock(good, using=self.alias, wait=wait)
                with pytest.raises(InvalidLockError, match="wait"):
                    await a.acquire(self.lock(good), wait=wait)
                with pytest.raises(InvalidLockError, match="wait"):
                    await a.acquire(lock_all(self.lock(good)), wait=wait)
            with pytest.raises(InvalidLockError) as refused:
                await a.acquire(self.lock(good, ttl=backend.longest_ttl * 1.01), wait=0)
            for metadata in ({"no": object()}, {"long": "x" * 10_000}):
                with pytest.raises(InvalidLockError, match="metadata"):
                    await a.acquire(self.lock(good, metadata=metadata), wait=0)
            with pytest.raises(InvalidLockError):
                await a.acquire(lock(lambda: good, using=self.alias), wait=0)
            for name in NAMES:
                with pytest.raises(InvalidLockError):
                    await a.force(backend, name)

    @applies_to_all
    async def test_bad_input_spares_a_lease(self, runner: Runner) -> None:
        """Refuse to renew for a ttl that is out of range, and keep the lease as it is."""
        a, backend = runner.actor(), self.backend()
        lease = await a.take(self.lock(runner.name(), renew=False))
        left = lease.remaining()
        with untouchable(backend):
            for ttl in TTLS:
                if ttl is not None:  # which is the ttl that it has
                    with pytest.raises(InvalidLockError, match="ttl"):
                        await a.renew(lease, ttl)
        assert lease.ttl == 20
        assert 0 < lease.remaining() <= left
        lease.check()
        await a.release(lease)
