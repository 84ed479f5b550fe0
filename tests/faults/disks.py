"""A full disk: the very error of a database server, raised by a trigger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.servers import ByStore

RAISE = ByStore(
    {
        "postgresql": "FOR EACH ROW EXECUTE FUNCTION disk_full()",
        "mariadb": "FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, "
        "MESSAGE_TEXT = 'Disk full (distlock_lock)'",
    }
)
FUNCTION = """
CREATE OR REPLACE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE 'could not extend file "base/1/2": No space left on device' USING ERRCODE = 'disk_full';
END $$"""


@contextmanager
def full(execute: Callable[[str], object], store: str, event: str) -> Iterator[None]:
    """Have each INSERT or UPDATE of the lock table fail for want of room."""
    if store == "postgresql":
        execute(FUNCTION)
    execute(f"CREATE TRIGGER full_disk BEFORE {event} ON distlock_lock {RAISE[store]}")
    try:
        yield
    finally:
        on = " ON distlock_lock" if store == "postgresql" else ""
        execute(f"DROP TRIGGER full_disk{on}")
