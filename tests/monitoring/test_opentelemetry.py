"""Spans and metrics for OpenTelemetry, as its SDK exports them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from django_distlock import Lease, LeaseLostError, LockBackendError, lock, signals
from django_distlock.contrib import opentelemetry
from django_distlock.metrics import OTHER
from django_distlock.testing import hold_elsewhere
from tests.unit.tools import Down, UnitBackend, drain, in_thread


class Exported:
    """What reaches whoever collects it."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.traces = TracerProvider(shutdown_on_exit=False)
        self.traces.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def spans(self) -> list[ReadableSpan]:
        """Return the spans that have ended, in the order of their ends."""
        return list(self._spans.get_finished_spans())

    def points(self, name: str) -> dict[tuple[tuple[str, str], ...], Any]:
        """Return the points of a metric by their attributes."""
        data = self._reader.get_metrics_data()
        return {
            _plain(each.attributes or {}): each
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"distlock.{name}"
            for each in metric.data.data_points
        }

    def value(self, name: str, **attributes: str) -> Any:
        """Return the value of a counter, or the count of a histogram; None where there is none."""
        point = self.points(name).get(tuple(sorted(attributes.items())))
        return None if point is None else getattr(point, "value", getattr(point, "count", None))

    def close(self) -> None:
        """End both providers."""
        self.traces.shutdown()
        self.meters.shutdown()


def _plain(attributes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key.removeprefix("distlock."), attributes[key]) for key in attributes))


@pytest.fixture
def exported() -> Iterator[Exported]:
    """What is exported while the test runs."""
    made = Exported()
    uninstall = opentelemetry.install(tracer_provider=made.traces, meter_provider=made.meters)
    yield made
    uninstall()
    made.close()


def told(span: ReadableSpan) -> tuple[str, str | None]:
    """Return a span's name and outcome."""
    outcome = (span.attributes or {}).get("distlock.outcome")
    return span.name, None if outcome is None else str(outcome)


