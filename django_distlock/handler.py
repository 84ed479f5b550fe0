"""`locks`: the aliases of DISTLOCKS, one backend an alias and process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings
from django.utils.connection import BaseConnectionHandler
from django.utils.module_loading import import_string

from .backends.base import BaseLockBackend
from .conf import DEFAULTS, parse
from .core import fork, registry
from .core.fork import after_fork, park
from .core.threads import Mutex
from .core.watchdog import worker_of
from .core.worker import LAST
from .exceptions import InvalidLockBackendError

__all__ = ["LockHandler", "locks"]

if TYPE_CHECKING:
    _Handler = BaseConnectionHandler[BaseLockBackend]
else:  # generic in the stubs only
    _Handler = BaseConnectionHandler


logger = logging.getLogger("django_distlock")


class LockHandler(_Handler):
    """Maps aliases to backends: ``locks["default"]``.

    As Django's handlers of caches and storages, but with one backend for the whole process instead
    of one for each thread: a backend is safe to share, and its leases are the process's.
    """

    settings_name = "DISTLOCKS"
    exception_class = InvalidLockBackendError

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._backends: dict[str, BaseLockBackend] = {}
        self._mutex = Mutex()

    def configure_settings(self, settings: Any) -> dict[str, Any]:
        if settings is None:
            settings = getattr(django_settings, self.settings_name, None)
        if settings is None:
            settings = DEFAULTS
        if not isinstance(settings, dict):
            raise InvalidLockBackendError(f"DISTLOCKS is a dict, not {type(settings).__name__}.")
        return settings

    def create_connection(self, alias: str) -> BaseLockBackend:
        conf = parse(alias, self.settings[alias])
        where = f"DISTLOCKS[{alias!r}]['BACKEND']"
        try:
            backend_class = import_string(conf.backend)
        except ImportError as error:
            raise InvalidLockBackendError(
                f"{where}: cannot import {conf.backend!r}: {error}."
            ) from error
        if (
            not isinstance(backend_class, type)
            or not issubclass(backend_class, BaseLockBackend)
            or backend_class is BaseLockBackend
        ):
            raise InvalidLockBackendError(
                f"{where}: {conf.backend!r} is no subclass of BaseLockBackend."
            )
        return backend_class(alias, conf)

    def __getitem__(self, alias: str) -> BaseLockBackend:
        fork.check()
        backend = self._backends.get(alias)
        if backend is not None:
            return backend
        with self._mutex:
            if alias not in self._backends:
                if alias not in self.settings:
                    known = ", ".join(map(repr, sorted(self.settings))) or "none"
                    raise self.exception_class(
                        f"DISTLOCKS has no alias {alias!r}. Configured: {known}."
                    )
                self._backends[alias] = self.create_connection(alias)
            return self._backends[alias]

    def __setitem__(self, alias: str, backend: BaseLockBackend) -> None:
        with self._mutex:
            self._backends[alias] = backend

    def __delitem__(self, alias: str) -> None:
        with self._mutex:
            self._close(self._backends.pop(alias))

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def all(self, initialized_only: bool = False) -> list[BaseLockBackend]:
        if initialized_only:
            return list(self._backends.values())
        return [self[alias] for alias in self]

    def is_real(self, alias: str) -> bool:
        """Return whether ``alias`` is the store that DISTLOCKS names, as it is but in tests."""
        return True

    def close_all(self) -> None:
        """Close every backend; the leases held through them are lost to this process."""
        with self._mutex:
            while self._backends:
                self._close(self._backends.popitem()[1])

    def end_idle(self) -> None:
        """Have every backend end what holds nothing, at the interpreter's end."""
        fork.check()
        for backend in self.all(initialized_only=True):
            try:
                backend.end_idle()
            except Exception:  # the others have sessions, too
                logger.exception("Ending what alias %r keeps failed", backend.alias)

    def reset(self) -> None:
        """Close every backend and read DISTLOCKS again at the next use."""
        with self._mutex:
            self.close_all()
            self._settings = None
            self.__dict__.pop("settings", None)

    def _close(self, backend: BaseLockBackend) -> None:
        for hold in list(registry.every(backend)):
            hold.lose("its alias was closed, or the DISTLOCKS setting changed")
        worker_of(backend).close()
        backend.close()

    def forget_parent(self) -> None:
        """Drop, in a forked child, what belongs to the parent; aliases are opened again."""
        self._mutex = Mutex()
        park(*self._backends.values())
        self._backends.clear()


locks = LockHandler()

after_fork(lambda: locks.forget_parent())
LAST.append(locks.end_idle)
