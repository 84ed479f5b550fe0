"""Every backend under clients that are killed and stores that fail: the history is judged.

Each lasts for its share of ``DISTLOCK_PROOF_MINUTES``, see `shares`; by default until each kind of
fault has happened once. ``DISTLOCK_PROOF_SEED`` repeats what a failing run printed: the same plans
and the same faults in the same order, though not the same moments. ``DISTLOCK_PROOF_REPORT`` is a
file to which each run adds what it saw.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections

from django_distlock import locks
from django_distlock.backends.base import BaseLockBackend
from django_distlock.conf import parse
from tests import consul_servers, mysql_servers, redlock, zookeeper_servers
from tests.backends.tools import database_alias
from tests.conftest import REDIS, SERVERS
from tests.faults.proof.checker import Promise
from tests.faults.proof.nemesis import Fault, of_proxy, of_server
from tests.faults.proof.plans import MODES
from tests.faults.proof.run import Run
from tests.faults.shares import (
    IN_CONSUL,
    IN_MYSQL,
    IN_QUORUM,
    IN_REDIS,
    IN_ZOOKEEPER,
    SHARE,
    SQL,
)
from tests.faults.test_storm import database
from tests.proxy import Proxy
from tests.servers import DatabaseServer, Server

REPORT = os.environ.get("DISTLOCK_PROOF_REPORT", "")
SEED = int(os.environ.get("DISTLOCK_PROOF_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
TTL = 0.6

pytestmark = pytest.mark.timeout(SHARE + 240)


@contextmanager
def backend_of(alias: str, conf: dict[str, Any]) -> Iterator[BaseLockBackend]:
    """Open an alias in this process, too, which breaks locks and looks for what is left."""
    from django.utils.module_loading import import_string

    backend: BaseLockBackend = import_string(conf["BACKEND"])(alias, parse(alias, conf))
    with suppress(KeyError):  # in whose place this one comes would never be closed
        del locks[alias]
    locks[alias] = backend
    try:
        yield backend
    finally:
        del locks[alias]
        backend.close()


@dataclass(frozen=True)
class Terms:
    """What is otherwise in a run.

    ``exclusive``: whether the alias promises under this fault that no two are sure at once.
    ``later``: so much longer a lock may stay whose holder has vanished. ``within``: what the
    clients' command is begun with. ``said``: what an error has to say, before it is enough.
    """

    exclusive: bool = True
    later: float = 0.0
    within: Sequence[str] = ()
    said: str = ""


USUAL = Terms()


def prove(
    on: str,
    backend: BaseLockBackend,
    folder: Path,
    faults: Sequence[Fault],
    terms: Terms = USUAL,
    /,
    **environment: str,
) -> None:
    """Let clients and faults loose on an alias; assert that nothing was wrong, and much was done.

    ``on`` is what the alias is, for the report.
    """
    crashed = backend.max_ttl(TTL) + backend.grace + terms.later
    run = Run(
        backend.alias,
        folder,
        seed=SEED,
        seconds=SHARE,
        promise=Promise(
            ttl=TTL,
            vanished=crashed,
            recovery=backend.command_timeout,
            exclusive=terms.exclusive,
        ),
        faults=faults,
        environment=environment,
        within=terms.within,
        said=terms.said,
    )

    def leak() -> list[str]:
        left = [info for info in backend.held() if (info.name, info.fencing_token) not in before]
        return [f"{info.name!r} of {info.holder}" for info in left]

    # Other tests may have left some in a store that they share with these.
    before = {(info.name, info.fencing_token) for info in backend.held()}
    verdict = run.carry_out(leak)
    if REPORT:
        modes: Counter[str] = Counter()
        for name, calls in verdict.by_name.items():
            modes[MODES[name]] += calls
        seen = {
            "on": on,
            "exclusive": terms.exclusive,
            "faults": dict(sorted(run.kinds.items())),
            "calls": verdict.operations,
            "modes": dict(sorted(modes.items())),
            "grants": verdict.grants,
            "losses": verdict.losses,
            "refused": verdict.refused_writes,
            "violations": len(verdict.violations),
        }
        with Path(REPORT).open("a") as file:
            file.write(json.dumps(seen) + "\n")
    assert not verdict.violations, run.told(verdict)
    assert min(verdict.grants, verdict.writes) >= 10


@pytest.mark.parametrize(("technique", "store"), SQL)
def test_in_a_database(technique: str, store: str, tmp_path: Path) -> None:
    in_a_database(technique, store, SERVERS.get(store), tmp_path)


@pytest.mark.parametrize("technique", IN_MYSQL)
def test_in_mysql(technique: str, tmp_path: Path) -> None:
    in_a_database(technique, "mysql", mysql_servers.running(), tmp_path)


def in_a_database(
    technique: str, store: str, server: DatabaseServer | None, tmp_path: Path
) -> None:
    """Let clients and fault loose on a technique of SQL, in a database of its own."""
    own = database(store, tmp_path, server)
    faults: list[Fault] = []
    through = own["stormy"]
    with ExitStack() as stack:
        if server is not None:
            proxy = stack.enter_context(Proxy(server.port))
            faults = [*of_server(server, TTL), *of_proxy(proxy, TTL)]
            through = through | {"PORT": str(proxy.port)}
        stack.enter_context(database_alias("stormy", own["stormy"]))
        conf = settings.DISTLOCKS[f"{technique}{store}"] | {"LOCATION": "stormy"}
        backend = stack.enter_context(backend_of(f"{technique}stormy", conf))
        databases = json.dumps({"default": through, "stormy": through})
        on = f"{technique or 'table-'}{store}"
        prove(on, backend, tmp_path, faults, DISTLOCK_TEST_DATABASES=databases)
    connections["default"].close()


@pytest.mark.parametrize("alias", IN_REDIS)
def test_in_a_redis(alias: str, tmp_path: Path) -> None:
    server = REDIS[0]  # a persistent one: its locks outlive a kill
    with Proxy(server.port) as proxy, backend_of(alias, settings.DISTLOCKS[alias]) as backend:
        faults = [*of_server(server, TTL), *of_proxy(proxy, TTL)]
        through = server.url().replace(f":{server.port}/", f":{proxy.port}/")
        prove(alias, backend, tmp_path, faults, DISTLOCK_TEST_REDIS=through)


@pytest.mark.parametrize("alias", IN_QUORUM)
def test_in_a_quorum(alias: str, tmp_path: Path) -> None:
    some: list[Server] = list(redlock.NODES[:2])
    with backend_of(alias, settings.DISTLOCKS[alias]) as backend:
        faults = [fault for node in some for fault in of_server(node, TTL)]
        prove(alias, backend, tmp_path, faults)


@pytest.mark.parametrize("alias", IN_CONSUL)
def test_in_consul(alias: str, tmp_path: Path) -> None:
    server = consul_servers.CONSUL[0]
    with Proxy(server.port) as proxy, backend_of(alias, settings.DISTLOCKS[alias]) as backend:
        faults = [*of_server(server, TTL), *of_proxy(proxy, TTL)]
        urls = os.environ[consul_servers.VARIABLE]
        through = urls.replace(f":{server.port}", f":{proxy.port}")
        prove(alias, backend, tmp_path, faults, **{consul_servers.VARIABLE: through})


@pytest.mark.parametrize("alias", IN_ZOOKEEPER)
def test_in_a_zookeeper(alias: str, tmp_path: Path) -> None:
    (server,) = zookeeper_servers.SERVER
    with Proxy(server.port) as proxy, backend_of(alias, settings.DISTLOCKS[alias]) as backend:
        faults = [*of_server(server, TTL), *of_proxy(proxy, TTL)]
        through = f"{proxy.host}:{proxy.port}"
        prove(alias, backend, tmp_path, faults, DISTLOCK_TEST_ZOOKEEPER=through)
