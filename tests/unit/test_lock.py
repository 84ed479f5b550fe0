"""`Lock`: the value and its validation."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import models
from hypothesis import example, given
from hypothesis import strategies as st

from django_distlock import (
    UNSET,
    InvalidLockBackendError,
    InvalidLockError,
    Lock,
    current_lease,
    lock,
    lock_all,
    lock_for,
)
from django_distlock.models import LockRow

from .tools import UnitBackend, in_thread, opened

CONSTANT = lock("a module's constant", using="locmem", wait=0)


def by_name(value: str) -> str:
    """Name a lock, as a callable that pickles."""
    return value


# -- the value -------------------------------------------------------------------------------------


def test_equal_options_make_equal_locks() -> None:
    assert lock("a") == lock("a") == Lock(name="a")
    assert lock("a") != lock("b")
    assert lock("a") != lock("a", ttl=5)
    assert hash(lock("a", ttl=5)) == hash(lock("a", ttl=5))
    assert len({lock("a"), lock("a"), lock("b")}) == 2


def test_a_lock_with_metadata_or_a_default_can_be_a_key() -> None:
    one = lock("a", metadata={"job": [7]}, default=[])
    assert hash(one) == hash(lock("a", metadata={"job": [7]}, default=[]))
    assert one != lock("a", metadata={"job": [8]}, default=[])


@pytest.mark.parametrize(
    "value",
    [
        lock("a"),
        lock("a\0\ud800", using="locmem", ttl=5, wait=None, renew=False, reentrant=True),
        lock("a", max_hold=None, on_contention="skip", default=7, metadata={"a": [1]}),
        lock(by_name, wait=timedelta(seconds=5)),
    ],
)
@pytest.mark.parametrize(
    "copying",
    [
        lambda value: pickle.loads(pickle.dumps(value)),
        copy.copy,
        copy.deepcopy,
        dataclasses.replace,
    ],
    ids=["pickle", "copy", "deepcopy", "replace"],
)
def test_a_lock_is_a_plain_value(value: Lock, copying: Callable[[Lock], Lock]) -> None:
    twin = copying(value)
    assert twin == value
    assert twin is not value or copying is copy.copy
    assert twin.ttl is value.ttl or value.ttl is not UNSET


def test_a_lock_cannot_be_changed_but_replaced() -> None:
    value = lock("a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.name = "b"  # type: ignore[misc]
    assert dataclasses.replace(value, name="b") == lock("b")
    with pytest.raises(InvalidLockError):
        dataclasses.replace(value, name="")


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        lock("a", "locmem")  # type: ignore[call-overload]


def test_making_a_lock_asks_no_settings() -> None:
    assert lock("a", using="not configured").using == "not configured"
    with pytest.raises(InvalidLockBackendError, match="no alias 'not configured'"):
        lock("a", using="not configured").acquire()


def test_a_constant_is_used_again_and_again() -> None:
    tokens = []
    for _ in range(3):
        with CONSTANT as lease:
            tokens.append(lease.fencing_token)
            assert in_thread(CONSTANT.acquire) is None
    assert tokens == sorted(set(tokens))


REFUSED: list[dict[str, Any]] = [
    {"name": ""}, {"name": None}, {"name": 5}, {"name": b"a"},
    {"ttl": 0}, {"ttl": -1}, {"ttl": True}, {"ttl": "5"}, {"ttl": None}, {"ttl": float("nan")},
    {"ttl": float("inf")}, {"ttl": 10**400}, {"ttl": timedelta(0)}, {"ttl": 1e15},
    {"wait": -1}, {"wait": True}, {"wait": "5"}, {"wait": float("nan")}, {"wait": float("inf")},
    {"wait": timedelta(-1)},
    {"max_hold": 0}, {"max_hold": -1}, {"max_hold": False}, {"max_hold": "5"},
    {"on_contention": "explode"}, {"on_contention": None}, {"on_contention": 5},
]  # fmt: skip


@pytest.mark.parametrize("wrong", REFUSED, ids=str)
def test_nonsense_is_refused_when_the_lock_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidLockError) as caught:
        lock(**{"name": "a", "using": "shop", **wrong})
    assert caught.value.alias == "shop"
    assert caught.value.name in ("a", "", None)


@pytest.mark.parametrize("wait", [-1, True, "5", float("nan"), float("inf")])
def test_a_wait_given_late_is_judged_as_well(backend: UnitBackend, wait: Any) -> None:
    with pytest.raises(InvalidLockError, match="wait must be"):
        lock("a", using=backend.alias).acquire(wait=wait)
    assert backend.calls == []


def test_a_ttl_beyond_the_stores_range_is_refused() -> None:
    class Short(UnitBackend):
        longest_ttl = 60.0

    with opened(Short) as backend:
        with pytest.raises(InvalidLockError, match="60 seconds"):
            lock("a", using=backend.alias, ttl=61).acquire()
        assert backend.calls == []
        with lock("a", using=backend.alias, ttl=60) as lease, pytest.raises(InvalidLockError):
            lease.renew(61)
        with pytest.raises(InvalidLockBackendError, match=r"\['TTL'\] is at most 60 .* not 61\."):
            Short("other", dataclasses.replace(backend.conf, ttl=61.0))


@pytest.mark.parametrize("metadata", [{"a": object()}, {("a",): 1}, 5, {"a": {1, 2}}])
def test_metadata_that_json_cannot_hold_is_refused(backend: UnitBackend, metadata: Any) -> None:
    with pytest.raises(InvalidLockError, match="metadata") as caught:
        lock("a", using=backend.alias, metadata=metadata).acquire()
    assert caught.value.name == "a"
    assert backend.calls == []


def test_a_callable_name_is_only_for_decorators(backend: UnitBackend) -> None:
    mine = lock(by_name, using=backend.alias)
    for use in (mine.acquire, mine.locked, mine.__enter__):
        with pytest.raises(InvalidLockError, match="for decorators"):
            use()


# -- named after an instance -------------------------------------------------------------------


def test_a_lock_is_named_after_an_instance() -> None:
    row = LockRow(digest="ab" * 32)
    assert lock_for(row, using="locmem", ttl=5) == lock(
        f"django_distlock.lockrow:{'ab' * 32}", using="locmem", ttl=5
    )


def test_a_proxy_names_the_same_lock() -> None:
    row = LockRow(digest="a")

    class Deferred(LockRow):
        class Meta:
            proxy = True
            app_label = "django_distlock_tests"

    assert lock_for(Deferred(digest="a")) == lock_for(row)


def test_a_key_with_braces_is_no_template(backend: UnitBackend) -> None:
    with lock_for(LockRow(digest="{pk}"), using=backend.alias) as lease:
        assert lease.name == "django_distlock.lockrow:{pk}"
    again = dataclasses.replace(lock_for(LockRow(digest="{pk}"), using=backend.alias), ttl=5)
    with again as lease:
        assert lease.ttl == 5


@pytest.mark.parametrize("name", ["invoice:{pk}", "{self.pk:>4}", "{a[0]}", "{x!r}", "{{{x}}}"])
def test_a_template_that_nothing_fills_is_refused(backend: UnitBackend, name: str) -> None:
    mine = lock(name, using=backend.alias)
    group = lock_all("a", mine)
    with pytest.raises(InvalidLockError, match="which only a decorator fills") as caught, mine:
        pass
    assert (caught.value.name, caught.value.alias) == (name, backend.alias)
    for use in (mine.acquire, mine.locked, mine.info, mine.force_release, group.acquire):
        with pytest.raises(InvalidLockError, match="which only a decorator fills"):
            use()
    assert backend.calls == []


@pytest.mark.parametrize("name", ['{"pk": 1}', "{}", "{0}", "{a b}", "{{pk}}", "{", "}", "a{b"])
def test_other_braces_are_part_of_a_name(backend: UnitBackend, name: str) -> None:
    with lock(name, using=backend.alias) as lease:
        assert lease.name == name


def test_what_fills_a_template_may_have_braces(backend: UnitBackend) -> None:
    @lock("user:{email}", using=backend.alias)
    def work(email: str) -> str:
        return current_lease().name

    assert work("{pk}@example.org") == "user:{pk}@example.org"


def test_an_instance_without_a_key_names_no_lock() -> None:
    with pytest.raises(InvalidLockError, match="save it"):
        lock_for(LockRow(digest=None))  # type: ignore[misc]


class Line(models.Model):
    """A model with a composite primary key; it needs no table here."""

    pk = models.CompositePrimaryKey("order", "product")
    order = models.CharField(max_length=50)
    product = models.CharField(max_length=50)

    class Meta:
        app_label = "django_distlock_tests"

    def __str__(self) -> str:
        return f"{self.order} {self.product}"


@pytest.mark.parametrize("other", [LockRow, LockRow.objects.all(), 5, None, "a"])
def test_what_is_no_instance_names_no_lock(other: object) -> None:
    # Of a class the primary key is a property: another name in each process.
    with pytest.raises(InvalidLockError, match="saved model instance"):
        lock_for(other)


def test_a_composite_key_names_a_lock() -> None:
    assert lock_for(Line(order="7", product="lamp")).name == "django_distlock_tests.line:7,lamp"
    # As it was read, and as somebody typed it.
    assert lock_for(Line(order=7, product="lamp")) == lock_for(Line(order="7", product="lamp"))


@given(*[st.tuples(st.text(",\\:a ", max_size=4), st.text(",\\:a ", max_size=4))] * 2)
@example(("a,", "b"), ("a", ",b"))
@example(("a\\", ",b"), ("a", "\\,b"))
def test_composite_keys_are_told_apart(one: tuple[str, str], other: tuple[str, str]) -> None:
    names = [lock_for(Line(order=pk[0], product=pk[1])).name for pk in (one, other)]
    assert (names[0] == names[1]) == (one == other)


@pytest.mark.parametrize("parts", [{}, {"order": "7"}, {"product": "lamp"}])
def test_a_composite_key_in_part_names_no_lock(parts: dict[str, str]) -> None:
    line = Line(**{"order": None, "product": None, **parts})
    with pytest.raises(InvalidLockError, match="save it"):
        lock_for(line)
