"""The header by which a lock travels with its message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["HEADER", "Ticket"]

HEADER = "distlock"


@dataclass(frozen=True, slots=True)
class Ticket:
    """The lock of one message: its name, and its owner if the message has taken it.

    ``task_id`` is the message's: headers that a program copies to another message say nothing.
    ``waits`` counts how often it was sent again because another process held the lock.
    """

    name: str
    owner: str
    task_id: str | None
    waits: int = 0

    @classmethod
    def of(cls, headers: Mapping[str, Any] | None, task_id: str | None) -> Ticket | None:
        """Return the ticket of the message ``task_id``, or None where there is none."""
        raw = (headers or {}).get(HEADER)
        if not isinstance(raw, Mapping) or raw.get("task_id") != task_id:
            return None
        name, owner, waits = raw.get("name"), raw.get("owner"), raw.get("waits", 0)
        if not (isinstance(name, str) and name and isinstance(owner, str)):
            return None
        return cls(name, owner, task_id, waits if type(waits) is int else 0)

    def added_to(self, headers: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the headers with this ticket."""
        fields = {"name": self.name, "owner": self.owner, "task_id": self.task_id}
        return {**(headers or {}), HEADER: {**fields, "waits": self.waits}}
