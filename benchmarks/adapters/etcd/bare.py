"""The baseline: a transaction that puts a key on a lease, and its deletion, by the JSON gateway."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from typing import Any
from urllib.parse import urlsplit

from ...adapter import Adapter

__all__ = ["BareCalls", "url"]

TTL = 30


def url() -> str:
    """Return where the server is."""
    from django_distlock import locks

    return str(locks["default"].conf.location)


class BareCalls(Adapter):
    """On one connection of http.client, with a lease for the process: no token, no renewal."""

    name = "bare http.client"
    kind = "baseline"
    backend = "etcd"
    waits = False

    def open(self) -> None:
        """Connect, and draw a lease that outlasts the measurement."""
        self._connection = http.client.HTTPConnection(urlsplit(url()).netloc)
        self._lease = self._ask("lease/grant", {"TTL": 3600})["ID"]

    def close(self) -> None:
        """End the lease, and disconnect."""
        self._ask("lease/revoke", {"ID": self._lease})
        self._connection.close()

    def acquire(self, key: str) -> Any:
        """Attempt once; it is free."""
        handle = self.try_acquire(key)
        assert handle is not None, "the baseline does not wait"
        return handle

    def try_acquire(self, key: str) -> str | None:
        """Put the key if it is not there."""
        name = b64encode(key.encode()).decode()
        free = {"key": name, "target": "CREATE", "result": "EQUAL", "create_revision": 0}
        put = {"request_put": {"key": name, "value": "eA==", "lease": self._lease}}
        said = self._ask("kv/txn", {"compare": [free], "success": [put]})
        return name if said.get("succeeded") else None

    def release(self, handle: str) -> None:
        """Delete the key."""
        assert self._ask("kv/deleterange", {"key": handle})["deleted"] == "1"

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        self._connection.request("POST", f"/v3/{path}", json.dumps(body))
        answer = self._connection.getresponse()
        said = json.loads(answer.read())
        assert answer.status == 200, said
        return said
