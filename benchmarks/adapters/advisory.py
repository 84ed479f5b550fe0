"""Advisory locks of a session: by ours, by bare statements, and by other libraries."""

from __future__ import annotations

import hashlib
from typing import Any

from ..adapter import Adapter
from .ours import Ours, OursShared

__all__ = ["BareAdvisory", "DjangoMySQL", "OursAdvisory", "OursAdvisoryShared", "ToozMySQL"]

LOCK = {"postgresql": "SELECT pg_advisory_lock(%s)", "mysql": "SELECT GET_LOCK(%s, 60)"}
UNLOCK = {"postgresql": "SELECT pg_advisory_unlock(%s)", "mysql": "SELECT RELEASE_LOCK(%s)"}


class OursAdvisory(Ours):
    """The same with the advisory backend."""

    name = "django-distlock advisory"
    backend = "advisory"
    alias = "advisory"
    sessions = 2


class OursAdvisoryShared(OursShared, OursAdvisory):
    """The same, shared with others."""

    name = "django-distlock advisory, shared"


class BareAdvisory(Adapter):
    """Two statements on the driver's own cursor: no token, no holder, no lease."""

    name = "bare advisory lock"
    kind = "baseline"
    backend = "advisory"

    def open(self) -> None:
        """Take the driver's cursor."""
        from django.db import connections

        connection = connections["default"]
        connection.ensure_connection()
        self._cursor: Any = connection.connection.cursor()
        self._lock, self._unlock = LOCK[connection.vendor], UNLOCK[connection.vendor]
        self._numbered = connection.vendor == "postgresql"

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        self._cursor.close()
        connections.close_all()

    def acquire(self, key: str) -> Any:
        """Lock; the server queues who waits."""
        digest = hashlib.sha256(key.encode()).digest()
        word = int.from_bytes(digest[:8], "big", signed=True) if self._numbered else digest.hex()
        self._cursor.execute(self._lock, [word])
        self._cursor.fetchone()
        return word

    def release(self, handle: Any) -> None:
        """Unlock."""
        self._cursor.execute(self._unlock, [handle])
        self._cursor.fetchone()


class DjangoMySQL(Adapter):
    """``with django_mysql.locks.Lock(name):``, on Django's connection."""

    name = "django-mysql"
    kind = "alternative"
    backend = "advisory"
    needs = ("django_mysql",)

    def open(self) -> None:
        """Connect."""
        from django.db import connections
        from django_mysql.locks import Lock

        self._lock = Lock
        connections["default"].ensure_connection()

    def close(self) -> None:
        """Close Django's connection."""
        from django.db import connections

        connections.close_all()

    def acquire(self, key: str) -> Any:
        """Enter the block."""
        return self._lock(hashlib.sha256(key.encode()).hexdigest()[:40], 60.0).acquire()

    def release(self, handle: Any) -> None:
        """Leave the block."""
        handle.release()


class ToozMySQL(Adapter):
    """tooz of OpenStack: GET_LOCK() on a connection of each lock's own, by PyMySQL."""

    name = "tooz"
    kind = "alternative"
    backend = "advisory"
    needs = ("tooz", "pymysql")

    def open(self) -> None:
        """Start a coordinator."""
        from django.db import connections
        from tooz import coordination

        entry = connections["default"].settings_dict
        who, host = f"{entry['USER']}:{entry['PASSWORD']}", entry["HOST"]
        url = f"mysql://{who}@{host}:{entry['PORT']}/{entry['NAME']}"
        self._coordinator: Any = coordination.get_coordinator(url, b"benchmark")
        self._coordinator.start()

    def close(self) -> None:
        """Stop it."""
        self._coordinator.stop()

    def acquire(self, key: str) -> Any:
        """Wait for the lock, for longer than any measurement takes."""
        lock = self._coordinator.get_lock(hashlib.sha256(key.encode()).hexdigest()[:40].encode())
        assert lock.acquire(blocking=60.0)
        return lock

    def release(self, handle: Any) -> None:
        """Unlock, which closes the lock's connection."""
        handle.release()
