"""The baselines: ``SET NX PX`` and a script that compares and deletes, and nothing else."""

from __future__ import annotations

from typing import Any

from ...adapter import Adapter
from .wire import COMPARE_AND_DELETE, SHA, TTL, Wire, acquiring, packed, releasing, token, urls

__all__ = ["BareClient", "BareConnection", "BareSocket", "PushPop"]

Held = tuple[bytes, bytes]


class Bare(Adapter):
    """The two commands: no holder, no token that rises, no renewal."""

    kind = "baseline"
    backend = "redis"
    waits = False

    def acquire(self, key: str) -> Any:
        """Attempt once; it is free."""
        handle = self.try_acquire(key)
        assert handle is not None, "the baseline does not wait"
        return handle


class BareSocket(Bare):
    """On a socket of our own."""

    name = "bare socket"

    def open(self) -> None:
        """Connect, and let the server know the script."""
        self._wire = Wire(urls()[0])
        self._wire.ask(packed(b"SCRIPT", b"LOAD", COMPARE_AND_DELETE))

    def close(self) -> None:
        """Close the socket."""
        self._wire.close()

    def try_acquire(self, key: str) -> Held | None:
        """Set the key if it is not there."""
        name, value = key.encode(), token()
        return (name, value) if self._wire.ask(acquiring(name, value)) == b"+OK\r\n" else None

    def release(self, handle: Held) -> None:
        """Delete the key if it is ours."""
        assert self._wire.ask(releasing(*handle)) == b":1\r\n"


class BareConnection(Bare):
    """On a connection of redis-py's, below its calls: the kind that our backend uses."""

    name = "bare, redis-py connection"
    needs = ("redis",)

    def open(self) -> None:
        """Connect, and let the server know the script."""
        from redis import ConnectionPool

        self._pool: Any = ConnectionPool.from_url(urls()[0])
        self._connection: Any = self._pool.get_connection()
        self._ask("SCRIPT", "LOAD", COMPARE_AND_DELETE)

    def close(self) -> None:
        """Disconnect."""
        self._pool.disconnect()

    def try_acquire(self, key: str) -> Held | None:
        """Set the key if it is not there."""
        name, value = key.encode(), token()
        answer = self._ask("SET", name, value, "NX", "PX", TTL)
        return (name, value) if answer is not None else None

    def release(self, handle: Held) -> None:
        """Delete the key if it is ours."""
        assert self._ask("EVALSHA", SHA, 1, *handle) == 1

    def _ask(self, *words: Any) -> Any:
        self._connection.send_command(*words, check_health=False)
        return self._connection.read_response()


class BareClient(Bare):
    """By redis-py's client, as its documentation shows."""

    name = "bare, redis-py client"
    needs = ("redis",)

    def open(self) -> None:
        """Connect, and let the server know the script."""
        from redis import Redis

        self._client: Any = Redis.from_url(urls()[0])
        self._client.script_load(COMPARE_AND_DELETE)
        self._sha = SHA.decode()

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def try_acquire(self, key: str) -> Any:
        """Set the key if it is not there."""
        value = token()
        return (key, value) if self._client.set(key, value, nx=True, px=TTL) else None

    def release(self, handle: Any) -> None:
        """Delete the key if it is ours."""
        assert self._client.evalsha(self._sha, 1, *handle) == 1


class PushPop(Adapter):
    """One token in a list: who pops it holds the lock, and pushes it back.

    It is lost with a holder that dies. The server queues who waits.
    """

    name = "bare push/pop"
    kind = "baseline"
    backend = "redis"

    def open(self) -> None:
        """Connect."""
        self._wire = Wire(urls()[0])
        self._known: set[bytes] = set()

    def close(self) -> None:
        """Close the socket."""
        self._wire.close()

    def acquire(self, key: str) -> bytes:
        """Pop the token; whoever is the first of all makes it."""
        name = key.encode()
        if name not in self._known:
            self._known.add(name)
            if self._wire.ask(packed(b"SET", name + b":made", b"1", b"NX")) == b"+OK\r\n":
                self.release(name)
        self._wire.ask(b"*3\r\n$5\r\nBLPOP\r\n$%d\r\n%b\r\n$1\r\n0\r\n" % (len(name), name))
        return name

    def release(self, handle: bytes) -> None:
        """Push the token."""
        self._wire.ask(b"*3\r\n$5\r\nRPUSH\r\n$%d\r\n%b\r\n$1\r\n1\r\n" % (len(handle), handle))
