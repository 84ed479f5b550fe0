"""The tables of the models, made once for each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asgiref.sync import SyncToAsync
from django.db import connections

from tests.versions.tools import STORES

_made: set[str] = set()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each database of this run, with empty tables."""
    from tests.versions.models import ALL  # not before Django is set up

    store = str(request.param)
    connection = connections[store]
    for alias in (store, "default"):  # where forms look for what may be chosen
        database = str(connections[alias].settings_dict)
        if database not in _made:
            with connections[alias].schema_editor() as editor:
                for model in ALL:
                    editor.create_model(model)
            _made.add(database)
    # A test before may have restarted the server: those of the loops' thread would be dead.
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()
    yield store
    assert not connection.in_atomic_block
    for model in reversed(ALL):
        model._base_manager.using(store).all()._raw_delete(store)
    connections.close_all()
