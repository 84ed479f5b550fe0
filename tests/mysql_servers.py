"""The MySQL of this run, which is started by the process that runs its tests, and its aliases."""

from __future__ import annotations

import json
import os
from typing import Any

from tests import clusters
from tests.servers import chosen
from tests.servers.base import HOST
from tests.servers.mysql import MySQL

__all__ = ["ALIASES", "aliases", "databases", "environment", "running", "start", "stop"]

NODE: list[MySQL] = []
"""The server, once it was asked for."""

VARIABLE = "DISTLOCK_TEST_MYSQL"
BACKENDS = "django_distlock.backends"
ALIASES: dict[str, dict[str, Any]] = {
    "mysql": {"BACKEND": f"{BACKENDS}.table.TableBackend"},
    "portable-mysql": {
        "BACKEND": f"{BACKENDS}.table.TableBackend",
        "PREFIX": "portable",
        "OPTIONS": {"SQL": "portable"},
    },
    "row-mysql": {"BACKEND": f"{BACKENDS}.row.RowBackend", "OPTIONS": {"CONNECTIONS": 150}},
    "advisory-mysql": {
        "BACKEND": f"{BACKENDS}.advisory.AdvisoryBackend",
        "OPTIONS": {"CONNECTIONS": 150},
    },
    "version-mysql": {"BACKEND": f"{BACKENDS}.version.VersionBackend", "PREFIX": "version"},
}


def start() -> None:
    """Say that there is a server; it is not started yet."""
    os.environ.pop(VARIABLE, None)
    if "mysql" in chosen():
        nowhere = MySQL().settings("distlock") | {"HOST": HOST, "PORT": "1"}
        os.environ[VARIABLE] = json.dumps(nowhere)


def stop() -> None:
    """End the server."""
    for node in NODE:
        node.stop()
    NODE.clear()


def running() -> MySQL:
    """Return the server; it is started, and the tables are made, when it is first asked for."""
    if not NODE:
        from django.core.management import call_command
        from django.db import connections

        NODE.append(MySQL().start())
        entry = NODE[0].create_database("distlock")
        os.environ[VARIABLE] = json.dumps(entry)
        connections.settings["mysql"] |= entry
        connections["mysql"].settings_dict |= entry
        call_command("migrate", database="mysql", verbosity=0)
        connections["mysql"].close()
        for alias in ALIASES:
            clusters.show(alias)
    return NODE[0]


def environment() -> dict[str, str]:
    """Return the environment of a process that does not wait for the server to be started.

    From Django 6.1 on the checks of a command connect to each database that is configured.
    """
    return {name: value for name, value in os.environ.items() if NODE or name != VARIABLE}


def databases() -> dict[str, dict[str, Any]]:
    """Return the entry of DATABASES, if MySQL was chosen."""
    told = os.environ.get(VARIABLE)
    return {} if told is None else {"mysql": json.loads(told)}


def aliases() -> dict[str, dict[str, Any]]:
    """Return the aliases on it."""
    if VARIABLE not in os.environ:
        return {}
    return {alias: {**conf, "LOCATION": "mysql"} for alias, conf in ALIASES.items()}
