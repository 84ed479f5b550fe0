"""PyMySQL in the place of mysqlclient: locks work, and a server that hangs is not waited for."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.conf import settings

from tests.conftest import SERVERS
from tests.servers import DatabaseServer

ALIASES = ("mariadb", "row-mariadb", "version-mariadb", "advisory-mariadb")


def check(alias: str, name: str, server: DatabaseServer) -> None:
    """Take a lock by PyMySQL in a process of its own, and have the server hang."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.under_pymysql", alias, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            server.pause()
            assert process.communicate("stopped\n", timeout=20)[0] == "done\n"
        finally:
            process.kill()
            server.resume()
    assert process.returncode == 0


@pytest.mark.parametrize("alias", [each for each in ALIASES if each in settings.DISTLOCKS])
def test_a_server_that_hangs_is_not_waited_for(alias: str, name: str) -> None:
    check(alias, name, SERVERS["mariadb"])
