"""The OPTIONS of the redis backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...conf import OptionSpec
from ...exceptions import InvalidLockBackendError

__all__ = ["CONNECTION", "SPEC", "check_together"]


def _true_or_false(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"True or False is expected, not {value!r}")
    return value


def _replicas(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100:
        raise ValueError(f"a number of replicas from 0 to 100 is expected, not {value!r}")
    return value


def _connections(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 2 <= value <= 10_000:
        raise ValueError(f"a number of connections from 2 to 10000 is expected, not {value!r}")
    return value


def _sentinels(value: Any) -> list[tuple[str, int]]:
    wrong = ValueError(f"a list of (host, port) is expected, not {value!r}")
    if not isinstance(value, list | tuple) or not value:
        raise wrong
    hosts = []
    for each in value:
        if not isinstance(each, list | tuple) or len(each) != 2:
            raise wrong
        host, port = each
        if not isinstance(host, str) or isinstance(port, bool) or not isinstance(port, int):
            raise wrong
        hosts.append((host, port))
    return hosts


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"a dict is expected, not {value!r}")
    return dict(value)


CONNECTION: Final[OptionSpec] = {"CONNECTION": _mapping}

SPEC: Final[OptionSpec] = {
    **CONNECTION,
    "SCRIPTING": _true_or_false,
    "WAIT_REPLICAS": _replicas,
    "CLUSTER": _true_or_false,
    "MAX_CONNECTIONS": _connections,
    "SENTINELS": _sentinels,
    "SENTINEL_KWARGS": _mapping,
}


def check_together(alias: str, given: Mapping[str, Any]) -> None:
    """Refuse options that exclude each other."""
    where = f"DISTLOCKS[{alias!r}]['OPTIONS']"
    if given.get("CLUSTER"):
        if given.get("SCRIPTING") is False:
            raise InvalidLockBackendError(
                f"{where}: 'SCRIPTING': False needs one connection for a transaction, and a "
                "cluster's client has many: leave one of CLUSTER and SCRIPTING out."
            )
        if given.get("WAIT_REPLICAS"):
            raise InvalidLockBackendError(
                f"{where}: WAIT_REPLICAS asks the node that was written to, and a cluster's client "
                "chooses nodes itself: leave one of CLUSTER and WAIT_REPLICAS out."
            )
        if given.get("SENTINELS"):
            raise InvalidLockBackendError(f"{where}: CLUSTER and SENTINELS exclude each other.")
    if "SENTINEL_KWARGS" in given and "SENTINELS" not in given:
        raise InvalidLockBackendError(f"{where}: SENTINEL_KWARGS needs SENTINELS.")
