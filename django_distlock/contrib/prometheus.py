"""Metrics for Prometheus: `install`. Needs the extra ``prometheus``."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence

from django.core.exceptions import ImproperlyConfigured

from ..core.fork import after_fork
from ..core.threads import Mutex
from ..handler import locks
from ..metrics import Measurement, held_now, listen

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImproperlyConfigured(
        "django_distlock.contrib.prometheus needs prometheus-client: "
        'pip install "django-distlock[prometheus]"'
    ) from error

__all__ = ["HOLD_BUCKETS", "WAIT_BUCKETS", "install"]

WAIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Seconds: from a grant without contention to a wait that none should have."""
HOLD_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds: from a statement to a nightly import."""

ACTIONS = ("acquire", "renew", "release")
HELD = ("distlock_held", "Leases that are held now.")

_mutex = Mutex()
_installed: weakref.WeakKeyDictionary[CollectorRegistry, Callable[[], None]] = (
    weakref.WeakKeyDictionary()
)


def install(
    *,
    registry: CollectorRegistry | None = None,
    wait_buckets: Sequence[float] = WAIT_BUCKETS,
    hold_buckets: Sequence[float] = HOLD_BUCKETS,
) -> Callable[[], None]:
    """Feed the ``distlock_`` metrics of ``registry``, from now on; return a function that ends it.

    None is the library's default registry. Once for each process: in the `ready()` of an AppConfig.
    A second call for the same registry changes nothing. With PROMETHEUS_MULTIPROC_DIR in the
    environment the processes are added up, as the client library does it.
    """
    registry = REGISTRY if registry is None else registry
    with _mutex:
        if (known := _installed.get(registry)) is not None:
            return known
        metrics = _Metrics(registry, wait_buckets, hold_buckets)
        stop = listen(metrics)

        def uninstall() -> None:
            with _mutex:
                if _installed.get(registry) is uninstall:
                    del _installed[registry]
                    stop()
                    metrics.unregister()

        _installed[registry] = uninstall
        return uninstall


class _Metrics:
    """The metrics of one registry."""

    def __init__(
        self,
        registry: CollectorRegistry,
        wait_buckets: Sequence[float],
        hold_buckets: Sequence[float],
    ) -> None:
        lock = ("alias", "lock")
        self._acquired = Counter(
            "distlock_acquisitions",
            "Attempts to get a lock that have ended: granted, contended (another holder has it) "
            "or failed (the store did).",
            (*lock, "outcome"),
            registry=registry,
        )
        self._waited = Histogram(
            "distlock_wait_seconds",
            "How long acquisitions waited that were granted a lock.",
            lock,
            buckets=wait_buckets,
            registry=registry,
        )
        self._held = Histogram(
            "distlock_hold_seconds",
            "For how long leases were held that were released, or lost.",
            lock,
            buckets=hold_buckets,
            registry=registry,
        )
        self._renewed = Counter(
            "distlock_renewals",
            "Renewals, by the holder or in the background.",
            lock,
            registry=registry,
        )
        self._lost = Counter(
            "distlock_losses",
            "Leases that were lost while they were held.",
            lock,
            registry=registry,
        )
        self._forced = Counter(
            "distlock_forced_releases",
            "Locks that were force-released.",
            ("alias",),
            registry=registry,
        )
        self._failed = Counter(
            "distlock_store_errors",
            "Failures of a store, by what was asked of it.",
            ("alias", "action"),
            registry=registry,
        )
        self._now: _Counted | _Tracked = (
            _Tracked(registry) if "PROMETHEUS_MULTIPROC_DIR" in os.environ else _Counted(registry)
        )
        self._registry = registry
        self._known: set[tuple[str, str]] = set()
        with contextlib.suppress(ImproperlyConfigured):  # which `manage.py check` tells of
            for alias in locks:
                self._begin_alias(alias)

    def _begin_alias(self, alias: str) -> None:
        # At 0: what begins at 1 has not increased, to Prometheus, and no alert would see it.
        self._forced.labels(alias)
        for action in ACTIONS:
            self._failed.labels(alias, action)

    def __call__(self, m: Measurement) -> None:
        lock = (m.alias, m.label)
        if lock not in self._known:
            self._known.add(lock)
            self._lost.labels(*lock)
        if m.what == "acquire":
            self._acquired.labels(*lock, m.outcome).inc()
            if m.outcome == "granted":
                self._waited.labels(*lock).observe(m.seconds or 0.0)
        elif m.what == "hold":
            if m.outcome in ("released", "lost"):
                self._held.labels(*lock).observe(m.seconds or 0.0)
            if m.outcome == "lost":
                self._lost.labels(*lock).inc()
        elif m.what == "renew" and m.outcome == "renewed":
            self._renewed.labels(*lock).inc()
        elif m.what == "force":
            self._forced.labels(m.alias).inc()
        if m.outcome == "failed":
            self._failed.labels(m.alias, m.what).inc()
        if m.hold is not None:
            self._now.changed(lock, m.hold, begins=m.what in ("acquire", "attach"))

    def unregister(self) -> None:
        """Take the metrics out of the registry."""
        counters = (self._acquired, self._renewed, self._lost, self._forced, self._failed)
        for each in (*counters, self._waited, self._held, self._now.collector):
            self._registry.unregister(each)


class _Counted(Collector):
    """What is held now, counted when it is asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.collector = self
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield what is collected, without any value."""
        yield GaugeMetricFamily(*HELD, labels=("alias", "lock"))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the counts of this moment."""
        family = GaugeMetricFamily(*HELD, labels=("alias", "lock"))
        for lock, count in held_now().items():
            family.add_metric(lock, count)
        yield family

    def changed(self, lock: tuple[str, str], hold: object, *, begins: bool) -> None:
        """Do nothing: it is counted later."""


class _Tracked:
    """What is held now, written down at each change.

    With several processes the one that is asked knows only what the others have written. A lease
    that was dropped without a release is noticed by the next change.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.collector = Gauge(
            *HELD, ("alias", "lock"), registry=registry, multiprocess_mode="livesum"
        )
        self._forget_parent()
        after_fork(self._forget_parent)

    def _forget_parent(self) -> None:
        self._mutex = Mutex()
        self._holds: dict[tuple[str, str], weakref.WeakSet[object]] = {}

    def changed(self, lock: tuple[str, str], hold: object, *, begins: bool) -> None:
        """Note the beginning or the end of a hold."""
        with self._mutex:
            holds = self._holds.setdefault(lock, weakref.WeakSet())
            (holds.add if begins else holds.discard)(hold)
            self.collector.labels(*lock).set(len(holds))
