"""A private MySQL server."""

from __future__ import annotations

import os
from pathlib import Path

from .base import ServerError
from .mariadb import MariaDB

UNPACKED = Path(os.environ.get("DISTLOCK_TEST_MYSQL_PLACE", Path(__file__).parents[2] / ".mysql"))
"""Where scripts/setup unpacks what Debian 12 has not: the server, and the libraries below it."""
LOADER = UNPACKED / "usr/lib64/ld-linux-x86-64.so.2"


class MySQL(MariaDB):
    """MySQL from Debian's unstable suite, run by the loader and the libraries that came with it.

    It is talked to as MariaDB is.
    """

    name = "mysql"
    package = "mariadb-client (the server is no package of Debian 12: scripts/setup fetches it)"
    programs = ("mariadb",)  # a client that both servers talk to
    start_limit = 60.0

    @classmethod
    def installed(cls) -> bool:
        """Tell whether there is a MySQL to be run here."""
        return LOADER.exists()

    def prepare(self) -> None:
        """Make an empty data folder, and the statements that make our account at each start."""
        if not self.installed():
            raise ServerError("There is no mysql here: scripts/setup test mysql fetches it")
        self.write_account()
        program, *words = self._mysqld()
        self.run(program, *words, "--initialize-insecure", limit=120.0)

    def command(self) -> list[str]:
        """Return the command line; all settings are on it."""
        return [*self._mysqld(), *self.listening(), "--mysqlx=OFF", *self.options]

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
