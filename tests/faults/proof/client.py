"""A client: takes locks, works under them, and writes down all of it, until it is told to end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from .history import HolderInfo, Log
from .plans import ALONE, LED, LIMITED, SHARED, Plan, draw
from .resource import Writer

__all__ = ["run"]


def run(alias: str, folder: Path, proc: str, seed: int, ttl: float) -> None:
    """Go on until the file "stop" is in the folder; odd seeds on an event loop."""
    client = _Client(alias, folder, proc, seed, ttl)
    if seed % 2:
        asyncio.run(client.arun())
    else:
        client.run()


class _Client:
    """One process's client; `round` and `around` are the same, in a thread and on a loop."""

    def __init__(self, alias: str, folder: Path, proc: str, seed: int, ttl: float) -> None:
        self._alias = alias
        self._log = Log(folder, proc)
        self._writer = Writer(folder)
        self._chance = random.Random(seed)
        self._ttl = ttl
        self._stop = folder / "stop"
        from django_distlock import locks

        backend = locks[alias]
        self._expiry = backend.max_ttl(ttl) + backend.grace
        flags = {SHARED: backend.supports_shared, LIMITED: backend.supports_limit}
        self._several = [name for name, there in flags.items() if there]

    def run(self) -> None:
        """Do round after round."""
        while not self._stop.exists():
            if not self.round(self._draw()):
                time.sleep(self._chance.uniform(0.0, self._ttl / 50))

    async def arun(self) -> None:
        """Do round after round, on an event loop."""
        while not self._stop.exists():
            if not await self.around(self._draw()):
                await asyncio.sleep(self._chance.uniform(0.0, self._ttl / 50))

    def _draw(self) -> Plan:
        return draw(self._chance, self._ttl, expiry=self._expiry, several=self._several)

    def _lock(self, plan: Plan, **options: Any) -> Any:
        from django_distlock import leader, lock

        if plan.name == LED and not options:
            return leader(LED, using=self._alias, ttl=self._ttl).lock
        given = {"wait": plan.wait, "renew": plan.renew, **plan.mode} | options
        return lock(plan.name, using=self._alias, ttl=self._ttl, **given)

    @contextmanager
    def _noted(self, op: str, plan: Plan, **told: Any) -> Iterator[HolderInfo]:
        """Write a call down; errors of the library are outcomes, others end the client."""
        from django_distlock import LockBackendError, LockError

        with self._log.call(op, plan.name, **told) as note:
            try:
                yield note
            except LockBackendError as error:
                note.say("info", error=repr(error)[:300])  # nobody knows whether it was done
            except LockError as error:
                note.say("fail", error=repr(error)[:300])

    def _write(self, note: HolderInfo, plan: Plan, told: dict[str, Any]) -> None:
        # As who does not check would: the resource is what stops him.
        note.say("ok" if self._writer.write(plan.name, **told) else "fail")

    def round(self, plan: Plan) -> bool:
        """Acquire, work, release; return whether it was acquired."""
        if plan.both:
            return self.both(plan)
        lease: Any = None
        with self._noted("acquire", plan, wait=plan.wait) as note:
            lease = self._lock(plan).acquire()
            note.say(*_granted(lease), **_facts(lease) | _sure(lease))
        if lease is None:
            return False
        told = _facts(lease)
        for step, seconds in (*plan.steps, ("release", 0.0)):
            if step == "sleep":
                time.sleep(seconds)
                continue
            with self._noted(step, plan, **told) as note:
                if step == "write":
                    self._write(note, plan, told)
                elif step == "again":
                    with self._lock(plan, wait=0, reentrant=True) as inner:
                        note.say("ok", same=_facts(inner) == told)
                else:
                    verb: Callable[[], None] = getattr(lease, step)
                    verb()
        return True

    async def around(self, plan: Plan) -> bool:
        """Acquire, work, release; sometimes cancelled while waiting."""
        if plan.both:
            return await self.aboth(plan)
        lease: Any = None
        with self._noted("acquire", plan, wait=plan.wait) as note:
            try:
                async with asyncio.timeout(plan.cancel_after):
                    lease = await self._lock(plan).aacquire()
                note.say(*_granted(lease), **_facts(lease) | _sure(lease))
            except TimeoutError:
                lease = None
                note.say("info", error="cancelled")
        if lease is None:
            return False
        told = _facts(lease)
        for step, seconds in (*plan.steps, ("release", 0.0)):
            if step == "sleep":
                await asyncio.sleep(seconds)
                continue
            with self._noted(step, plan, **told) as note:
                if step == "write":
                    self._write(note, plan, told)
                elif step == "again":
                    async with self._lock(plan, wait=0, reentrant=True) as inner:
                        note.say("ok", same=_facts(inner) == told)
                elif step == "check":
                    lease.check()
                else:
                    await getattr(lease, f"a{step}")()
        return True

    @contextmanager
    def _noted_both(self, op: str, *told: dict[str, Any]) -> Iterator[list[HolderInfo]]:
        """Write a call that concerns both exclusive locks down, as one of each."""
        from django_distlock import LockError

        first, second = told
        with (
            self._log.call(op, ALONE[0], **first) as one,
            self._log.call(op, ALONE[1], **second) as other,
        ):
            try:
                yield [one, other]
            except LockError as error:  # it may have been done to one of them
                for note in (one, other):
                    note.say("info", error=repr(error)[:300])

    def _group(self, plan: Plan) -> Any:
        from django_distlock import lock_all

        return lock_all(*ALONE, using=self._alias, ttl=self._ttl, renew=plan.renew, wait=0)

    @staticmethod
    def _tell(notes: list[HolderInfo], leases: Sequence[Any] | None) -> None:
        for note, lease in zip(notes, leases or (None, None), strict=True):
            note.say(*_granted(lease), **_facts(lease) | _sure(lease))

    def _write_both(self, plan: Plan, leases: Sequence[Any]) -> list[dict[str, Any]]:
        told = [_facts(lease) for lease in leases]
        for name, each in zip(ALONE, told, strict=True):
            one = replace(plan, name=name)
            with self._noted("write", one, **each) as note:
                self._write(note, one, each)
        return told

    def both(self, plan: Plan) -> bool:
        """Acquire both by one call, write under each, and release them by one call."""
        leases: Any = None
        with self._noted_both("acquire", {"wait": 0}, {"wait": 0}) as notes:
            leases = self._group(plan).acquire()
            self._tell(notes, leases)
        if leases is None:
            return False
        told = self._write_both(plan, leases)
        with self._noted_both("release", *told):
            leases.release()
        return True

    async def aboth(self, plan: Plan) -> bool:
        """Do as `both`."""
        leases: Any = None
        with self._noted_both("acquire", {"wait": 0}, {"wait": 0}) as notes:
            leases = await self._group(plan).aacquire()
            self._tell(notes, leases)
        if leases is None:
            return False
        told = self._write_both(plan, leases)
        with self._noted_both("release", *told):
            await leases.arelease()
        return True


def _granted(lease: Any) -> tuple[str]:
    return ("fail",) if lease is None else ("ok",)


def _facts(lease: Any) -> dict[str, Any]:
    if lease is None:
        return {}
    claim = lease._hold.claim
    told = {"token": lease.fencing_token, "owner": claim.owner}
    if not claim.is_exclusive:
        told |= {"shared": claim.shared, "limit": claim.limit, "slot": lease.slot}
    return told


def _sure(lease: Any) -> dict[str, Any]:
    """Return a moment at which the holder was sure: when it begins a check that then succeeds."""
    from django_distlock import LockError

    if lease is None:
        return {}
    moment = time.monotonic()
    try:
        lease.check()
    except LockError:
        return {"sure": None}
    return {"sure": moment}
