"""What the advisory backend asks of a database; each answers in its own words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from ...core.values import Claim
from ..row.session import Row
from .session import AdvisorySession

__all__ = ["COLUMNS", "DELETE_SESSION", "FORCE", "AdvisoryDialect"]

COLUMNS: Final = "token, digest, name, owner, note, lock_key, session, acquired"
DELETE_SESSION: Final = "DELETE FROM distlock_advisory WHERE session = %(session)s"
FORCE: Final = """UPDATE distlock_advisory SET forced = 1
 WHERE digest = %(digest)s AND owner = %(owner)s"""


class AdvisoryDialect(ABC):
    """The statements of one database."""

    one: ClassVar[str]
    """Returns the holders of a lock, the newest first."""
    row: ClassVar[str]
    """Writes what people see of a lock."""
    gone: ClassVar[str]
    """Deletes the rows of locks that are held no more, by their tokens."""
    leftovers: ClassVar[str]
    """Deletes what is left of sessions that have ended."""
    ended: ClassVar[str]
    """The condition that a row's session holds its lock no more."""
    unit: ClassVar[float] = 1.0
    """Seconds; the unit of the server's limit on silence."""
    keeps_high: ClassVar[bool] = False
    """Whether the greatest token so far is to be noted now and then, see `note_high`."""

    @abstractmethod
    def lock_of(self, session: AdvisorySession, key: str) -> str:
        """Return the server's word for the lock of a key."""

    @abstractmethod
    def limit_of(self, ttl: float) -> int:
        """Return a ttl in the unit of the server's limit on silence, rounded up."""

    @abstractmethod
    def begin(self, session: AdvisorySession) -> None:
        """Make a new connection ready: its limits, its number, and where tokens begin."""

    @abstractmethod
    def set_limit(self, session: AdvisorySession) -> None:
        """Have the server end the session when it is silent for ``session.limit``."""

    # -- sent on a session of locks, answered later ------------------------------------------------

    @abstractmethod
    def send_try(self, session: AdvisorySession, lock: str, claim: Claim) -> None:
        """Send what takes the lock if it is free, and then draws a token."""

    def send_join(self, session: AdvisorySession, lock: str) -> None:
        """Send what draws a token for a lock that the session shares, unless a writer waits."""
        raise NotImplementedError

    @abstractmethod
    def send_unlock(self, session: AdvisorySession, lock: str, *, shared: bool) -> None:
        """Send what frees the lock."""

    @abstractmethod
    def send_wait(self, session: AdvisorySession, lock: str, claim: Claim) -> None:
        """Send what waits for the lock, and then draws a token."""

    def downgrade(self, session: AdvisorySession, lock: str) -> None:
        """Share what the session holds alone; no other gets it alone meanwhile."""
        raise NotImplementedError

    @abstractmethod
    def send_look(self, session: AdvisorySession) -> None:
        """Send the question which of the session's locks another process wants released."""

    def token(self, session: AdvisorySession, lock: str, key: str, row: Row | None) -> int | None:
        """Return the token that an answer brings; None if another holds the lock."""
        return None if row is None or row[0] is None else int(row[0])

    @abstractmethod
    def freed(self, row: Row | None) -> bool:
        """Return whether an answer to `send_unlock` says that the lock was held."""

    def forced(self, row: Row | None) -> list[str]:
        """Return the owners that an answer to `send_look` names."""
        text = None if row is None else row[0]
        if text is None:
            return []
        return (text.decode() if isinstance(text, bytes) else str(text)).split(",")

    @abstractmethod
    def cancel(self, session: AdvisorySession, other: AdvisorySession, limit: float) -> None:
        """Have the server end the wait of ``session``, by way of ``other``."""

    # -- in autocommit, on any session -------------------------------------------------------------

    def holders_of(self, session: AdvisorySession, digest: str) -> list[Row]:
        """Return (digest, name, owner, token, note, session, acquired) of a lock's holders.

        The newest first. Of a session that took the lock before, an older row may be left still.
        """
        return session.fetch(self.one, {"digest": digest})

    @abstractmethod
    def holders(
        self, session: AdvisorySession, after: str, size: int
    ) -> tuple[list[Row], str | None]:
        """Return the same of the next held locks, and where to go on; None where it ends."""

    @abstractmethod
    def is_held(self, session: AdvisorySession, lock: str) -> bool:
        """Return whether any session of the server holds a lock."""

    def insert(self, session: AdvisorySession, rows: Sequence[dict[str, Any]]) -> None:
        """Write what people see of the locks that were taken; ``age`` is in microseconds."""
        with session.connection.cursor() as cursor:
            cursor.executemany(self.row, rows)

    def delete(self, session: AdvisorySession, tokens: Sequence[int], *, lost: bool) -> None:
        """Delete the rows of locks that are held no more.

        Of those that were ``lost`` with their session, only if the server has ended it: it tells
        the client of the end before it frees the locks.
        """
        sql = f"{self.gone} AND {self.ended}" if lost else self.gone
        session.change(sql, {"tokens": list(tokens)})

    def tidy(self, session: AdvisorySession) -> None:
        """Delete what is left of sessions that have ended."""
        session.change(self.leftovers, {})

    @abstractmethod
    def end(self, session: AdvisorySession, number: int) -> None:
        """End another session."""

    def note_high(self, session: AdvisorySession, token: int) -> None:  # noqa: B027 - not all do
        """Note the greatest token so far, for the next run of the server."""
