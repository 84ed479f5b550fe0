"""The portable clock: UTC, by the database, whatever zone anybody has set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connections
from django.test import override_settings

from django_distlock import lock, locks
from django_distlock.backends.table.portable import fault_of, microseconds, read_clock
from tests.backends.tools import STORES, database_alias, elsewhere, lock_alias

ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Auckland"]
BERLIN = ZoneInfo("Europe/Berlin")


def now() -> int:
    """Return this machine's clock; the servers run on it, too."""
    return (datetime.now(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def session_zone(store: str, zone: str) -> dict[str, Any]:
    """Return the settings of a database whose session is not in UTC."""
    settings = dict(connections.settings[store])
    offset = datetime(2026, 7, 1, tzinfo=ZoneInfo(zone)).strftime("%z")
    if store == "mariadb":
        setting = {"init_command": f"SET time_zone = '{offset[:3]}:{offset[3:]}'"}
        settings["OPTIONS"] = settings["OPTIONS"] | setting
    return settings


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("use_tz", [True, False], ids=["USE_TZ", "not USE_TZ"])
def test_the_clock_is_in_utc(store: str, zone: str, use_tz: bool) -> None:
    """So that no zone's daylight saving, which is a change of its offset, moves it."""
    with (
        override_settings(USE_TZ=use_tz, TIME_ZONE=zone),
        database_alias("own", session_zone(store, zone)) as connection,
    ):
        before = now()
        reading = microseconds(read_clock(connection))
        assert before - 5_000 <= reading <= now() + 5_000


@pytest.mark.parametrize("store", STORES)
def test_locks_in_local_time(store: str, name: str) -> None:
    """A lease is as long as in UTC, and two programs with different zones see the same."""
    options = {"LOCATION": "own", "OPTIONS": {"SQL": "portable"}}
    with (
        override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"),
        database_alias("own", session_zone(store, "Europe/Berlin")),
        lock_alias("own", **options),
        lock_alias("utc", LOCATION=store),
        lock(name, using="own", ttl=20),
    ):
        assert elsewhere(lock(name, using="utc", wait=0).acquire) is None
        (info,) = locks["utc"].held(name)
        assert info.expires_at is not None
        assert timedelta(seconds=15) < info.expires_at - datetime.now(UTC) <= timedelta(seconds=20)


def test_readings_with_a_zone_rise_through_both_changes_of_the_clocks() -> None:
    """An unknown database may say local time, as long as it says which."""
    for change in (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)):
        moments = [change + timedelta(minutes=15 * n) for n in range(-8, 9)]
        readings = [microseconds(moment.astimezone(BERLIN)) for moment in moments]
        assert {after - before for before, after in pairwise(readings)} == {15 * 60 * 1_000_000}
        assert readings == [microseconds(moment.replace(tzinfo=None)) for moment in moments]


FINE = datetime(2026, 10, 25, 2, 30, 0, 123456)


@pytest.mark.parametrize(
    ("readings", "in_utc", "fault"),
    [
        ([FINE, FINE], True, ""),
        ([FINE, FINE], False, "is local time"),
        ([FINE.replace(tzinfo=BERLIN)] * 2, False, ""),
        ([FINE.replace(microsecond=0)] * 2, True, "has no fractions"),
        ([FINE.replace(microsecond=0), FINE], True, ""),
        (["2026-10-25 02:30:00.123", FINE], True, "is read as str"),
        ([FINE.date()] * 2, True, "is read as date"),
    ],
)
def test_clocks_that_leases_cannot_be_judged_by(
    readings: list[Any], in_utc: bool, fault: str
) -> None:
    found = fault_of(readings, in_utc=in_utc)
    assert found.startswith(fault)
    assert bool(found) is bool(fault)
