"""Ways to take a lock in Consul."""

from __future__ import annotations

import http.client
import json
import secrets
from typing import Any

from ..adapter import Adapter, Polled
from .ours import OursLimited, OursShared
from .redis.ours import OursRedis

__all__ = ["CONSUL"]


def _address() -> tuple[str, int]:
    """Return host and port of the server, which is the alias's LOCATION."""
    from django.conf import settings

    host, _, port = settings.DISTLOCKS["default"]["LOCATION"].rpartition("/")[2].partition(":")
    return host, int(port)


class OursConsul(OursRedis):
    """The consul backend."""

    backend = "consul"


class OursConsulShared(OursShared, OursConsul):
    """The same, shared with others."""


class OursConsulLimited(OursLimited, OursConsul):
    """The same, held by four at once."""


class BareCalls(Adapter):
    """``?acquire=`` and ``?release=`` on a kept connection and session, and nothing else."""

    name = "bare calls"
    kind = "baseline"
    backend = "consul"
    waits = False

    def open(self) -> None:
        """Connect, and make the session."""
        self._connection = http.client.HTTPConnection(*_address())
        body = json.dumps({"TTL": "600s", "LockDelay": "0s", "Behavior": "delete"})
        self._session = json.loads(self._ask("/v1/session/create", body))["ID"]

    def close(self) -> None:
        """End the session."""
        self._ask(f"/v1/session/destroy/{self._session}")
        self._connection.close()

    def acquire(self, key: str) -> str:
        """Attempt once; it is free."""
        handle = self.try_acquire(key)
        assert handle is not None, "the baseline does not wait"
        return handle

    def try_acquire(self, key: str) -> str | None:
        """Take the key for the session."""
        path = f"bare/{key.replace(' ', '-')}"
        value = secrets.token_hex(16)
        return (
            path if self._ask(f"/v1/kv/{path}?acquire={self._session}", value) == "true" else None
        )

    def release(self, handle: str) -> None:
        """Give it back."""
        assert self._ask(f"/v1/kv/{handle}?release={self._session}") == "true"

    def _ask(self, path: str, body: str = "") -> str:
        self._connection.request("PUT", path, body)
        return self._connection.getresponse().read().decode().strip()


class PyConsul(Polled):
    """py-consul's calls, the session kept; who is refused waits for the key to change."""

    name = "py-consul"
    kind = "alternative"
    backend = "consul"
    needs = ("consul", "requests")

    def open(self) -> None:
        """Connect, and make the session."""
        import consul

        host, port = _address()
        self._client: Any = consul.Consul(host=host, port=port)
        self._session = self._client.session.create(ttl=600, lock_delay=0, behavior="delete")

    def close(self) -> None:
        """End the session."""
        self._client.session.destroy(self._session)
        self._client.http.session.close()

    def acquire(self, key: str) -> str:
        """Attempt, and watch the key as Consul's guide to leader election does."""
        path = f"alternative/{key.replace(' ', '-')}"
        while not self._client.kv.put(path, "x", acquire=self._session):
            index, entry = self._client.kv.get(path)
            while entry is not None and entry.get("Session"):
                index, entry = self._client.kv.get(path, index=index, wait="10s")
        return path

    def try_acquire(self, key: str) -> str | None:
        """Attempt once."""
        path = f"alternative/{key.replace(' ', '-')}"
        return path if self._client.kv.put(path, "x", acquire=self._session) else None

    def release(self, handle: str) -> None:
        """Give it back."""
        assert self._client.kv.put(handle, "", release=self._session)


class PyConsulSemaphore(PyConsul):
    """A semaphore by Consul's guide: contenders' keys, and one that lists the holders, by CAS."""

    name = "py-consul, semaphore of 4"
    waits = exclusive = False
    at_once = 4

    def open(self) -> None:
        """Connect; it is a contender nowhere yet."""
        super().open()
        self._contends: set[str] = set()

    def acquire(self, key: str) -> str:
        """Contend, and join the holders when there is room; until then watch the prefix."""
        prefix = f"semaphore/{key.replace(' ', '-')}/"
        if prefix not in self._contends:
            assert self._client.kv.put(prefix + self._session, "x", acquire=self._session)
            self._contends.add(prefix)
        index = None
        while True:
            index, entries = self._client.kv.get(prefix, recurse=True, index=index, wait="10s")
            version, holders = self._holders(prefix, entries)
            if len(holders) < (self.at_once or 1):
                if self._put(prefix, version, [*holders, self._session]):
                    return prefix
                index = None

    def try_acquire(self, key: str) -> str | None:
        """Not measured."""
        raise NotImplementedError

    def release(self, handle: str) -> None:
        """Leave the holders."""
        while True:
            _, entries = self._client.kv.get(handle, recurse=True)
            version, holders = self._holders(handle, entries)
            if self._put(handle, version, [each for each in holders if each != self._session]):
                return

    @staticmethod
    def _holders(prefix: str, entries: list[dict[str, Any]]) -> tuple[int, list[str]]:
        """Return the version of the list, and those on it whose sessions live."""
        alive = {entry.get("Session") for entry in entries}
        found = next((entry for entry in entries if entry["Key"] == f"{prefix}.lock"), None)
        if found is None:
            return 0, []
        return found["ModifyIndex"], [each for each in json.loads(found["Value"]) if each in alive]

    def _put(self, prefix: str, version: int, holders: list[str]) -> bool:
        done: bool = self._client.kv.put(f"{prefix}.lock", json.dumps(holders), cas=version)
        return done


CONSUL: tuple[type[Adapter], ...] = (
    *(OursConsul, OursConsulShared, OursConsulLimited),
    *(BareCalls, PyConsul, PyConsulSemaphore),
)
