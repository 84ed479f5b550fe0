"""Locks as decorators: their names, from the arguments of the call."""

from __future__ import annotations

from typing import Any

import pytest

from django_distlock import (
    InvalidLockError,
    lock,
)
from django_distlock.decorators import fill
from django_distlock.models import LockRow

from .tools import UnitBackend


class Thing:
    """An argument with attributes and items."""

    def __init__(self, pk: int | None) -> None:
        self.pk = pk
        self.tags = {"a": "red"}


def names_of(backend: UnitBackend) -> list[str]:
    """Return the names that were acquired."""
    return [name for verb, name in backend.calls if verb == "try_acquire"]


def test_a_template_is_filled_from_the_bound_arguments(backend: UnitBackend) -> None:
    @lock("{thing.pk}/{thing.tags[a]}/{x:>4}/{args}/{z!r}/{{literal}}", using=backend.alias)
    def work(thing: Thing, x: int = 7, *args: int, z: str = "q") -> None:
        pass

    work(Thing(3))
    work(Thing(3), 8, 9, 10, z="w")
    work(x=5, thing=Thing(4))
    assert names_of(backend) == [
        "3/red/   7/()/'q'/{literal}",
        "3/red/   8/(9, 10)/'w'/{literal}",
        "4/red/   5/()/'q'/{literal}",
    ]


def test_keyword_arguments_fill_by_their_name(backend: UnitBackend) -> None:
    @lock("{a}:{kind}", using=backend.alias)
    def work(a: int, **options: Any) -> None:
        pass

    work(1, kind="x")
    with pytest.raises(InvalidLockError, match="do not fill the template"):
        work(1)
    assert names_of(backend) == ["1:x"]


def test_a_parameter_is_not_hidden_by_a_keyword_argument_of_its_name(
    backend: UnitBackend,
) -> None:
    @lock("{a}", using=backend.alias)
    def work(a: int, /, **options: Any) -> None:
        pass

    work(1, a=2)
    assert names_of(backend) == ["1"]


def test_a_callable_is_given_the_arguments(backend: UnitBackend) -> None:
    seen: list[dict[str, Any]] = []

    def name(**arguments: Any) -> str:
        seen.append(arguments)
        return f"made of {arguments['x']}"

    @lock(name, using=backend.alias)
    def work(x: int, y: int = 2, **options: Any) -> None:
        assert backend.holds(f"made of {x}")

    work(1, extra=True)
    assert seen == [{"x": 1, "y": 2, "extra": True}]


@pytest.mark.parametrize("made", ["", None, 5, b"a"])
def test_a_callable_that_returns_no_name_is_refused(backend: UnitBackend, made: Any) -> None:
    @lock(lambda: made, using=backend.alias)
    def work() -> None:
        pytest.fail("ran without a lock")

    with pytest.raises(InvalidLockError, match="no name"):
        work()
    assert backend.calls == []


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("a:{tenant}", "'tenant'"),
        ("a:{tenant.pk}", "'tenant'"),
        ("a:{tenant[0]}", "'tenant'"),
        ("a:{}", "''"),
        ("a:{0}", "'0'"),
        ("a:{", "template"),
        ("a:}", "template"),
    ],
)
def test_a_template_that_no_call_can_fill_is_refused_at_once(template: str, problem: str) -> None:
    with pytest.raises(InvalidLockError, match="template") as caught:
        lock(template, using="shop")(lambda x: x)
    assert problem in str(caught.value)
    assert (caught.value.name, caught.value.alias) == (template, "shop")


@pytest.mark.parametrize(
    ("template", "thing"),
    [("{x.no}", Thing(1)), ("{x[9]}", [1]), ("{x[k]}", {}), ("{x:d}", "text"), ("{x.pk}", None)],
)
def test_an_argument_that_does_not_fill_is_refused(
    backend: UnitBackend, template: str, thing: Any
) -> None:
    @lock(template, using=backend.alias)
    def work(x: Any) -> None:
        pytest.fail("ran without a lock")

    with pytest.raises(InvalidLockError, match="do not fill") as caught:
        work(thing)
    assert caught.value.alias == backend.alias
    assert backend.calls == []


class Plain:
    """Has no text of its own."""


class Worded(Plain):
    def __str__(self) -> str:
        return "worded"


@pytest.mark.parametrize(
    "value",
    [
        None,
        Plain(),
        Plain,
        (n for n in [0]),
        lambda: None,
        Thing(1).__repr__,
        LockRow(digest=None),  # type: ignore[misc]
        [Plain()],
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_a_text_of_its_own_is_refused(backend: UnitBackend, value: object) -> None:
    @lock("job:{x}", using=backend.alias)
    def work(x: object) -> None:
        raise AssertionError

    with pytest.raises(InvalidLockError, match=r"'job:.x.' is filled"):
        work(value)
    assert backend.calls == []


@pytest.mark.parametrize("value", ["", "at 0x1f>", 0, 1.5, Worded(), LockRow(pk="a"), ("a", 1)])
def test_a_value_with_a_text_of_its_own_fills(backend: UnitBackend, value: object) -> None:
    @lock("job:{x}", using=backend.alias)
    def work(x: object) -> bool:
        return names_of(backend) == [f"job:{x}"]

    assert work(value)


def test_a_conversion_takes_any_text(backend: UnitBackend) -> None:
    @lock("job:{x!s}:{y!r}", using=backend.alias)
    def work(x: object, y: object) -> bool:
        return names_of(backend) == [f"job:None:{Plain!r}"]

    assert work(None, Plain)


def test_a_name_that_comes_out_empty_is_refused(backend: UnitBackend) -> None:
    @lock("{x}", using=backend.alias)
    def work(x: str) -> None:
        pytest.fail("ran without a lock")

    with pytest.raises(InvalidLockError, match="must not be empty"):
        work("")


def test_wrong_arguments_are_a_type_error_as_without_the_decorator(backend: UnitBackend) -> None:
    @lock("{x}", using=backend.alias)
    def work(x: int) -> None:
        pass

    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        work()  # type: ignore[call-arg]
    assert backend.calls == []


def test_filling_by_hand() -> None:
    assert fill("a:{x}", {"x": 1}, "shop") == "a:1"
    assert fill(lambda x: f"b:{x}", {"x": 1}, "shop") == "b:1"
