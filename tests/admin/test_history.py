"""The history of forced releases: written whichever way a lock was broken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from django_distlock import LockNotHeldError, lock, locks
from django_distlock.history import break_hold
from django_distlock.inspection import look
from django_distlock.models import ForcedRelease
from django_distlock.testing import hold_elsewhere, override_locks
from tests.backends.tools import soon

NAME = "evil\x00\ud800<b>☃" + "x" * 5000


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    """Begin and end with an empty history."""
    ForcedRelease.objects.all().delete()
    yield
    ForcedRelease.objects.all().delete()
    connection.close()


def test_by_a_program(name: str) -> None:
    with hold_elsewhere(name):
        broken = locks["default"].force_release(name)
        again = ForcedRelease.objects.get()
    assert (again.alias, again.name, again.token) == ("default", name, broken.fencing_token)
    assert (again.by, again.way) == ("", "code")
    assert again.holder == str(broken.holder)


def test_by_the_command(name: str) -> None:
    with hold_elsewhere(name):
        call_command("locks", "release", name, "--using", "default", "--yes", verbosity=0)
    row = ForcedRelease.objects.get()
    assert (row.name, row.way) == (name, "command")
    assert "@" in row.by


def test_the_reason_is_written_down(name: str) -> None:
    with hold_elsewhere(name):
        options = ("--using", "default", "--yes", "--why", " it\nhangs ")
        call_command("locks", "release", name, *options, verbosity=0)
    assert ForcedRelease.objects.get().why == "it\\nhangs"


def test_in_async_code(name: str) -> None:
    async def force() -> None:
        await locks["default"].aforce_release(name)

    with hold_elsewhere(name):
        asyncio.run(force())
    assert ForcedRelease.objects.get().name == name


def test_by_a_synchronous_call_on_an_event_loop(name: str) -> None:
    async def force() -> None:
        locks["default"].force_release(name)

    with hold_elsewhere(name):
        asyncio.run(force())
    # Django lets nobody write there, so it is done in the background.
    assert soon(lambda: ForcedRelease.objects.filter(name=name).exists())


def test_any_name_can_be_written() -> None:
    with hold_elsewhere(NAME):
        locks["default"].force_release(NAME)
    row = ForcedRelease.objects.get()
    assert row.name.startswith("evil\\x00\\ud800<b>\\u2603xxx")
    assert len(row.name) == 1000
    assert str(row).isprintable()


def test_a_failure_to_write_leaves_the_lock_free(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with connection.schema_editor() as editor:
        editor.alter_db_table(ForcedRelease, "distlock_forced", "distlock_away")
    try:
        with hold_elsewhere(name), caplog.at_level(logging.ERROR), transaction.atomic():
            locks["default"].force_release(name)
            # The caller's transaction goes on.
            assert connection.introspection.table_names()
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(ForcedRelease, "distlock_away", "distlock_forced")
    assert not lock(name).locked()
    assert "is not in the history" in caplog.text


def test_locks_of_a_test_are_not_written_down(name: str) -> None:
    with override_locks(), hold_elsewhere(name):
        locks["default"].force_release(name)
    assert not ForcedRelease.objects.exists()


def test_a_newer_hold_is_not_broken(name: str) -> None:
    with hold_elsewhere(name):
        [seen] = locks["default"].held(name)
    with hold_elsewhere(name):
        with pytest.raises(LockNotHeldError):
            break_hold(locks["default"], seen, by="ada", way=ForcedRelease.Way.PAGE)
        assert lock(name).locked()
    assert not ForcedRelease.objects.exists()


def test_who_broke_it(name: str) -> None:
    with hold_elsewhere(name):
        [seen] = locks["default"].held(name)
        break_hold(locks["default"], seen, by="ada\n", way=ForcedRelease.Way.PAGE)
    row = ForcedRelease.objects.get()
    assert (row.by, row.way) == ("ada\\n", "page")


def test_a_round_trip_is_timed(name: str) -> None:
    [seen] = look({"default": locks["default"]}, name, 5.0, timed=True)
    assert seen.round_trip is not None
    assert 0 < seen.round_trip < 5
