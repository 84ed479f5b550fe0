"""The OPTIONS of the redis backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...conf import OptionSpec
from ...exceptions import InvalidLockBackendError
from ..options import mapping, true_or_false, whole_number

__all__ = ["CONNECTION", "SPEC", "check_together"]


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


CONNECTION: Final[OptionSpec] = {"CONNECTION": mapping}

SPEC: Final[OptionSpec] = {
    **CONNECTION,
    "SCRIPTING": true_or_false,
    "WAIT_REPLICAS": whole_number(0, 100),
    "CLUSTER": true_or_false,
    "MAX_CONNECTIONS": whole_number(2, 10_000),
    "SENTINELS": _sentinels,
    "SENTINEL_KWARGS": mapping,
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
