"""What a store is: started, described to Django, and asked how much work it did."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ..adapter import Backend

__all__ = ["Store", "alias"]


class Store(ABC):
    """A store, with the settings that one would use in production."""

    name: ClassVar[str]
    backend: ClassVar[Backend] = "table"
    """The backend of the alias ``default``."""
    in_client: ClassVar[bool] = False
    """Whether its work is done, and counted, in the clients' own processes."""
    most_leases: ClassVar[int] = 1_000_000
    """How many leases at most one process takes, and renews, within minutes."""
    has_tables: ClassVar[bool] = True
    """Whether it is a database, in which rows of the application's own can be saved."""

    @abstractmethod
    def start(self) -> None:
        """Start it; nothing of Django is set up yet."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it and delete what it kept."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what Django is told of it."""

    def pids(self) -> list[int]:
        """Return the server's processes."""
        return []

    def count_from_now(self) -> None:  # noqa: B027 - servers count by themselves
        """Have this client count, where clients do."""

    def settle(self, left: int = 0) -> None:  # noqa: B027 - some count at once
        """Wait until the server has counted what was done by all clients but the ``left`` ones."""

    @abstractmethod
    def work(self) -> int:
        """Return how often the server was asked to do something."""

    @abstractmethod
    def writes(self) -> dict[str, int]:
        """Return counts of what goes to the disk, or of changes where nothing does."""

    def memory(self) -> int | None:
        """Return the bytes of memory that its data take, or None when they are on a disk."""
        return None


def alias(backend: str, location: Any = None) -> dict[str, Any]:
    """Return an entry of DISTLOCKS: the defaults but for WAIT, longer than any measurement."""
    entry = {"BACKEND": f"django_distlock.backends.{backend}Backend", "WAIT": 600}
    return entry if location is None else {**entry, "LOCATION": location}
