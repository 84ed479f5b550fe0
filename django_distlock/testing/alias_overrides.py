"""What takes the place of aliases for a while: the handler of the locks, as long as a test runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..backends.base import BaseLockBackend
from ..core.fork import park
from ..handler import LockHandler, locks

__all__ = ["AliasOverride", "begin_override", "end_override", "is_overridden"]


@dataclass(eq=False, slots=True)
class AliasOverride:
    """What takes the place of aliases: see `override`."""

    using: frozenset[str] | None
    """The aliases that are covered; None: all of DISTLOCKS."""
    make: Callable[[str, Any], BaseLockBackend]
    """Makes the backend of an alias, given its entry of DISTLOCKS."""
    made: dict[str, BaseLockBackend] = field(default_factory=dict)
    below: dict[str, BaseLockBackend] = field(default_factory=dict)

    def overrides(self, alias: str) -> bool:
        """Return whether it makes the backend of ``alias``."""
        return self.using is None or alias in self.using


_overrides: list[AliasOverride] = []  # the innermost last


class OverriddenLockHandler(LockHandler):
    """The handler under override: whatever happens to an alias, the override makes its backend."""

    def create_connection(self, alias: str) -> BaseLockBackend:
        for each in reversed(_overrides):
            if each.overrides(alias):
                each.made[alias] = each.make(alias, self.settings[alias])
                return each.made[alias]
        return super().create_connection(alias)

    def is_real(self, alias: str) -> bool:
        return not is_overridden(alias)

    def close_all(self) -> None:
        with self._mutex:
            super().close_all()
            for each in _overrides:
                while each.below:
                    self._close(each.below.popitem()[1])

    def forget_parent(self) -> None:
        super().forget_parent()
        for each in _overrides:
            park(*each.below.values())
            each.below.clear()

    def lay(self, new: AliasOverride) -> None:
        """Keep the backends in use below ``new``."""
        with self._mutex:
            for alias in list(self._backends):
                if alias in self.settings and new.overrides(alias):
                    new.below[alias] = self._backends.pop(alias)
            _overrides.append(new)

    def lift(self, old: AliasOverride) -> None:
        """Close what ``old`` has made, and put back what was there."""
        with self._mutex:
            above = _overrides[_overrides.index(old) + 1 :]
            _overrides.remove(old)
            for alias in {*old.made, *old.below}:
                level = next(
                    (each.below for each in above if each.overrides(alias)), self._backends
                )
                made, below = old.made.get(alias), old.below.get(alias)
                if made is not None and level.get(alias) is made:
                    self._close(level.pop(alias))
                if below is not None and level.setdefault(alias, below) is not below:
                    self._close(below)  # another one was put in its place by hand


def begin_override(new: AliasOverride) -> None:
    """Have ``new`` make the backends of its aliases; those in use are kept below it.

    Whatever happens to the aliases until `end_override`, a change of the settings or a fork, the
    override opens them again. The leases of the backends below live on.
    """
    locks.__class__ = OverriddenLockHandler
    OverriddenLockHandler.lay(locks, new)  # type: ignore[arg-type]


def end_override(old: AliasOverride) -> None:
    """Close what ``old`` has made and put back what was there; in any order of override."""
    OverriddenLockHandler.lift(locks, old)  # type: ignore[arg-type]
    if not _overrides:
        locks.__class__ = LockHandler


def is_overridden(alias: str) -> bool:
    """Return whether an override takes the place of ``alias``."""
    return any(each.overrides(alias) for each in _overrides)
