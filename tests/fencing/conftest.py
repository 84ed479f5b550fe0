"""Fixtures: the tables on each database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from asgiref.sync import SyncToAsync
from django.db import connections

from tests.backends.tools import STORES

if TYPE_CHECKING:  # they can be imported only when Django is set up
    from tests.fencing.models import Account

_made: set[str] = set()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each database of this run, as an alias of DATABASES and of DISTLOCKS, with our tables."""
    from tests.fencing.models import TABLES

    alias = str(request.param)
    if alias not in _made:
        with connections[alias].schema_editor() as editor:
            for table in TABLES:
                editor.create_model(table)
        _made.add(alias)
    # A test before may have restarted the server: those of the loops' thread would be dead.
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()
    yield alias
    assert not connections[alias].in_atomic_block
    connections.close_all()


@pytest.fixture
def account(store: str, name: str) -> Account:
    """A row that nobody has fenced yet."""
    from tests.fencing.models import Account

    return Account.objects.using(store).create(owner=name[:300])
