"""The scripts of the redis backend, in every order of calls, losses and crashes of three clients.

The scripts are the very ones that are sent, on a Redis that is a value. Each client asks, waits,
is told of its turn, holds, releases; a request or its answer may be lost, a client may vanish at
any point, give up, or be late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pytest

from django_distlock.backends.redis.commands import load
from django_distlock.backends.redis.records import keys_of, mailbox_of, read, short_owner
from django_distlock.backends.redis.scripts import Scripted
from django_distlock.core.values import Claim
from tests.model.redis import Keys, Redis
from tests.model.search import Found, search

BASE = "distlock:1"
KEY = "0" * 64
BEGIN = 1_700_000_000_000
"""The time at which it all begins, in ms."""
TICK = 300
"""Milliseconds that pass at once: more than a waiter's patience, or the time to claim a turn."""
TTL = 0.5
NOTHING = ("", "", "")


class Client(NamedTuple):
    """One client: what it does, and what it was granted."""

    phase: str = "new"
    token: int = 0
    slot: int | None = None
    until: int = 0
    asked: int = 0


class World(NamedTuple):
    """All that there is."""

    clients: tuple[Client, ...]
    keys: Keys = ()
    now: int = BEGIN
    faults: int = 0
    ticks: int = 0
    highest: tuple[tuple[str, int], ...] = ()
    """The greatest token granted so far, of each kind of grant."""
    wrong: str = ""


class Model:
    """What can happen to clients that want a lock in some modes."""

    def __init__(
        self,
        modes: Sequence[str],
        faults: int,
        ticks: int,
        *,
        planted: tuple[str, str, str] = NOTHING,
    ) -> None:
        self.redis = Redis()
        self.faults, self.ticks = faults, ticks
        self.retention = 10_000
        self.scripted = Scripted(BASE, self.retention / 1000, one_server=True)
        name, old, new = planted
        self.scripts = {}
        for each in ("acquire", "release"):
            text = load(each).text
            assert name != each or text.count(old) == 1
            self.scripts[each] = text.replace(old, new) if name == each else text
        self.modes = modes
        self.claims = [
            Claim(
                "n",
                KEY,
                f"{number + 1:032x}",
                TTL,
                shared=mode == "s",
                limit=int(mode) if mode.isdigit() else 0,
                waits=True,
            )
            for number, mode in enumerate(modes)
        ]
        self.owners = [short_owner(claim.owner).decode() for claim in self.claims]
        self.homes = [mailbox_of(BASE, 0, claim.owner) for claim in self.claims]
        names = keys_of(BASE, KEY)
        self.record, self.queue = names.record.decode(), names.queue.decode()

    def search(self) -> Found[World]:
        """Visit all states."""
        start = World(tuple(Client() for _ in self.claims))
        return search(start, self.events, self.judge)

    # -- what can happen ---------------------------------------------------------------------------

    def events(self, world: World) -> Iterator[tuple[str, World]]:
        """Return each event that can be next."""
        if world.wrong:
            return
        for number, client in enumerate(world.clients):
            for name, after in self._of(world, number, client):
                yield f"{number} {name}", after
            if client.phase not in ("gone", "dead") and world.faults < self.faults:
                dead = client._replace(phase="dead", until=0)
                yield f"{number} vanishes", self._with(world, number, dead, faults=1)
        if world.ticks < self.ticks and any(each.phase != "gone" for each in world.clients):
            now, keys = world.now + TICK, tuple(k for k in world.keys if k[1][1] > world.now + TICK)
            yield "time passes", world._replace(now=now, keys=keys, ticks=world.ticks + 1)

    def _of(self, world: World, number: int, client: Client) -> Iterator[tuple[str, World]]:
        ask = partial(self._ask, world, number, client)
        if client.phase in ("new", "told"):
            yield from self._sent("asks", ask, self._failed(world, number, client))
        elif client.phase == "waiting":
            home = self.homes[number].decode()
            mailbox = dict(world.keys).get(home)
            if mailbox is not None:
                _, keys = self.redis.command(("LPOP", home), world.keys, world.now)
                told = client._replace(phase="told")
                yield "is told", self._with(world, number, told)._replace(keys=keys)
            if world.now > client.asked:
                yield from self._sent("looks", ask, self._failed(world, number, client))
            yield "gives up", self._with(world, number, client._replace(phase="undoing"))
        elif client.phase in ("holding", "undoing"):
            done = partial(self._release, world, number)
            again = self._with(world, number, client._replace(phase="undoing", until=0), faults=1)
            yield from self._sent("releases", done, again)

    def _sent(
        self, name: str, done: Callable[[], World], failed: World
    ) -> Iterator[tuple[str, World]]:
        """Return what can become of a request: answered, never sent, or not answered."""
        after = done()
        yield name, after
        if failed.faults <= self.faults:
            yield f"{name}, the request is lost", failed
            yield f"{name}, the answer is lost", failed._replace(keys=after.keys)

    def _failed(self, world: World, number: int, client: Client) -> World:
        return self._with(world, number, client._replace(phase="undoing"), faults=1)

    def _with(self, world: World, number: int, client: Client, *, faults: int = 0) -> World:
        clients = (*world.clients[:number], client, *world.clients[number + 1 :])
        return world._replace(clients=clients, faults=world.faults + faults)

    def _ask(self, world: World, number: int, client: Client) -> World:
        claim = self.claims[number]
        keys, args = self.scripted._to_acquire(claim, self.homes[number])
        answer, stored = self._run("acquire", keys, args, world)
        world = world._replace(keys=stored)
        if isinstance(answer, tuple) and len(answer) == 4:  # of another mode: no wait would help
            return self._with(world, number, client._replace(phase="undoing"))
        if isinstance(answer, tuple) and len(answer) == 3:
            waiting = client._replace(phase="waiting", asked=world.now)
            return self._with(world, number, waiting)
        token, slot = answer if isinstance(answer, tuple) else (answer, None)
        until = world.now + round(TTL * 1000)
        held = Client("holding", token, slot, until)
        return self._judged(self._with(world, number, held), number, held)

    def _judged(self, world: World, number: int, held: Client) -> World:
        """Note a grant's token, and whether it is greater than it has to be."""
        mode = self.modes[number]
        kind = f"slot {held.slot}" if mode.isdigit() else mode
        highest = dict(world.highest)
        before = max(
            (token for each, token in highest.items() if not mode == each == "s"), default=0
        )
        if mode.isdigit():
            before = highest.get(kind, 0)
        highest[kind] = max(highest.get(kind, 0), held.token)
        wrong = "" if held.token > before else f"token {held.token} after {before}"
        return world._replace(highest=tuple(sorted(highest.items())), wrong=wrong)

    def _release(self, world: World, number: int) -> World:
        keys, args = self.scripted._to_release(self.claims[number])
        _, stored = self._run("release", keys, args, world)
        return self._with(world, number, Client("gone"))._replace(keys=stored)

    def _run(
        self, name: str, keys: Sequence[object], args: Sequence[object], world: World
    ) -> tuple[object, Keys]:
        def texts(words: Sequence[object]) -> list[str]:
            return [each.decode() if isinstance(each, bytes) else str(each) for each in words]

        return self.redis.run(self.scripts[name], texts(keys), texts(args), world.keys, world.now)

    # -- what has to be so -------------------------------------------------------------------------

    def judge(self, world: World, is_end: bool) -> str:
        """Return what is wrong."""
        sure = [
            (mode, each.slot)
            for mode, each in zip(self.modes, world.clients, strict=True)
            if each.phase == "holding" and each.until > world.now
        ]
        if not _fit(sure):
            return f"{len(sure)} hold it: {sure}"
        keys = dict(world.keys)
        raw = keys[self.record][0] if self.record in keys else ""
        record = read(raw.encode())
        queue = keys[self.queue][0] if self.queue in keys else ()
        if record is None or raw.isdigit():
            for number, each in enumerate(world.clients):
                lives = f"{self.homes[number].decode()}p" in keys
                if each.phase == "waiting" and lives and self.owners[number] in queue:
                    return f"{number} waits for a free lock, and is not told"
        held = []
        if record is not None and keys[self.record][1] > world.now + self.retention:
            held.append(record.owner)
        if record is not None and record.members is not None:
            held += [each.owner for each in record.members.living(world.now * 1000).all]
        for number, each in enumerate(world.clients):
            claim = self.claims[number]
            if each.phase == "gone" and (claim.owner in held or self.owners[number] in queue):
                return f"{number} has withdrawn, and is not forgotten"
        return world.wrong


