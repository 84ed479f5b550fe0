"""What OPTIONS of the redis backend refuse, and what an error of the server is answered with."""

from __future__ import annotations

from typing import Any

import pytest
from redis import exceptions as kinds

from django_distlock import InvalidLockBackendError, locks
from django_distlock.backends.redis import errors
from tests.backends.tools import lock_alias

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"SCRIPTING": 1}, "SCRIPTING"),
    ({"WAIT_REPLICAS": -1}, "a whole number from 0 to 100"),
    ({"WAIT_REPLICAS": True}, "a whole number from 0 to 100"),
    ({"SENTINELS": []}, "list of"),
    ({"SENTINELS": ["host"]}, "list of"),
    ({"SENTINELS": [("host", "1")]}, "list of"),
    ({"SENTINEL_KWARGS": 5}, "a dict is expected"),
    ({"SENTINEL_KWARGS": {}}, "needs SENTINELS"),
    ({"CLUSTER": True, "SCRIPTING": False}, "leave one of CLUSTER and SCRIPTING"),
    ({"CLUSTER": True, "WAIT_REPLICAS": 1}, "leave one of CLUSTER and WAIT_REPLICAS"),
    ({"CLUSTER": True, "SENTINELS": [("host", 1)]}, "exclude each other"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_options_that_are_refused(given: dict[str, Any], said: str) -> None:
    conf = {
        "BACKEND": "django_distlock.backends.redis.RedisBackend",
        "LOCATION": "redis://127.0.0.1:1",
        "OPTIONS": given,
    }
    with (
        lock_alias("refused", **conf) as alias,
        pytest.raises(InvalidLockBackendError, match=said),
    ):
        locks[alias]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (kinds.AuthenticationError("WRONGPASS"), "password"),
        (kinds.NoPermissionError("NOPERM this user has no permissions"), "Allow the user"),
        (kinds.ReadOnlyError("You can't write"), "replica"),
        (kinds.OutOfMemoryError("OOM command not allowed"), "maxmemory"),
        (kinds.ResponseError("WRONGTYPE Operation"), "another program"),
        (kinds.ConnectionError("max number of clients reached"), "maxclients"),
        (kinds.ResponseError("MISCONF Redis is configured"), "disk"),
        (kinds.BusyLoadingError("LOADING"), "just started"),
        (kinds.ResponseError("unknown command 'EVALSHA'"), "SCRIPTING"),
        (kinds.ResponseError("BUSY Redis is busy"), "SCRIPT KILL"),
        (kinds.ClusterDownError("CLUSTERDOWN"), "CLUSTER"),
        (kinds.TimeoutError("no answer"), "here"),
        (kinds.ConnectionError("refused"), "here"),
    ],
)
def test_each_error_has_its_remedy(error: Exception, remedy: str) -> None:
    assert remedy in errors.remedy(error, "here")
