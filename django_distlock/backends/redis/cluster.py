"""Asking a Redis cluster: each command goes to the node that has the slot of its key.

All keys of a name share a slot, so a talk about one name has one node to talk to. Which node has
which slot is asked once, and again when a node says that it has moved or is gone. (redis-py's own
client for asyncio lost connections when several tasks began at once, release 8.1.)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from ...core import flow
from ...core.threads import Mutex
from .client import AsyncNodeClient, NodeClient
from .commands import Begin, Command, carried_out, one, several
from .location import Target

__all__ = ["AsyncClusterClient", "ClusterClient", "Slots"]

T = TypeVar("T")

Address: TypeAlias = "tuple[str, int]"
Owned: TypeAlias = "tuple[int, int, Address]"
"""The first and the last slot of a range, and the node that has it."""
Route: TypeAlias = Generator[tuple[Address, list[Command]], list[Any], T]
"""Yields what to send to which node, and is sent the answers."""

TRIES = 5  # times that a command follows its slot
KEYLESS = {"TIME", "ASKING"}


class Slots:
    """Which node has which slot."""

    def __init__(self, first: Sequence[Address]) -> None:
        self._first = list(first)
        self._owners: list[Owned] = []

    def masters(self) -> list[Address]:
        """Return the nodes that have slots, as far as is known."""
        return list(dict.fromkeys(owner for *_, owner in self._owners))

    def owner_of(self, key: bytes) -> Address | None:
        """Return the node that has a key, if that is known."""
        return _owner_of(self._owners, key)

    def forget(self) -> None:
        """Ask again before the next command."""
        self._owners = []

    def ask(self, commands: Sequence[Command]) -> Route[list[Any]]:
        """Have each command go to its node; return the answers in the commands' order."""
        from redis.exceptions import AskError, MovedError, RedisError

        answers: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        for _ in range(TRIES):
            # A copy: another thread may forget them at any moment.
            owners = self._owners or (yield from self._load())
            groups: dict[Address, list[int]] = {}
            for number in left:
                groups.setdefault(_node_of(owners, commands, number), []).append(number)
            left = []
            for address, numbers in groups.items():
                try:
                    got = yield address, [commands[number] for number in numbers]
                except RedisError:
                    self.forget()  # it may be gone
                    raise
                for number, answer in zip(numbers, got, strict=True):
                    answers[number] = answer
                    if isinstance(answer, MovedError):  # first, as to redis-py it is an AskError
                        left.append(number)
                    elif isinstance(answer, AskError):
                        there = (str(answer.host), int(answer.port))
                        _, answers[number] = yield there, [("ASKING",), commands[number]]
            if not left:
                break
            self.forget()
        return answers

    def followed(
        self, commands: Sequence[Command], node: Callable[[Address], Any], limit: float
    ) -> flow.Flow[list[Any]]:
        """Return a flow of `ask`; ``node`` returns the client of a node."""
        from redis.exceptions import InvalidResponse

        def carry(request: tuple[Address, list[Command]]) -> flow.Flow[Any]:
            address, some = request
            return (yield flow.Do(partial(node(address).ask_all, resend=False), (some, limit)))

        return flow.carried(self.ask(commands), carry, InvalidResponse)

    def _load(self) -> Route[list[Owned]]:
        from redis.exceptions import RedisError

        failed: Exception | None = None
        for address in [*self._first]:
            try:
                (answer,) = yield address, [("CLUSTER", "SLOTS")]
            except RedisError as error:
                failed = error
                continue
            if isinstance(answer, Exception):
                raise answer
            owners = [_range(each, address[0]) for each in answer]
            if owners:
                self._owners = owners
                # Those that were named in the settings may be gone one day.
                known = dict.fromkeys([*self._first, *(owner for *_, owner in owners)])
                self._first = list(known)
                return owners
        if failed is not None:
            raise failed
        raise RedisError("CLUSTERDOWN no node knows of any slot")


def _node_of(owners: Sequence[Owned], commands: Sequence[Command], number: int) -> Address:
    """Return the node of a command; one without a key goes with the first that has one."""
    from redis.exceptions import RedisError

    command = commands[number]
    if command[0] in KEYLESS:
        command = next(each for each in commands if each[0] not in KEYLESS)
    key = command[3] if command[0] in ("EVALSHA", "EVAL") else command[1]
    if (address := _owner_of(owners, key)) is None:
        raise RedisError(f"CLUSTERDOWN no node has the slot of {key!r}")
    return address