def _fit(sure: Sequence[tuple[str, int | None]]) -> bool:
    """Return whether several may hold it at once in these modes and slots."""
    modes = {mode for mode, _ in sure}
    if len(sure) < 2 or modes == {"s"}:
        return True
    mode, *others = modes
    slots = {slot for _, slot in sure}
    return mode.isdigit() and not others and len(slots) == len(sure) <= int(mode)


@pytest.mark.parametrize("modes", ["xx", "xxx", "sx", "ssx", "sss", "11", "222", "22x"])
def test_nothing_is_wrong(modes: str) -> None:
    """One holds it alone, or so many as may; tokens rise; a free lock is no waiter's to miss."""
    found = Model(modes, faults=1, ticks=1).search()
    assert (found.wrong, found.path) == ("", ())
    assert found.ends > 10


RISES = "state.token = math.max(state.token + 1, now)"
FITS = "return mode == state.mode and mode ~= 'x' and (mode == 's' or #state.all < tonumber(mode))"


@pytest.mark.parametrize(
    ("modes", "script", "old", "new", "said"),
    [
        ("xx", "release", "hand_on(state, now, ARGV[3])", "", "is not told"),
        ("xx", "release", "call('LREM', KEYS[3], 0, owner)", "", "is not forgotten"),
        ("xx", "acquire", FITS, "return true", "2 hold it"),
        ("xx", "release", RISES, "", "token"),
        ("222", "acquire", "#state.all < tonumber(mode)", "#state.all <= tonumber(mode)", "3 hold"),
        ("222", "acquire", "while taken[slot] do", "while false do", "hold it"),
        ("ssx", "release", "and not string.find(record, ',[\"', 27, true)", "", "hold it"),
    ],
)
def test_a_planted_defect_is_found(modes: str, script: str, old: str, new: str, said: str) -> None:
    found = Model(modes, faults=1, ticks=1, planted=(script, old, new)).search()
    assert said in found.wrong
    assert 0 < len(found.path) < 12
