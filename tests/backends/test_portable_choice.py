"""The lock table by the ORM alone: for which databases it is chosen, and which are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from django_distlock import lock, locks
from django_distlock.backends.table.portable import PortableStatements
from django_distlock.backends.table.statements import TextStatements
from django_distlock.exceptions import InvalidLockBackendError
from tests.backends.tools import SERVERS, database_alias, elsewhere, lock_alias, table
from tests.servers import ByStore


def test_a_database_with_text_of_its_own_is_forced(store: str) -> None:
    assert isinstance(table(store).statements(), TextStatements)
    assert isinstance(table(f"portable-{store}").statements(), PortableStatements)


def test_both_share_their_locks(store: str, name: str) -> None:
    """As when a program is changed from one to the other while it runs."""
    options = {"LOCATION": store, "PREFIX": "shared"}
    tokens = []
    with (
        lock_alias("text", **options),
        lock_alias("portable", **options, OPTIONS={"SQL": "portable"}),
    ):
        for ours, theirs in [("text", "portable"), ("portable", "text")] * 2:
            with lock(name, using=ours) as lease:
                tokens.append(lease.fencing_token)
                assert elsewhere(lock(name, using=theirs, wait=0).acquire) is None
                assert [info.name for info in locks[theirs].held(name)] == [name]
                lease.renew()
    assert tokens == sorted(set(tokens))


ENGINES = ByStore(postgresql="unheard", mariadb="plain_mysql")


@contextmanager
def foreign(store: str, **more: Any) -> Iterator[str]:
    """Open an alias on an engine for which there is no text."""
    engine = f"tests.backends.engines.{ENGINES[store]}"
    settings = dict(connections.settings[store]) | {"ENGINE": engine} | more
    with database_alias("foreign", settings), lock_alias("foreign", LOCATION="foreign") as alias:
        yield alias


@pytest.mark.parametrize("store", SERVERS)
def test_a_database_without_text_of_its_own(store: str, name: str) -> None:
    with foreign(store) as alias:
        with lock(name, using=alias) as lease:
            lease.renew()
            assert elsewhere(lock(name, using=alias, wait=0).acquire) is None
            assert [info.name for info in locks[alias].held(name)] == [name]
            with transaction.atomic(using="foreign"):
                lock(f"{name}:inside", using=alias).acquire().release()  # type: ignore[union-attr]
        assert isinstance(table(alias).statements(), PortableStatements)
        assert not lock(name, using=alias).locked()


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "postgresql"])
def test_an_unknown_database_in_local_time_is_refused(store: str, name: str) -> None:
    with (
        override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin"),
        foreign(store) as alias,
        pytest.raises(InvalidLockBackendError, match=r"'foreign'.*Unheard is local time.*USE_TZ"),
    ):
        lock(name, using=alias).acquire()


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "postgresql"])
def test_an_unknown_database_is_told_by_the_check(store: str) -> None:
    with foreign(store) as alias:
        (message,) = locks[alias].check()
    assert message.id == "distlock.I001"
    assert "Unheard" in message.msg
