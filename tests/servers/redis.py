"""Private Redis servers: one node, replicas of it, Sentinel, and a cluster of three."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from .base import Server, ServerError, free_port

SLOTS = 16_384


def wait_until(condition: Callable[[], bool], what: str, limit: float = 20.0) -> None:
    """Wait until a server says that it is so."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise ServerError(f"{what} was not ready within {limit:.0f} s")
        time.sleep(0.02)


class Redis(Server):
    """Redis from Debian's package, or from PATH; or what is called so in DISTLOCK_TEST_REDIS_PLACE.

    That may be Valkey, for which its compatibility packages have that name. A ``persistent`` one
    keeps what it has answered over a restart and over a kill, as its log of writes is handed to the
    operating system before each answer. Any other comes back empty.
    """

    name = "redis"
    package = "redis-server"
    programs = ("redis-server", "redis-cli")
    places = (os.environ.get("DISTLOCK_TEST_REDIS_PLACE", "/usr/local/bin"), "/usr/bin")
    accounts = ("redis", "nobody")

    def __init__(
        self,
        *,
        persistent: bool = True,
        password: str = "",
        tls: bool = False,
        replica_of: Redis | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Prepare a server; ``options`` are words of its command line, as ``--maxmemory``."""
        super().__init__(options=options)
        self.persistent = persistent
        self.password = password
        self.tls = tls
        self.master = replica_of

    # Where it is

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def socket(self) -> str:
        """The path of the Unix socket, or nothing when it would be too long for one."""
        path = str(self.folder / "redis.sock")
        return path if len(path) < 100 else ""

    @property
    def certificate(self) -> str:
        """The certificate of a ``tls`` server, which is its own authority."""
        return str(self.folder / "redis.crt")

    def url(self, database: int = 0, *, user: str = "", password: str | None = None) -> str:
        """Return the URL by which redis-py finds a database, by the server's own password."""
        word = self.password if password is None else password
        account = f"{quote(user)}:{quote(word, safe='')}@" if user or word else ""
        scheme, query = (
            ("rediss", f"?ssl_ca_certs={self.certificate}") if self.tls else ("redis", "")
        )
        return f"{scheme}://{account}{self.host}:{self.port}/{database}{query}"

    # What a test does to it

    def execute(self, *words: str, limit: float = 30.0) -> str:
        """Run one command with Redis's own client, and return the answer as text."""
        where = ["-e", "-h", self.host, "-p", str(self.port)]
        if self.tls:
            where += ["--tls", "--cacert", self.certificate]
        known = {"REDISCLI_AUTH": self.password} if self.password else {}
        return self.run("redis-cli", *where, *words, limit=limit, **known)

    def info(self, field: str) -> str:
        """Return one field of INFO."""
        for line in self.execute("INFO", "everything").splitlines():
            key, _, value = line.strip().partition(":")
            if key == field:
                return value
        raise ServerError(f"INFO has no {field!r}")

    @property
    def role(self) -> str:
        """``"master"`` or ``"slave"``, or nothing when the answer was cut off.

        Sentinel closes all connections of a server whose role it changes, that of who asks, too.
        """
        try:
            return self.info("role")
        except ServerError:
            return ""

    def wipe(self) -> None:
        """Remove the data of a server that does not run: it comes back empty."""
        if self.running:
            raise ServerError("redis runs: stop or kill it before its data is removed")
        self._empty_data()

    def promote(self) -> None:
        """Make a replica a master, with what it has received so far."""
        self.execute("REPLICAOF", "NO", "ONE")

    def wait_for_link(self) -> Self:
        """Wait until a replica has what its master has, and is sent what comes.

        A new one is sent nothing until the master has heard from it, which takes up to a second.
        """
        assert self.master is not None
        wait_until(lambda: self.info("master_link_status") == "up", "the replica's link")
        self.master.execute("PUBLISH", "sent-to-replicas", "")
        offset = int(self.master.info("master_repl_offset"))
        wait_until(lambda: int(self.info("slave_repl_offset")) >= offset, "the replica's stream")
        return self

    # How it is run

    def prepare(self) -> None:
        """Make the data folder, and a certificate if one is needed."""
        self._empty_data()
        if self.tls:
            self.make_certificate("redis")

    def command(self) -> list[str]:
        """Return the command line; what is secret stands in a file."""
        self.write("redis.conf", self._secrets())
        ports = {"--port": "0", "--tls-port": str(self.port)} if self.tls else {
            "--port": str(self.port)
        }  # fmt: skip
        settings = {
            "--bind": self.host,
            **ports,
            "--dir": str(self.data),
            "--save": "",
            "--appendonly": "yes" if self.persistent else "no",
            "--appendfsync": "no",  # a killed server needs no more than the write
            "--enable-debug-command": "yes",
            "--repl-diskless-sync-delay": "0",
            "--repl-ping-replica-period": "1",
        }
        if self.socket:
            settings["--unixsocket"] = self.socket
        if self.tls:
            settings |= {
                "--tls-cert-file": self.certificate,
                "--tls-key-file": str(self.folder / "redis.key"),
                "--tls-ca-cert-file": self.certificate,
                "--tls-auth-clients": "no",
            }
        words = [word for pair in settings.items() for word in pair]
        if self.master is not None:
            words += ["--replicaof", self.master.host, str(self.master.port)]
        return [
            self.program("redis-server"),
            str(self.folder / "redis.conf"),
            *words,
            *self.options,
        ]

    def answers(self) -> bool:
        """Ask for the data folder, to be sure that it is not another server, and loaded."""
        # Only the second command is refused while the data are being read.
        mine = self.execute("CONFIG", "GET", "dir", limit=5.0) == f"dir\n{self.data}"
        return mine and self.execute("PING", limit=5.0) == "PONG"

    def _secrets(self) -> str:
        lines = [f'requirepass "{self.password}"'] if self.password else []
        if self.master is not None and self.master.password:
            lines.append(f'masterauth "{self.master.password}"')
        return "\n".join(lines) + "\n"

    def _empty_data(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.data)
        self.data.mkdir(mode=0o700)
        self._own(self.data)


class ClusterNode(Redis):
    """A node of a `RedisCluster`."""

    def __init__(self, *, persistent: bool = True, options: Sequence[str] = ()) -> None:
        """Prepare a node."""
        super().__init__(persistent=persistent, options=options)
        self.bus = 0

    def command(self) -> list[str]:
        """Return the command line."""
        self.bus = self.bus or free_port()
        words = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500"]
        return [*super().command(), *words, "--cluster-port", str(self.bus)]


class Sentinel(Redis):
    """A Sentinel, alone, that watches one master under the name ``main``."""

    def __init__(self, master: Redis) -> None:
        """Prepare a Sentinel that decides alone, after a second without an answer."""
        super().__init__(persistent=False)
        self.watched = master

    def command(self) -> list[str]:
        """Return the command line; Sentinel writes what it learns into its file."""
        where = f"{self.watched.host} {self.watched.port}"
        lines = [f"port {self.port}", f"bind {self.host}", f"dir {self.data}"]
        lines += [f"sentinel monitor main {where} 1", "sentinel down-after-milliseconds main 1000"]
        lines += ["sentinel failover-timeout main 3000"]
        if self.watched.password:
            lines.append(f'sentinel auth-pass main "{self.watched.password}"')
        self.write("sentinel.conf", "\n".join(lines) + "\n")
        return [self.program("redis-server"), str(self.folder / "sentinel.conf"), "--sentinel"]

    def answers(self) -> bool:
        """Ask for the master, which no other Sentinel of this machine watches."""
        answer = self.execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main", limit=5.0)
        return answer == f"{self.watched.host}\n{self.watched.port}"


class RedisCluster:
    """Three masters that share the slots."""

    def __init__(self, *, persistent: bool = True) -> None:
        """Prepare the nodes."""
        self.nodes = [ClusterNode(persistent=persistent) for _ in range(3)]
        self._stack = ExitStack()

    def start(self) -> Self:
        """Start the nodes, give each its share of the slots, and wait until they agree."""
        try:
            for node in self.nodes:
                self._stack.callback(node.stop)
                node.start()
            self._join()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the nodes and delete their folders."""
        self._stack.close()

    @property
    def url(self) -> str:
        """The URL of one node, which tells of the others."""
        return self.nodes[0].url()

    def _join(self) -> None:
        """Give each node a third of the slots, and have them know each other."""
        first, share = self.nodes[0], SLOTS // len(self.nodes) + 1
        for number, node in enumerate(self.nodes):
            low, high = number * share, min((number + 1) * share, SLOTS) - 1
            node.execute("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
            node.execute("CLUSTER", "ADDSLOTSRANGE", str(low), str(high))
            if node is not first:
                node.execute("CLUSTER", "MEET", first.host, str(first.port), str(first.bus))
        self.wait()

    def wait(self) -> None:
        """Wait until the nodes agree that all is well."""
        for node in self.nodes:
            wait_until(partial(self._agrees, node), "the cluster")

    def _agrees(self, node: Redis) -> bool:
        facts = node.execute("CLUSTER", "INFO").split()
        return {"cluster_state:ok", f"cluster_known_nodes:{len(self.nodes)}"} <= set(facts)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
