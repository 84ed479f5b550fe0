"""Metrics for Prometheus, as they are scraped."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from django_distlock import LeaseLostError, LockBackendError, lock, signals
from django_distlock.contrib import prometheus
from django_distlock.metrics import OTHER
from django_distlock.testing import hold_elsewhere
from tests.unit.tools import Down, UnitBackend, drain, eventually, in_thread

DOCS = Path(__file__).parents[2] / "docs"
PARTS = ("_bucket", "_sum", "_count")
WITHOUT = "import sys; sys.modules['{}'] = None\nimport django_distlock.contrib.{}"


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    """A registry in which our metrics are."""
    made = CollectorRegistry()
    uninstall = prometheus.install(registry=made)
    yield made
    uninstall()


def value(registry: CollectorRegistry, metric: str, **labels: str) -> float | None:
    """Return what a scrape shows; None: nothing."""
    return registry.get_sample_value(f"distlock_{metric}", labels)


def test_a_hold(registry: CollectorRegistry, backend: UnitBackend) -> None:
    labels = {"alias": backend.alias, "lock": "order:{id}"}

    @lock("order:{id}", using=backend.alias)
    def work(id: int) -> float | None:
        return value(registry, "held", **labels)

    assert value(registry, "held", **labels) is None
    assert [work(number) for number in range(3)] == [1, 1, 1]
    assert value(registry, "held", **labels) is None
    assert value(registry, "acquisitions_total", **labels, outcome="granted") == 3
    assert value(registry, "wait_seconds_count", **labels) == 3
    assert value(registry, "hold_seconds_count", **labels) == 3
    assert 0 < (value(registry, "hold_seconds_sum", **labels) or 0) < 15
    assert value(registry, "losses_total", **labels) == 0


def test_async(registry: CollectorRegistry, backend: UnitBackend) -> None:
    async def work() -> None:
        async with lock("a", using=backend.alias, label="some") as lease:
            await lease.arenew()

    asyncio.run(work())
    labels = {"alias": backend.alias, "lock": "some"}
    assert value(registry, "hold_seconds_count", **labels) == 1
    assert value(registry, "renewals_total", **labels) == 1


def test_contention(registry: CollectorRegistry, backend: UnitBackend) -> None:
    labels = {"alias": backend.alias, "lock": "some"}
    mine = lock("a", using=backend.alias, label="some", wait=0)
    with hold_elsewhere("a", using=backend.alias):
        assert mine.acquire() is None
        assert mine.acquire() is None
    assert value(registry, "acquisitions_total", **labels, outcome="contended") == 2
    assert value(registry, "wait_seconds_count", **labels) is None


def test_a_store_that_fails(registry: CollectorRegistry, backend: UnitBackend) -> None:
    mine = lock("a", using=backend.alias, label="some")
    with mine as lease:
        for verb in ("try_acquire", "renew"):
            backend.before[verb].append(Down("no route"))
        with pytest.raises(LockBackendError):
            lease.renew()
        with pytest.raises(LockBackendError):
            in_thread(lock("b", using=backend.alias, label="some").acquire)
        backend.before["release"].append(Down("no route"))
        with pytest.raises(LockBackendError):
            lease.release()
    for action in ("acquire", "renew", "release"):
        assert value(registry, "store_errors_total", alias=backend.alias, action=action) == 1
    labels = {"alias": backend.alias, "lock": "some"}
    assert value(registry, "acquisitions_total", **labels, outcome="failed") == 1


def test_a_loss_and_a_forced_release(registry: CollectorRegistry, backend: UnitBackend) -> None:
    labels = {"alias": backend.alias, "lock": "some"}
    lease = lock("a", using=backend.alias, label="some").acquire()
    assert lease is not None
    assert value(registry, "losses_total", **labels) == 0
    assert value(registry, "forced_releases_total", alias="default") == 0
    backend.force_release("a")
    with pytest.raises(LeaseLostError):
        lease.renew()
    drain(backend)
    assert value(registry, "losses_total", **labels) == 1
    assert value(registry, "hold_seconds_count", **labels) == 1
    assert value(registry, "forced_releases_total", alias=backend.alias) == 1
    assert value(registry, "held", **labels) is None


def test_what_is_0_is_there(registry: CollectorRegistry) -> None:
    """What begins at 1 has not increased, to Prometheus, and no alert sees it."""
    for action in ("acquire", "renew", "release"):
        assert value(registry, "store_errors_total", alias="default", action=action) is not None


def test_a_lease_that_is_dropped_is_not_held(
    registry: CollectorRegistry, backend: UnitBackend
) -> None:
    labels = {"alias": backend.alias, "lock": "some"}
    lease = lock("a", using=backend.alias, label="some").acquire()
    assert value(registry, "held", **labels) == 1
    del lease
    assert eventually(lambda: value(registry, "held", **labels) is None)


def test_no_name_is_ever_shown(registry: CollectorRegistry, backend: UnitBackend) -> None:
    for number in range(200):
        with lock(f"secret:{number}", using=backend.alias):
            pass
    shown = generate_latest(registry).decode()
    assert "secret" not in shown
    labels = {"alias": backend.alias, "lock": OTHER}
    assert value(registry, "acquisitions_total", **labels, outcome="granted") == 200


def test_a_second_call_changes_nothing(registry: CollectorRegistry, backend: UnitBackend) -> None:
    uninstall = prometheus.install(registry=registry)
    with lock("a", using=backend.alias):
        pass
    labels = {"alias": backend.alias, "lock": OTHER}
    assert value(registry, "acquisitions_total", **labels, outcome="granted") == 1
    uninstall()
    uninstall()
    assert signals.listeners == []
    assert generate_latest(registry) == b""
    prometheus.install(registry=registry)()  # and anew


def test_the_default_is_the_registry_of_the_process(backend: UnitBackend) -> None:
    uninstall = prometheus.install()
    try:
        assert b"distlock_acquisitions_total" in generate_latest(REGISTRY)
    finally:
        uninstall()
    assert b"distlock" not in generate_latest(REGISTRY)


def test_several_processes_are_added_up(tmp_path: Path) -> None:
    """Those of a server that forks, one of which is killed while it holds a lock."""
    forks = "ignore:This process"  # of which Python warns where another thread runs
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", forks, "-m", "tests.monitoring.prefork"],
        env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "held: 3, acquisitions: 7",
        "held: 2, acquisitions: 7",
        "held: 1, acquisitions: 7",
        "held: 0, acquisitions: 7",
    ]


@pytest.mark.parametrize("page", ["howto/watch-in-production.md", "reference/metrics.md"])
def test_the_metrics_of_the_pages_are_those(registry: CollectorRegistry, page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    shown = set(re.findall(r"distlock_\w+", text)) - {"distlock_lock"}
    there: set[str] = set()
    for metric in registry.collect():
        name = metric.name
        there |= {f"{name}_total"} if metric.type == "counter" else {name}
        if metric.type == "histogram":
            there |= {f"{name}_{part}" for part in ("bucket", "sum", "count")}
    assert shown
    assert shown - there - {"distlock_"} == set()
    if page.startswith("reference"):
        assert {name for name in there if not name.endswith(PARTS)} == shown - {"distlock_"}


@pytest.mark.parametrize(
    ("library", "module", "extra"),
    [
        ("prometheus_client", "prometheus", "prometheus"),
        ("opentelemetry", "opentelemetry", "opentelemetry"),
        ("health_check", "health_check", "health"),
    ],
)
def test_without_its_library_the_extra_is_named(library: str, module: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(library, module)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert f'pip install "django-distlock[{extra}]"' in done.stderr