def seconds(span: ReadableSpan) -> float:
    """Return how long a span lasted."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def hold(backend: UnitBackend, mode: str, inside: Callable[[], None] = lambda: None) -> None:
    """Hold a lock in either mode."""

    async def ahold() -> None:
        async with lock("order:7", using=backend.alias, label="order:{id}"):
            inside()

    if mode == "async":
        asyncio.run(ahold())
        return
    with lock("order:7", using=backend.alias, label="order:{id}"):
        inside()


modes = pytest.mark.parametrize("mode", ["sync", "async"])


@modes
def test_the_spans_are_children_of_what_the_caller_does(
    mode: str, backend: UnitBackend, exported: Exported
) -> None:
    tracer = exported.traces.get_tracer("shop")
    with tracer.start_as_current_span("request"):
        hold(backend, mode, lambda: time.sleep(0.02))
    waiting, holding, request = exported.spans()
    assert told(waiting) == ("wait order:{id}", "granted")
    assert told(holding) == ("hold order:{id}", "released")
    for span in (waiting, holding):
        assert span.parent is not None
        assert request.context is not None
        assert span.parent.span_id == request.context.span_id
        assert span.attributes is not None
        assert span.attributes["distlock.alias"] == backend.alias
        assert span.attributes["distlock.lock"] == "order:{id}"
        assert "distlock.name" not in span.attributes
        assert span.status.status_code is StatusCode.UNSET
    assert 0.02 <= seconds(holding) < 5


def test_what_is_done_meanwhile_is_a_neighbour(backend: UnitBackend, exported: Exported) -> None:
    tracer = exported.traces.get_tracer("shop")
    with tracer.start_as_current_span("request"), lock("a", using=backend.alias):
        tracer.start_span("query").end()
    _, query, holding, _ = exported.spans()
    assert query.parent == holding.parent


def test_the_span_of_a_wait_lasts_as_long(backend: UnitBackend, exported: Exported) -> None:
    with hold_elsewhere("a", using=backend.alias):
        assert lock("a", using=backend.alias, wait=0.05).acquire() is None
    (refused,) = [span for span in exported.spans() if told(span)[1] == "contended"]
    assert refused.name == f"wait {OTHER}"
    assert 0.05 <= seconds(refused) < 5
    assert refused.status.status_code is StatusCode.UNSET  # it is no error: somebody works on it


def test_a_store_that_fails_is_an_error(backend: UnitBackend, exported: Exported) -> None:
    backend.before["try_acquire"].append(Down("no route"))
    with pytest.raises(LockBackendError):
        lock("a", using=backend.alias).acquire()
    (failed,) = exported.spans()
    assert told(failed) == (f"wait {OTHER}", "failed")
    assert failed.status.status_code is StatusCode.ERROR
    assert "no route" in (failed.status.description or "")
    assert exported.value("store.errors", alias=backend.alias, action="acquire") == 1


def test_a_loss_is_an_error(backend: UnitBackend, exported: Exported) -> None:
    lease = lock("a", using=backend.alias).acquire()
    assert lease is not None
    backend.drop("a")
    with pytest.raises(LeaseLostError):
        lease.renew()
    drain(backend)
    _, lost = exported.spans()
    assert told(lost) == (f"hold {OTHER}", "lost")
    assert lost.status.status_code is StatusCode.ERROR
    assert "forced" in (lost.status.description or "")
    assert exported.value("losses", alias=backend.alias, lock=OTHER) == 1


def test_a_hold_that_is_handed_over_is_two(backend: UnitBackend, exported: Exported) -> None:
    lease = lock("a", using=backend.alias).acquire()
    assert lease is not None
    handle = lease.detach()
    drain(backend)
    in_thread(lambda: Lease.attach(handle).release())
    assert [told(span) for span in exported.spans()] == [
        (f"wait {OTHER}", "granted"),
        (f"hold {OTHER}", "detached"),
        (f"hold {OTHER}", "released"),
    ]


@modes
def test_the_metrics(mode: str, backend: UnitBackend, exported: Exported) -> None:
    of = {"alias": backend.alias, "lock": "order:{id}"}
    seen: list[Any] = []
    hold(backend, mode, lambda: seen.append(exported.value("held", **of)))
    assert seen == [1]
    assert exported.value("held", **of) == 0
    assert exported.value("acquisitions", **of, outcome="granted") == 1
    assert exported.value("wait.duration", **of) == 1
    assert exported.value("hold.duration", **of) == 1
    (point,) = exported.points("wait.duration").values()
    assert tuple(point.explicit_bounds) == opentelemetry.WAIT_BUCKETS
    with lock("b", using=backend.alias, label="order:{id}") as lease:
        lease.renew()
        backend.force_release("b")
        backend.before["release"].append(Down("no route"))
        with pytest.raises(LockBackendError):
            lease.release()
    assert exported.value("renewals", **of) == 1
    assert exported.value("forced_releases", alias=backend.alias) == 1


def test_names_are_in_spans_when_it_is_asked_for(backend: UnitBackend) -> None:
    made = Exported()
    uninstall = opentelemetry.install(
        tracer_provider=made.traces, meter_provider=made.meters, names=True
    )
    again = opentelemetry.install()
    hold(backend, "sync")
    uninstall()
    assert again is uninstall
    assert {(span.attributes or {})["distlock.name"] for span in made.spans()} == {"order:7"}
    assert "order:7" not in repr(made.points("acquisitions"))
    made.close()


def test_metrics_alone(backend: UnitBackend) -> None:
    made = Exported()
    uninstall = opentelemetry.install(
        tracer_provider=made.traces, meter_provider=made.meters, spans=False
    )
    hold(backend, "sync")
    uninstall()
    uninstall()
    assert signals.listeners == []
    of = {"alias": backend.alias, "lock": "order:{id}"}
    assert made.spans() == []
    assert made.value("acquisitions", **of, outcome="granted") == 1
    hold(backend, "sync")
    assert made.value("acquisitions", **of, outcome="granted") == 1
    made.close()


def test_without_an_sdk_it_does_nothing(backend: UnitBackend) -> None:
    uninstall = opentelemetry.install()
    hold(backend, "sync")
    uninstall()