def _owner_of(owners: Sequence[Owned], key: bytes) -> Address | None:
    from redis.crc import key_slot

    slot = key_slot(key)
    return next((address for start, end, address in owners if start <= slot <= end), None)


def _range(answer: Any, asked: str) -> Owned:
    start, end, master = answer[:3]
    host = master[0].decode() if master[0] else asked
    return int(start), int(end), (host, int(master[1]))


class ClusterClient:
    """Wires to each node."""

    def __init__(self, target: Target, limit: float, most: int) -> None:
        self.target = target
        self._limit, self._most = limit, most
        self._mutex = Mutex()
        self._nodes: dict[Address, NodeClient] = {}
        self._slots = Slots(target.nodes)

    def _node(self, address: Address) -> NodeClient:
        client = self._nodes.get(address)
        if client is None:
            made = NodeClient(_at(self.target, address), self._limit, self._most)
            with self._mutex:
                client = self._nodes.setdefault(address, made)
        return client

    def _once(self, commands: Sequence[Command], limit: float) -> list[Any]:
        return flow.run(self._slots.followed(commands, self._node, limit))

    def ask(self, command: Command, limit: float, *, resend: bool = True) -> Any:
        return self.converse(lambda: one(command), limit, resend=resend)

    def ask_all(
        self, commands: Sequence[Command], limit: float, *, resend: bool = True
    ) -> list[Any]:
        return self.converse(lambda: several(commands), limit, resend=resend)

    def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        from redis.exceptions import ConnectionError

        for _ in list(self._nodes):  # each may have closed the connection that we kept
            try:
                return flow.run(carried_out(begin(), self._once, limit))
            except ConnectionError:
                if not resend:
                    raise
        return flow.run(carried_out(begin(), self._once, limit))

    def node_of(self, key: bytes, limit: float) -> NodeClient:
        if (address := self._slots.owner_of(key)) is None:
            self.ask_all([("EXISTS", key)], limit)  # after which it is known
            address = self._slots.owner_of(key)
        return self._node(address or self.target.nodes[0])

    def nodes(self, limit: float) -> list[NodeClient]:
        self.ask(("INFO", b"server"), limit)  # after which it is known who has which slots
        return [self._node(address) for address in self._slots.masters()]

    def close_idle(self) -> None:
        for client in list(self._nodes.values()):
            client.close_idle()

    def close(self) -> None:
        for client in list(self._nodes.values()):
            client.close()


class AsyncClusterClient:
    """Wires for each event loop and node."""

    def __init__(self, target: Target, limit: float, most: int) -> None:
        self.target = target
        self._limit, self._most = limit, most
        self._nodes: dict[Address, AsyncNodeClient] = {}
        self._slots = Slots(target.nodes)

    def _node(self, address: Address) -> AsyncNodeClient:
        client = self._nodes.get(address)
        if client is None:
            made = AsyncNodeClient(_at(self.target, address), self._limit, self._most)
            client = self._nodes.setdefault(address, made)
        return client

    async def _once(self, commands: Sequence[Command], limit: float) -> list[Any]:
        return await flow.arun(self._slots.followed(commands, self._node, limit))

    async def ask_all(
        self, commands: Sequence[Command], limit: float, *, resend: bool = True
    ) -> list[Any]:
        return await self.converse(lambda: several(commands), limit, resend=resend)

    async def converse(self, begin: Begin[T], limit: float, *, resend: bool = True) -> T:
        from redis.exceptions import ConnectionError

        for _ in list(self._nodes):
            try:
                return await flow.arun(carried_out(begin(), self._once, limit))
            except ConnectionError:
                if not resend:
                    raise
        return await flow.arun(carried_out(begin(), self._once, limit))

    async def node_of(self, key: bytes, limit: float) -> AsyncNodeClient:
        if (address := self._slots.owner_of(key)) is None:
            await self.ask_all([("EXISTS", key)], limit)  # after which it is known
            address = self._slots.owner_of(key)
        return self._node(address or self.target.nodes[0])

    def close_idle(self) -> None:
        for client in list(self._nodes.values()):
            client.close_idle()

    def close(self) -> None:
        for client in list(self._nodes.values()):
            client.close()


def _at(target: Target, address: Address) -> Target:
    """Return the target of one node."""
    host, port = address
    facts = {**target.facts, "host": host, "port": port}
    return replace(target, shown=f"redis://{host}:{port}/0", facts=facts, nodes=())
