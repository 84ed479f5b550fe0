"""Histories under what happens to machines: clocks, disks, data and packets; see `test_proof`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections

from tests.backends.tools import database_alias
from tests.conftest import REDIS, SERVERS
from tests.faults.clocks import clocked
from tests.faults.disks import full
from tests.faults.proof.link import Link, NoLinkError
from tests.faults.proof.machines import of_clock, of_data, of_disk, of_link
from tests.faults.shares import CLOCKS, DISKS, FORGETFUL, LINKS, SHARE
from tests.faults.test_proof import TTL, Terms, backend_of, prove
from tests.faults.test_storm import database
from tests.proxy import Proxy
from tests.servers import Redis

STEP = 1.5 * TTL
"""Seconds by which a clock is turned."""
STEPS = 3
"""So often it may be turned while a lock of somebody who has vanished ends."""

pytestmark = pytest.mark.timeout(SHARE + 240)


def stormy(settings_: dict[str, Any]) -> str:
    """Return what tells the clients where the database is."""
    return json.dumps({"default": settings_, "stormy": settings_})


def conf_of(store: str) -> dict[str, Any]:
    """Return the settings of locks in the database "stormy"."""
    conf: dict[str, Any] = settings.DISTLOCKS[store]
    return conf | {"LOCATION": "stormy"}


@pytest.mark.parametrize(("store", "way"), CLOCKS)
def test_a_clock_that_is_turned(store: str, way: str, tmp_path: Path) -> None:
    """One that is only set back makes no two sure of a lock; tokens rise whatever it does."""
    with clocked(store) as server:
        own = server.create_database("stormy")
        with database_alias("stormy", own), backend_of("stormy", conf_of(store)) as backend:
            call_command("migrate", database="stormy", verbosity=0)
            prove(
                f"clock-{way}-{store}",
                backend,
                tmp_path,
                of_clock(server, STEP, forward=way == "both"),
                Terms(exclusive=way == "back", later=STEPS * STEP),
                DISTLOCK_TEST_DATABASES=stormy(own),
            )


@pytest.mark.parametrize("store", DISKS)
def test_a_disk_that_is_full(store: str, tmp_path: Path) -> None:
    """Nothing is granted twice or for ever by a database that can write again later."""
    own = database(store, tmp_path)["stormy"]

    def execute(sql: str) -> None:
        with connections["stormy"].cursor() as cursor:
            cursor.execute(sql)

    with database_alias("stormy", own), backend_of("stormy", conf_of(store)) as backend:
        faults = of_disk(partial(full, execute, store, "UPDATE"), TTL)
        told = {"DISTLOCK_TEST_DATABASES": stormy(own)}
        prove(f"disk-{store}", backend, tmp_path, faults, Terms(said="is full"), **told)


@pytest.mark.parametrize("alias", FORGETFUL)
def test_a_redis_that_forgets(alias: str, tmp_path: Path) -> None:
    """Two may be sure for a moment, but no token comes again, and no stale write is accepted."""
    with Redis() as server:
        conf = settings.DISTLOCKS[alias] | {"LOCATION": server.url()}
        with backend_of(alias, conf) as backend:
            told = {"DISTLOCK_TEST_REDIS": server.url()}
            faults = of_data(server)
            prove(f"forgetful-{alias}", backend, tmp_path, faults, Terms(exclusive=False), **told)


@pytest.fixture
def link() -> Iterator[Link]:
    """Make a network for the clients."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Link())
        except NoLinkError as error:
            pytest.skip(str(error))
        yield made


@pytest.mark.parametrize("store", LINKS)
def test_a_link_that_loses_packets(store: str, link: Link, tmp_path: Path) -> None:
    """The clients are in a network of their own."""
    server = SERVERS[store] if store in SERVERS else REDIS[0]
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.port, at=link.host))
        if store in SERVERS:
            own = database(store, tmp_path)["stormy"]
            stack.enter_context(database_alias("stormy", own))
            through = own | {"HOST": proxy.host, "PORT": str(proxy.port)}
            told = {"DISTLOCK_TEST_DATABASES": stormy(through)}
            backend = stack.enter_context(backend_of("stormy", conf_of(store)))
        else:
            told = {"DISTLOCK_TEST_REDIS": f"redis://{proxy.host}:{proxy.port}/0"}
            backend = stack.enter_context(backend_of(store, settings.DISTLOCKS[store]))
        faults = of_link(link, TTL)
        prove(f"link-{store}", backend, tmp_path, faults, Terms(within=link.within), **told)
