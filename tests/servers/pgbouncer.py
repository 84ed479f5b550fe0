"""A private PgBouncer, a pooler that gives a server's session to another client at each commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .base import Server
from .postgresql import PostgreSQL

__all__ = ["PgBouncer"]


class PgBouncer(Server):
    """PgBouncer in transaction mode, before a PostgreSQL of ours."""

    name = "pgbouncer"
    package = "pgbouncer"
    programs = ("pgbouncer",)
    accounts = ("postgres", "nobody")
    stop_signal = PostgreSQL.stop_signal

    def __init__(
        self, before: PostgreSQL, *, sessions: int = 20, options: Sequence[str] = ()
    ) -> None:
        """Prepare a pooler with so many ``sessions`` of the server's for each database."""
        super().__init__(options=options)
        self.before = before
        self.sessions = sessions

    def prepare(self) -> None:
        """Write the list of users: the one that the server trusts."""
        self.write("users.txt", f'"{self.before.user}" ""\n')

    def command(self) -> list[str]:
        """Write the configuration, which names the port, and return the command line."""
        settings = {
            "listen_addr": self.host,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self.folder / "users.txt",
            "admin_users": self.before.user,
            "pool_mode": "transaction",
            "default_pool_size": self.sessions,
            "max_client_conn": 200,
            # Django and psycopg name these when they connect.
            "ignore_startup_parameters": "extra_float_digits,options",
        }
        lines = [f"{key} = {value}" for key, value in settings.items()]
        server = f"* = host={self.before.host} port={self.before.port}"
        text = ["[databases]", server, "[pgbouncer]", *lines, *self.options]
        self.write("pgbouncer.ini", "\n".join(text) + "\n")
        return [self.program("pgbouncer"), str(self.folder / "pgbouncer.ini")]

    def answers(self) -> bool:
        """Ask its console for the file that it was started with."""
        where = ["-h", self.host, "-p", str(self.port), "-U", self.before.user, "-d", "pgbouncer"]
        said = self.before.run("psql", "-XAtq", *where, "-c", "SHOW CONFIG", limit=5.0)
        return f"auth_file|{self.folder / 'users.txt'}" in said

    def settings(self, name: str) -> dict[str, Any]:
        """Return a ``DATABASES`` entry for a database of the server's, as Django asks for it."""
        return self.before.settings(name) | {
            "PORT": str(self.port),
            "DISABLE_SERVER_SIDE_CURSORS": True,
        }
