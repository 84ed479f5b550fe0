"""What metrics call a lock: one of a few labels, never its name."""

from __future__ import annotations

import json
import logging
from typing import Any, ClassVar

import pytest
from django.core.management import call_command
from django.http import HttpResponse
from django.test import RequestFactory

from django_distlock import (
    InvalidLockError,
    Lease,
    Lock,
    lock,
    lock_all,
    lock_for,
    metrics,
)
from django_distlock.commands import LockedCommand
from django_distlock.metrics import MOST_LABELS, OTHER, Measurement, label_of
from django_distlock.views import locked_view
from tests.fencing.models import Account

from .tools import UnitBackend

Seen = list[Measurement]


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the labels of a process that has none yet."""
    monkeypatch.setattr(metrics, "_labels", {})
    return metrics._labels


class Row:
    """What has a primary key."""

    pk = 7


def by_tenant(tenant: str) -> str:
    """Return a name."""
    return f"of {tenant}"


def measured(function: Any, seen: Seen) -> set[str]:
    """Return the labels of what a call measures."""
    seen.clear()
    function()
    return {m.label for m in seen}


def test_the_label_is_the_template(backend: UnitBackend, seen: Seen) -> None:
    using = backend.alias

    @lock("order:{row.pk}", using=using)
    def first(row: Row) -> None: ...

    @lock(by_tenant, using=using)
    def second(tenant: str) -> None: ...

    @lock("nightly", using=using)
    def third() -> None: ...

    @lock("order:{row.pk}", using=using, label="orders")
    def fourth(row: Row) -> None: ...

    @lock_all("a:{row.pk}", "b:{row.pk}", using=using)
    def fifth(row: Row) -> None: ...

    assert measured(lambda: first(Row()), seen) == {"order:{row.pk}"}
    assert measured(lambda: second("acme"), seen) == {"by_tenant()"}
    assert measured(third, seen) == {"nightly"}
    assert measured(lambda: fourth(Row()), seen) == {"orders"}
    assert measured(lambda: fifth(Row()), seen) == {"a:{row.pk}", "b:{row.pk}"}


def test_a_name_given_as_it_is_has_no_label(backend: UnitBackend, seen: Seen) -> None:
    def use(mine: Lock) -> None:
        with mine:
            pass

    plain = lock("order:7", using=backend.alias)
    assert measured(lambda: use(plain), seen) == {OTHER}
    labelled = lock("order:7", using=backend.alias, label="order:{pk}")
    assert measured(lambda: use(labelled), seen) == {"order:{pk}"}
    assert plain == labelled
    assert hash(plain) == hash(labelled)


def test_the_label_of_an_instance_is_its_model() -> None:
    assert lock_for(Account(pk=7)).label == "fencing_tests.account:{pk}"
    assert lock_for(Account(pk=7), label="mine").label == "mine"


@pytest.mark.parametrize("name", ["export:{pk}", lambda request, pk: f"export:{pk}"])
def test_the_label_of_a_view_is_its_template(backend: UnitBackend, seen: Seen, name: Any) -> None:
    @locked_view(name, using=backend.alias)
    def export(request: Any, pk: int) -> HttpResponse:
        return HttpResponse("done")

    request = RequestFactory().get("/")
    (label,) = measured(lambda: export(request, pk=7), seen)
    assert label == name if isinstance(name, str) else label.endswith("<lambda>()")


def test_the_label_of_a_command_is_its_template(backend: UnitBackend, seen: Seen) -> None:
    class Import(LockedCommand):
        lock_name = "import:{tenant}"
        lock_options: ClassVar = {"using": backend.alias}

        def add_arguments(self, parser: Any) -> None:
            parser.add_argument("tenant")

        def handle(self, *args: Any, **options: Any) -> None: ...

    assert measured(lambda: call_command(Import(), "acme"), seen) == {"import:{tenant}"}


@pytest.mark.parametrize("label", ["", "x" * 201, 7])
def test_what_is_no_label(label: Any) -> None:
    with pytest.raises(InvalidLockError, match="label must be a str"):
        lock("a", label=label)


def test_a_long_template_is_cut(backend: UnitBackend) -> None:
    mine = lock("x" * 500 + "{a}", using=backend.alias)._bound_to({"a": 1})
    assert mine.label == "x" * 200


def test_labels_are_printable_and_not_too_many(
    labels: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert label_of("a\n\ud800") == "a\\n\\ud800"
    for number in range(MOST_LABELS + 10):
        label_of(f"x{number}")
    assert label_of("x1") == "x1"
    assert label_of(f"x{MOST_LABELS + 1}") == OTHER
    assert len(labels) == MOST_LABELS + 1
    assert caplog.text.count("More than 500 labels") == 1
    assert logging.getLevelName(caplog.records[0].levelno) == "WARNING"


def test_the_label_goes_with_a_detached_lease(backend: UnitBackend) -> None:
    lease = lock("a", using=backend.alias, label="some").acquire()
    assert lease is not None
    handle = json.loads(lease.detach())
    with pytest.raises(InvalidLockError, match="no handle"):
        Lease.attach(json.dumps([*handle[:-5], 7, *handle[-4:]]))
    taken = Lease.attach(json.dumps(handle))
    assert taken._hold.label == "some"
    taken.release()
