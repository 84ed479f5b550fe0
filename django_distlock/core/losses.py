"""News from a store that leases may be lost: a session that ended, or was not heard of for long.

A store says it here, from below; `held`, which knows the leases, looks at them.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["listen", "tell"]

_listeners: list[Callable[[object], None]] = []


def listen(listener: Callable[[object], None]) -> None:
    """Have ``listener(backend)`` called each time that leases of a backend may be lost."""
    _listeners.append(listener)


def tell(backend: object) -> None:
    """Have the leases of ``backend`` looked at, on this thread."""
    for listener in _listeners:
        listener(backend)
