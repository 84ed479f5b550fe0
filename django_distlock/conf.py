"""The DISTLOCKS setting, read and judged: one `AliasConf` an alias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from .core.durations import check_age, check_ttl, check_wait
from .exceptions import InvalidLockBackendError, InvalidLockError

__all__ = ["DEFAULTS", "IN_TRANSACTION", "AliasConf", "OptionSpec", "parse"]

DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "default": {"BACKEND": "django_distlock.backends.table.TableBackend"}
}
"""What holds without the setting: the table backend on the default database."""

IN_TRANSACTION: Final = ("hold", "error", "allow")

OptionSpec = Mapping[str, Callable[[Any], Any]]
"""Names of a backend's OPTIONS to functions that return the value or raise ValueError."""


@dataclass(frozen=True, slots=True)
class AliasConf:
    """One alias of DISTLOCKS; each field is the key of the same name in capitals."""

    backend: str
    location: Any = None
    prefix: str = ""
    ttl: float = 30.0
    wait: float | None = 10.0
    renew: bool = True
    max_hold: float | None = None
    reentrant: bool = False
    in_transaction: str = "hold"
    retention: float = 604800.0
    show_caller: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


def parse(alias: str, raw: Any) -> AliasConf:
    """Return the settings of ``alias``, or raise InvalidLockBackendError that names the key."""
    where = f"DISTLOCKS[{alias!r}]"
    if not isinstance(raw, Mapping):
        raise InvalidLockBackendError(f"{where} is a dict, not {type(raw).__name__}.")
    known = {f.name.upper() for f in fields(AliasConf)}
    if unknown := sorted(str(key) for key in raw if key not in known):
        raise InvalidLockBackendError(
            f"{where} has unknown keys: {', '.join(unknown)}. Known: {', '.join(sorted(known))}."
        )
    if "BACKEND" not in raw:
        raise InvalidLockBackendError(
            f"{where} has no BACKEND, the dotted path of a backend class, such as "
            f"{DEFAULTS['default']['BACKEND']!r}."
        )
    values = {key.lower(): _JUDGES[key](f"{where}[{key!r}]", value) for key, value in raw.items()}
    conf = AliasConf(**values)
    if conf.max_hold is not None and conf.max_hold < conf.ttl:
        raise InvalidLockBackendError(
            f"{where}['MAX_HOLD'] ({conf.max_hold:g}) must not be less than TTL ({conf.ttl:g})."
        )
    return conf


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidLockBackendError(f"{where} is a str, not {value!r}.")
    return value


def _flag(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidLockBackendError(f"{where} is True or False, not {value!r}.")
    return value


def _choice(where: str, value: Any) -> str:
    if value not in IN_TRANSACTION:
        raise InvalidLockBackendError(
            f"{where} is one of {', '.join(map(repr, IN_TRANSACTION))}, not {value!r}."
        )
    return str(value)


def _ttl(where: str, value: Any) -> float:
    try:
        return check_ttl(value, what=where)
    except InvalidLockError as error:
        raise InvalidLockBackendError(f"{error}.") from error


def _max_hold(where: str, value: Any) -> float | None:
    return None if value is None else _ttl(where, value)


def _wait(where: str, value: Any) -> float | None:
    try:
        return check_wait(value, what=where)
    except InvalidLockError as error:
        raise InvalidLockBackendError(f"{error}.") from error


def _retention(where: str, value: Any) -> float:
    try:
        return check_age(value, what=where)
    except InvalidLockError as error:
        raise InvalidLockBackendError(f"{error}.") from error


def _options(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidLockBackendError(f"{where} is a dict, not {value!r}.")
    return dict(value)


_JUDGES: dict[str, Callable[[str, Any], Any]] = {
    "BACKEND": _text,
    "LOCATION": lambda where, value: value,  # the backend's own to judge
    "PREFIX": _text,
    "TTL": _ttl,
    "WAIT": _wait,
    "RENEW": _flag,
    "MAX_HOLD": _max_hold,
    "REENTRANT": _flag,
    "IN_TRANSACTION": _choice,
    "RETENTION": _retention,
    "SHOW_CALLER": _flag,
    "OPTIONS": _options,
}


def parse_options(alias: str, given: Mapping[str, Any], spec: OptionSpec) -> dict[str, Any]:
    """Return OPTIONS judged by the backend's ``spec``, or raise InvalidLockBackendError."""
    where = f"DISTLOCKS[{alias!r}]['OPTIONS']"
    if unknown := sorted(str(key) for key in given if key not in spec):
        known = ", ".join(sorted(spec)) or "none"
        raise InvalidLockBackendError(
            f"{where} has unknown keys: {', '.join(unknown)}. Known to this backend: {known}."
        )
    judged = {}
    for key, value in given.items():
        try:
            judged[key] = spec[key](value)
        except ValueError as error:
            raise InvalidLockBackendError(f"{where}[{key!r}]: {error}.") from error
    return judged
