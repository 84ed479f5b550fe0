"""Decorating a TestCase class, so that each of its tests begins with locks of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from unittest import TestCase

__all__ = ["Switch", "decorate_class"]

LIST = "_distlock_switches"
ON = "_distlock_switched_on"


class Switch(Protocol):
    """Something that a test runs under."""

    def switch_on(self) -> Callable[[], None]:
        """Begin, and return what ends it."""
        ...


def decorate_class(case: type[TestCase], switch: Switch) -> None:
    """Run the class's own set-up, and then each of its tests, under ``switch``.

    Once for the class, so that `setUpClass` and `setUpTestData` have it too, and inside of that
    again for each test. Where a base class is decorated as well, the subclass's is the inner one.
    """
    setattr(case, LIST, [*getattr(case, LIST, []), switch])
    set_up_class = case.__dict__.get("setUpClass")
    set_up = case.__dict__.get("setUp")

    def setUpClass(cls: type[TestCase]) -> None:
        _switch_on(cls, cls, cls.addClassCleanup)
        if set_up_class is not None:
            set_up_class.__get__(None, cls)()
        else:
            inherited: Any = super(case, cls)
            inherited.setUpClass()

    def setUp(self: TestCase) -> None:
        _switch_on(self, type(self), self.addCleanup)
        if set_up is not None:
            set_up(self)
        else:
            inherited: Any = super(case, self)
            inherited.setUp()

    case.setUpClass = classmethod(setUpClass)  # type: ignore[method-assign,assignment]
    case.setUp = setUp  # type: ignore[method-assign]


def _switch_on(target: Any, case: type[TestCase], cleanup: Callable[..., None]) -> None:
    """Switch on all that the class and its bases ask for, at the first of their set-ups."""
    if target.__dict__.get(ON) is True:
        return
    setattr(target, ON, True)
    cleanup(setattr, target, ON, False)
    for switch in getattr(case, LIST):
        cleanup(switch.switch_on())
