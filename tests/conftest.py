"""Starts the chosen stores once, and Django on top of them."""

from __future__ import annotations

import gc
import json
import logging
import os
import tempfile
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

import tests.patience  # noqa: F401 - first, see there
from tests import (
    clusters,
    consul_servers,
    etcd_servers,
    mysql_servers,
    redlock,
    zookeeper_servers,
)
from tests.grouping import group_of, is_of_mysql
from tests.ordering import long_ones_first
from tests.servers import DATABASES, DatabaseServer, Redis, chosen, missing
from tests.tiers import TIERS, in_tier, lacks

if find_spec("xdist"):
    from tests.scheduling import pytest_xdist_make_scheduler  # noqa: F401 - a hook


class _Servers(dict[str, DatabaseServer]):
    """The database servers; MySQL is started when a test first asks for it."""

    def __missing__(self, store: str) -> DatabaseServer:
        if store != "mysql":
            raise KeyError(store)
        return mysql_servers.running()


SERVERS = _Servers()
"""The database servers of this run, by their store."""
REDIS: list[Redis] = []
"""The Redis of this run, if it was chosen."""

SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"},
}
# A machine that stands still for a moment is no failure of the test that this happens to.
hypothesis_settings.register_profile(
    "unhurried",
    parent=hypothesis_settings.get_profile(hypothesis_settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("unhurried")
# The user's project has a pytest of its own.
collect_ignore = ["userproject"]
MEMORY = "file:distlock_tests?mode=memory&cache=shared"

_folder = tempfile.TemporaryDirectory(prefix="distlock-tests-")
_keeper: list[Any] = []  # a database in memory lives as long as one connection to it


def pytest_addoption(parser: pytest.Parser) -> None:
    """Choose the tests of one tier; all of them without it."""
    parser.addoption("--tier", choices=TIERS, default="all", help="see tests/tiers.py")


def pytest_configure(config: pytest.Config) -> None:
    """Start what was chosen, and set Django up before the test modules are imported.

    With pytest-xdist each process has servers and files of its own; the one that only hands out
    the tests needs none.
    """
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    gc.disable()  # until all is collected: nothing goes, and each look at all there is takes longer
    file = str(Path(_folder.name) / "db.sqlite3")
    databases: dict[str, dict[str, Any]] = {"default": SQLITE | {"NAME": file}}
    if "sqlite" in chosen():
        databases["sqlite"] = SQLITE | {"NAME": file}
        databases["memory"] = {"ENGINE": SQLITE["ENGINE"], "NAME": MEMORY}
    for store, kind in DATABASES.items():
        if store in chosen() and store != "mysql":
            SERVERS[store] = kind().start()
            databases[store] = SERVERS[store].create_database("distlock")
    os.environ["DISTLOCK_TEST_DATABASES"] = json.dumps(databases)
    redlock.start()
    etcd_servers.start()
    consul_servers.start()
    zookeeper_servers.start()
    mysql_servers.start()
    os.environ.pop("DISTLOCK_TEST_REDIS", None)
    if "redis" in chosen():
        REDIS.append(Redis().start())
        os.environ["DISTLOCK_TEST_REDIS"] = REDIS[0].url()
    os.environ[clusters.VARIABLE] = " ".join(clusters.CLUSTERS)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"

    import django
    from django.core.management import call_command
    from django.db import connections

    django.setup()
    if "memory" in databases:
        keeper = connections["memory"].copy()
        keeper.inc_thread_sharing()
        keeper.ensure_connection()
        _keeper.append(keeper)
    for name in databases:
        call_command("migrate", database=name, verbosity=0)
        connections[name].close()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what has no test of the tier that is run: each process collects for itself."""
    path = collection_path.relative_to(config.rootpath).as_posix()
    without = lacks(f"{path}/" if collection_path.is_dir() else path, config.getoption("tier"))
    return True if without else None


def pytest_collection_finish() -> None:
    """Let the aliases of clusters go, as they do not run; see `clusters`."""
    if "DJANGO_SETTINGS_MODULE" in os.environ:
        clusters.hide()
    _set_aside()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start MySQL before the first of its tests."""
    if group_of(item.nodeid).startswith("mysql") or is_of_mysql(item.nodeid):
        mysql_servers.running()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Set aside what the tests of a class or module have left for the report.

    And close what they have left open: the next ones may restart the server.
    """
    is_last = nextitem is None or nextitem.parent is not item.parent
    if is_last:
        gc.collect()  # what is said of garbage is said of the test that left it
    yield
    if is_last:
        _close_connections()
        _set_aside()


def _close_connections() -> None:
    """Close this thread's connections to databases, if Django was set up at all."""
    if "DJANGO_SETTINGS_MODULE" in os.environ:
        from django.db import connections

        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()


@pytest.fixture
def caplog(
    caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> Iterator[pytest.LogCaptureFixture]:
    """Leave out what is told late of leases that earlier tests have dropped."""
    if request.module.__name__.endswith(".test_dropped"):
        yield caplog
        return
    caplog.handler.addFilter(_is_news)
    yield caplog
    caplog.handler.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return "was dropped without a release" not in record.getMessage()


def _set_aside() -> None:
    """Let the collector pass over what is there now: 13,000 tests and their results stay.

    Else each time that it goes over all stops the process, for half a second on a busy machine,
    and the contract has it collect after many a test.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)  # after they were put in random order
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, not skip, the tests that no chosen store has a part in; begin with the long."""
    tier = config.getoption("tier")
    left_out = [item for item in items if _has_no_store(item) or not in_tier(item.nodeid, tier)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    long_ones_first(items)


def _has_no_store(item: pytest.Item) -> bool:
    reasons = [str(mark.kwargs.get("reason", "")) for mark in item.iter_markers("skip")]
    return any(reason.startswith("got empty parameter set") for reason in reasons)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers; their folders go with them."""
    for server in (*SERVERS.values(), *REDIS):
        server.stop()
    redlock.stop()
    etcd_servers.stop()
    consul_servers.stop()
    zookeeper_servers.stop()
    mysql_servers.stop()
    for keeper in _keeper:
        keeper.close()
    _folder.cleanup()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which stores were asked for and not tested."""
    for store, why in missing().items():
        terminalreporter.write_line(f"NOT RUN: the tests of {store}: {why}", yellow=True)


@pytest.fixture(autouse=True)
def _no_test_environment() -> Iterator[None]:
    """Remove the mark of a test environment that a `TestCase` run inside a test leaves behind."""
    yield
    if hasattr(mail, "outbox"):
        del mail.outbox


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock name that no other test uses."""
    return f"{request.node.nodeid}:{os.urandom(4).hex()}"


@pytest.fixture
def patient_writers(store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have SQLite's writers wait for a minute: among many, one may wait long on a busy machine."""
    from django.db import connections

    if connections[store].vendor != "sqlite":
        yield
        return
    monkeypatch.setitem(connections.settings[store]["OPTIONS"], "timeout", 60)
    connections[store].close()
    yield
    connections[store].close()
