"""Spans and metrics for OpenTelemetry: `install`. Needs the extra ``opentelemetry``."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable

from django.core.exceptions import ImproperlyConfigured

from .. import __version__
from ..core.threads import Mutex
from ..metrics import Measurement, held_now, listen

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ImproperlyConfigured(
        "django_distlock.contrib.opentelemetry needs the API of OpenTelemetry: "
        'pip install "django-distlock[opentelemetry]"'
    ) from error

__all__ = ["install"]

SCOPE = "django_distlock"
WAIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
HOLD_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)

_mutex = Mutex()
_installed: list[Callable[[], None]] = []

Attributes = dict[str, str]


def install(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    spans: bool = True,
    names: bool = False,
) -> Callable[[], None]:
    """Send spans and metrics of locks, from now on; return a function that ends it.

    Once for each process: in the `ready()` of an AppConfig. A second call changes nothing. The
    providers are those of the process unless given. With ``names`` the spans, never the metrics,
    carry the lock's whole name, which may contain personal data.
    """
    with _mutex:
        if _installed:
            return _installed[0]
        meters = _Meters(meter_provider)
        stops = [listen(meters), meters.close]
        if spans:
            stops.append(listen(_Spans(tracer_provider, names=names)))

        def uninstall() -> None:
            with _mutex:
                if uninstall in _installed:
                    _installed.remove(uninstall)
                    for stop in stops:
                        stop()

        _installed.append(uninstall)
        return uninstall


def _attributes(m: Measurement) -> Attributes:
    return {"distlock.alias": m.alias, "distlock.lock": m.label}


class _Meters:
    """The instruments."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter(SCOPE, __version__, provider)
        self._acquired = meter.create_counter(
            "distlock.acquisitions",
            unit="{attempt}",
            description="Attempts to get a lock that have ended, by their outcome.",
        )
        self._waited = meter.create_histogram(
            "distlock.wait.duration",
            unit="s",
            description="How long acquisitions waited that were granted a lock.",
            explicit_bucket_boundaries_advisory=WAIT_BUCKETS,
        )
        self._held = meter.create_histogram(
            "distlock.hold.duration",
            unit="s",
            description="For how long leases were held that were released, or lost.",
            explicit_bucket_boundaries_advisory=HOLD_BUCKETS,
        )
        self._renewed = meter.create_counter(
            "distlock.renewals", unit="{renewal}", description="Renewals of leases."
        )
        self._lost = meter.create_counter(
            "distlock.losses",
            unit="{lease}",
            description="Leases that were lost while they were held.",
        )
        self._forced = meter.create_counter(
            "distlock.forced_releases",
            unit="{lock}",
            description="Locks that were force-released.",
        )
        self._failed = meter.create_counter(
            "distlock.store.errors",
            unit="{error}",
            description="Failures of a store, by what was asked of it.",
        )
        # A callback cannot be taken back, and must not keep what was ended.
        me = weakref.ref(self)

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            return () if (alive := me()) is None else alive._observed()

        meter.create_observable_up_down_counter(
            "distlock.held",
            [observe],
            unit="{lease}",
            description="Leases that are held now.",
        )
        self._open = True
        self._seen: set[tuple[str, str]] = set()

    def _observed(self) -> Iterable[Observation]:
        counts = held_now() if self._open else {}
        self._seen |= set(counts)  # told as 0 once they are gone, not left as they were
        for alias, label in sorted(self._seen):
            yield Observation(
                counts.get((alias, label), 0), {"distlock.alias": alias, "distlock.lock": label}
            )

    def close(self) -> None:
        """Count nothing any more as held."""
        self._open = False

    def __call__(self, m: Measurement) -> None:
        lock = _attributes(m)
        if m.what == "acquire":
            self._acquired.add(1, {**lock, "distlock.outcome": m.outcome})
            if m.outcome == "granted":
                self._waited.record(m.seconds or 0.0, lock)
        elif m.what == "hold":
            if m.outcome in ("released", "lost"):
                self._held.record(m.seconds or 0.0, lock)
            if m.outcome == "lost":
                self._lost.add(1, lock)
        elif m.what == "renew" and m.outcome == "renewed":
            self._renewed.add(1, lock)
        elif m.what == "force":
            self._forced.add(1, {"distlock.alias": m.alias})
        if m.outcome == "failed":
            self._failed.add(1, {"distlock.alias": m.alias, "distlock.action": m.what})


class _Spans:
    """A span for each wait, and one for each hold; both children of what the caller was doing.

    None is the current span: a lease may end in another thread or task than it began.
    """

    def __init__(self, provider: TracerProvider | None, *, names: bool) -> None:
        self._tracer = trace.get_tracer(SCOPE, __version__, provider)
        self._names = names
        self._holds: weakref.WeakKeyDictionary[object, Span] = weakref.WeakKeyDictionary()
        self._mutex = Mutex()

    def __call__(self, m: Measurement) -> None:
        now = time.time_ns()
        attributes = _attributes(m)
        if self._names:
            attributes["distlock.name"] = m.name
        if m.what == "acquire":
            attributes["distlock.outcome"] = m.outcome
            begun = now - round((m.seconds or 0.0) * 1e9)
            waiting = self._tracer.start_span(
                f"wait {m.label}", attributes=attributes, start_time=begun
            )
            if m.outcome == "failed":
                waiting.set_status(Status(StatusCode.ERROR, m.reason))
            waiting.end(now)
        if m.hold is None:
            return
        if m.what in ("acquire", "attach"):
            attributes.pop("distlock.outcome", None)
            holding = self._tracer.start_span(
                f"hold {m.label}", attributes=attributes, start_time=now
            )
            with self._mutex:
                self._holds[m.hold] = holding
            return
        with self._mutex:
            span = self._holds.pop(m.hold, None)
        if span is not None:  # else it was begun before anybody listened
            span.set_attribute("distlock.outcome", m.outcome)
            if m.outcome == "lost":
                span.set_status(Status(StatusCode.ERROR, m.reason))
            span.end(now)
