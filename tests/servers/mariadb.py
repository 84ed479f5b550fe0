"""A private MariaDB server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from typing import Any, ClassVar

from .base import DatabaseServer


class MariaDB(DatabaseServer):
    """MariaDB from Debian's package, or from PATH; or of DISTLOCK_TEST_MARIADB_PLACE."""

    name = "mariadb"
    package = "mariadb-server"
    programs: ClassVar[tuple[str, ...]] = ("mariadb-install-db", "mariadbd", "mariadb")
    places = (os.environ.get("DISTLOCK_TEST_MARIADB_PLACE", "/usr/local/sbin"), "/usr/sbin")
    accounts = ("mysql", "nobody")

    def __init__(self, *, durable: bool = False, options: Sequence[str] = ()) -> None:
        """Prepare a server; only a ``durable`` one waits for the disk at each commit."""
        super().__init__(durable=durable, options=options)
        self.password = secrets.token_hex(16)

    def prepare(self) -> None:
        """Make an empty data folder, and the statements that make our account at each start."""
        self.write_account()
        words = ["--auth-root-authentication-method=socket", "--skip-test-db"]
        self.run("mariadb-install-db", "--no-defaults", *words, *self._shared())

    def write_account(self) -> None:
        """Write the statements that make our account."""
        account = f"'{self.user}'@'%'"
        self.write(
            "account.sql",
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO {account} WITH GRANT OPTION;\n",
        )

    def command(self) -> list[str]:
        """Return the command line; all settings are on it."""
        program = [self.program("mariadbd"), "--no-defaults", *self._shared()]
        return [*program, *self.listening(), "--character-set-server=utf8mb4", *self.options]

    def listening(self) -> list[str]:
        """Return the options of a server that runs."""
        # 2 hands each commit to the operating system, which outlives a killed server. 0 would be
        # no faster here and loses the commits of the last second.
        flush = 1 if self.durable else 2
        return [
            f"--port={self.port}",
            f"--bind-address={self.host}",
            f"--socket={self.name}.sock",  # in the data folder; a full path may be too long
            f"--pid-file={self.folder}/{self.name}.pid",
            f"--init-file={self.folder}/account.sql",
            f"--innodb-flush-log-at-trx-commit={flush}",
            "--skip-log-bin",
            "--skip-name-resolve",
            "--max-connections=200",
            "--max-connect-errors=1000000",
        ]

    def answers(self) -> bool:
        """Ask for the data folder, to be sure that it is not another server."""
        return self.execute("SELECT @@datadir", limit=5.0) == f"{self.folder}/data/"

    def settings(self, name: str) -> dict[str, Any]:
        """Return a ``DATABASES`` entry."""
        return {
            "ENGINE": "django.db.backends.mysql",
            "NAME": name,
            "USER": self.user,
            "PASSWORD": self.password,
            "HOST": self.host,
            "PORT": str(self.port),
            "OPTIONS": {"charset": "utf8mb4"},
        }

    def execute(self, sql: str, *, limit: float = 60.0) -> str:
        """Run SQL over TCP."""
        where = ["--protocol=tcp", f"--host={self.host}", f"--port={self.port}"]
        words = ["--no-defaults", "--batch", "--skip-column-names", f"--user={self.user}", *where]
        return self.run("mariadb", *words, "-e", sql, limit=limit, MYSQL_PWD=self.password)

    def _shared(self) -> list[str]:
        """Return the options that both the installer and the server get."""
        folder = self.folder
        sizes = ["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M"]
        return [f"--datadir={folder}/data", f"--tmpdir={folder}", *sizes]
