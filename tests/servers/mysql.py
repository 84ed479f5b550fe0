"""A private MySQL server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .base import DatabaseServer, ServerError

UNPACKED = Path(os.environ.get("DISTLOCK_TEST_MYSQL_PLACE", Path(__file__).parents[2] / ".mysql"))
"""Where scripts/setup unpacks what Debian 12 has not: the server, and the libraries below it."""
LOADER = UNPACKED / "usr/lib64/ld-linux-x86-64.so.2"


class MySQL(DatabaseServer):
    """MySQL from Debian's unstable suite, run by the loader and the libraries that came with it."""

    name = "mysql"
    package = "mariadb-client (the server is no package of Debian 12: scripts/setup fetches it)"
    programs = ("mariadb",)  # a client that both servers talk to
    accounts = ("mysql", "nobody")
    start_limit = 60.0

    def __init__(self, *, durable: bool = False, options: Sequence[str] = ()) -> None:
        """Prepare a server; only a ``durable`` one waits for the disk at each commit."""
        super().__init__(durable=durable, options=options)
        self.password = secrets.token_hex(16)

    @classmethod
    def installed(cls) -> bool:
        """Tell whether there is a MySQL to be run here."""
        return LOADER.exists()

    def prepare(self) -> None:
        """Make an empty data folder, and the statements that make our account at each start."""
        if not self.installed():
            raise ServerError("There is no mysql here: scripts/setup test mysql fetches it")
        account = f"'{self.user}'@'%'"
        self.write(
            "account.sql",
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO {account} WITH GRANT OPTION;\n",
        )
        program, *words = self._mysqld()
        self.run(program, *words, "--initialize-insecure", limit=120.0)

    def command(self) -> list[str]:
        """Return the command line; all settings are on it."""
        flush = 1 if self.durable else 2  # as for MariaDB
        return [
            *self._mysqld(),
            f"--port={self.port}",
            f"--bind-address={self.host}",
            "--socket=mysql.sock",  # in the data folder; a full path may be too long for a socket
            f"--pid-file={self.folder}/mysql.pid",
            f"--init-file={self.folder}/account.sql",
            f"--innodb-flush-log-at-trx-commit={flush}",
            "--skip-log-bin",
            "--skip-name-resolve",
            "--mysqlx=OFF",
            "--max-connections=200",
            "--max-connect-errors=1000000",
            *self.options,
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

    def _mysqld(self) -> list[str]:
        """Return the program with the options that it always gets."""
        usr = UNPACKED / "usr"
        return [
            str(LOADER),
            "--library-path",
            str(usr / "lib/x86_64-linux-gnu"),
            str(usr / "sbin/mysqld"),
            "--no-defaults",
            f"--basedir={usr}",
            f"--lc-messages-dir={usr}/share/mysql",
            f"--plugin-dir={usr}/lib/mysql/plugin",
            f"--character-sets-dir={usr}/share/mysql/charsets",
            f"--datadir={self.folder}/data",
            f"--tmpdir={self.folder}",
            "--secure-file-priv=NULL",
            "--innodb-buffer-pool-size=64M",
        ]
