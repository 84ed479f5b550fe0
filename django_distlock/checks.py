"""System checks: every known trap that can be seen without touching a store."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from django.apps import apps
from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, register
from django.db import connections

from .backends.base import BaseLockBackend
from .core import checking
from .exceptions import InvalidLockBackendError
from .fencing.fields import FenceMarkField, FencingTokenField, problem_with
from .fencing.querysets import FencedQuerySet
from .handler import locks

__all__ = [
    "check_aliases",
    "check_deploy",
    "check_fences",
    "check_spelling",
    "check_threads",
    "check_transactions",
    "check_twins",
]


@register("distlock")
def check_aliases(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Open every alias of DISTLOCKS, and ask each backend what it has to say."""
    try:
        aliases = list(locks)
    except InvalidLockBackendError as error:
        return [checking.error(str(error), hint="Correct DISTLOCKS.", id="distlock.E001")]
    found: list[CheckMessage] = []
    for alias in aliases:
        try:
            found += locks[alias].check()
        except InvalidLockBackendError as error:
            found.append(checking.error(str(error), hint="Correct DISTLOCKS.", id="distlock.E001"))
    if "default" not in aliases:
        found.append(
            checking.warning(
                "DISTLOCKS has no alias 'default', which lock() takes when none is named.",
                hint="Add one, or pass using= everywhere.",
                id="distlock.W001",
            )
        )
    return found


@register("distlock")
def check_spelling(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn of a setting that means DISTLOCKS, and is called otherwise."""
    given = [name for name in dir(settings) if name.isupper() and name != "DISTLOCKS"]
    near = get_close_matches("DISTLOCKS", given, n=5, cutoff=0.85)
    meant = [
        name
        for name in given
        if (name in near or "DISTLOCK" in name) and isinstance(getattr(settings, name), Mapping)
    ]
    return [
        checking.warning(
            f"The setting {name} is not read.",
            hint="Call it DISTLOCKS.",
            id="distlock.W007",
        )
        for name in meant
    ]


@register("distlock")
def check_twins(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn of aliases that are the same locks."""
    groups: dict[tuple[Hashable, str], list[str]] = {}
    for backend in _opened():
        if backend.exclusive:
            groups.setdefault((backend.cleaned_with(), backend.conf.prefix), []).append(
                backend.alias
            )
    return [
        checking.warning(
            f"DISTLOCKS {', '.join(map(repr, aliases))} are the same locks: what one of them "
            "holds, the others find held.",
            hint="Give each a PREFIX of its own, or silence this if that is what you want.",
            id="distlock.W008",
        )
        for aliases in groups.values()
        if len(aliases) > 1
    ]


@register("distlock")
def check_transactions(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn when views run in transactions and locks are freed before their commit."""
    atomic = [alias for alias, conf in connections.settings.items() if conf["ATOMIC_REQUESTS"]]
    if not atomic:
        return []
    found: list[CheckMessage] = []
    for backend in _opened():
        if backend.conf.in_transaction == "allow":
            found.append(
                checking.warning(
                    f"DISTLOCKS[{backend.alias!r}] frees locks inside open transactions, and "
                    f"DATABASES {', '.join(map(repr, atomic))} wraps every view in one.",
                    hint="The next holder reads data from before the commit: set IN_TRANSACTION to "
                    "'hold' or 'error'.",
                    id="distlock.W002",
                )
            )
    return found


@register("distlock")
def check_fences(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Find models with a part of a fence only: a field without the other, or none of them."""
    configs = apps.get_app_configs() if app_configs is None else app_configs
    found: list[CheckMessage] = []
    for model in (model for config in configs for model in config.get_models()):
        kinds = (FencingTokenField, FenceMarkField)
        wanted = any(isinstance(field, kinds) for field in model._meta.fields) or any(
            isinstance(manager.none(), FencedQuerySet) for manager in model._meta.managers
        )
        if wanted and (problem := problem_with(model)):
            found.append(
                checking.error(
                    f"{problem}.",
                    hint="Derive the model from FencedModel.",
                    obj=model,
                    id="distlock.E023",
                )
            )
    return found


@register("distlock", deploy=True)
def check_deploy(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn of backends that exclude no other process, and of what each backend reports."""
    found: list[CheckMessage] = []
    for backend in _opened():
        if backend.scope == "process":
            found.append(
                checking.warning(
                    f"DISTLOCKS[{backend.alias!r}] is {type(backend).__name__}, which does not "
                    "exclude other processes.",
                    hint="Use a backend that all processes see.",
                    id="distlock.W010",
                )
            )
        found += backend.check_deploy()
    return found


@register("distlock", deploy=True)
def check_threads(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn of a uWSGI whose Python threads are paused: nothing is renewed there."""
    try:
        uwsgi = import_module("uwsgi")  # there is one inside of uWSGI only
    except ImportError:
        return []
    # Names and values are bytes; an option without a value is True.
    opt = dict(getattr(uwsgi, "opt", {}))
    given = {_text(name): _text(value) for name, value in opt.items()}
    values = [given.get(name, "false") for name in ("enable-threads", "threads")]
    if any(value not in ("false", "0") for value in values):
        return []
    return [
        checking.warning(
            "uWSGI runs without Python threads, so that no lock is renewed in the background.",
            hint="Set 'enable-threads = true'.",
            id="distlock.W011",
        )
    ]


def _text(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return str(value).lower()


def _opened() -> list[BaseLockBackend]:
    """Return the backends of the aliases that can be opened; `check_aliases` reports the others."""
    backends = []
    with suppress(InvalidLockBackendError):
        for alias in locks:
            with suppress(InvalidLockBackendError):
                backends.append(locks[alias])
    return backends
