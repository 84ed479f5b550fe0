"""Private ZooKeeper servers: one alone, and a cluster of three."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .base import Server, ServerError, free_port
from .redis import wait_until

JAR = "/usr/share/java/zookeeper.jar"
# What its Debian package leaves out of the classpath, and TLS needs.
NETTY = ("/usr/share/java/netty-codec.jar", "/usr/share/java/netty-resolver.jar")
TICK = 200  # ms; a session lasts for two of them at least


class ZooKeeper(Server):
    """ZooKeeper from Debian's package, as small as it can be, with its data in the folder.

    It does not wait for the disk, but what it has answered survives a kill: it was written.
    A ``tls`` one has a second port, ``secure``, and a ``certificate`` which is its own authority;
    a ``mutual`` one demands one of its clients there, too.
    ``options`` are words of Java's command line.
    """

    name = "zookeeper"
    package = "zookeeper default-jre-headless"
    programs = ("java",)
    places = ("/usr/bin",)
    accounts = ("zookeeper", "nobody")

    def __init__(
        self, *, tls: bool = False, mutual: bool = False, options: Sequence[str] = ()
    ) -> None:
        """Prepare a server."""
        super().__init__(options=options)
        self.secure = free_port() if tls or mutual else 0
        self.mutual = mutual
        self.lines: list[str] = []

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def address(self) -> str:
        """Where it is, as in a LOCATION."""
        return f"{self.host}:{self.port}"

    @property
    def certificate(self) -> str:
        """The certificate of a ``tls`` server."""
        return str(self.folder / "zookeeper.crt")

    def _prepare_tls(self) -> None:
        self.make_certificate("zookeeper")
        parts = [(self.folder / f"zookeeper.{end}").read_text() for end in ("key", "crt")]
        self.write("zookeeper.pem", "".join(parts))
        factory = "org.apache.zookeeper.server.NettyServerCnxnFactory"
        self.options.append(f"-Dzookeeper.serverCnxnFactory={factory}")
        self.lines += [f"secureClientPort={self.secure}", f"secureClientPortAddress={self.host}"]
        self.lines.append(f"ssl.clientAuth={'need' if self.mutual else 'none'}")
        own = str(self.folder / "zookeeper.pem")
        trusted = self.trust_clients() if self.mutual else own
        for store, file in (("keyStore", own), ("trustStore", trusted)):
            self.lines += [f"ssl.{store}.location={file}", f"ssl.{store}.type=PEM"]

    def prepare(self) -> None:
        """Make the data folder, and a certificate if one is needed."""
        if not Path(JAR).exists():
            raise ServerError(f"{JAR} not found. Install it: apt-get install {self.package}")
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.data)
        self.data.mkdir(mode=0o700)
        self._own(self.data)
        if self.secure:
            self._prepare_tls()

    def command(self) -> list[str]:
        """Return the command line; the settings stand in a file."""
        settings = [
            f"tickTime={TICK}",
            f"dataDir={self.data}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.host}",
            "maxSessionTimeout=60000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
            *self.lines,
        ]
        self.write("zoo.cfg", "\n".join(settings) + "\n")
        java = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        java += ["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=64"]
        # Empty containers stay until a test asks for something else.
        java += ["-Dznode.container.checkIntervalMs=3600000"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        where = str(self.folder / "zoo.cfg")
        jars = ":".join((JAR, *NETTY))
        return [self.program("java"), *java, *self.options, "-cp", jars, main, where]

    def ask(self, word: str) -> str:
        """Return the answer to one of its commands of four letters."""
        parts = []
        try:
            with socket.create_connection((self.host, self.port), 2.0) as wire:
                wire.sendall(word.encode())
                while part := wire.recv(65536):
                    parts.append(part)
        except OSError as error:
            raise ServerError(f"zookeeper gave no answer to {word}: {error}") from error
        return b"".join(parts).decode()

    def count(self, field: str) -> int:
        """Return one of its counters, by its name in ``mntr``."""
        for line in self.ask("mntr").splitlines():
            key, _, value = line.partition("\t")
            if key == field:
                return int(float(value))
        raise ServerError(f"mntr has no {field!r}")

    def traces(self) -> set[str]:
        """Return all that locks put there: ephemeral nodes, and sessions of nobody connected.

        Empty containers are removed by the server itself, see `command`.
        """
        dump, connected = self.ask("dump"), self.ask("cons")
        nodes = re.findall(r"(?m)^\t(/.*)$", dump)
        sessions = {int(each, 16) for each in re.findall(r"0x[0-9a-f]+", dump)}
        sessions -= {int(each, 16) for each in re.findall(r"sid=(0x[0-9a-f]+)", connected)}
        sessions.discard(0)  # whoever has asked for this
        return {*nodes, *map(hex, sessions)}

    def serves(self) -> bool:
        """Tell whether it answers requests: alone at once, in a cluster when there is a leader."""
        with contextlib.suppress(ServerError):
            return "Mode: " in self.ask("srvr")
        return False

    def is_mine(self) -> bool:
        """Tell by its folder whether it is this very server that answers."""
        return f"user.dir={self.folder}\n" in self.ask("envi")

    def answers(self) -> bool:
        """Tell whether it is this server, and serves."""
        return self.is_mine() and self.serves()


class Member(ZooKeeper):
    """A server of a `ZooKeeperCluster`."""

    def __init__(self, cluster: ZooKeeperCluster, number: int) -> None:
        """Prepare a server."""
        self._port = 0
        super().__init__()
        self.port = free_port()
        self.cluster = cluster
        self.number = number
        self.ports = (free_port(), free_port())

    @property
    def port(self) -> int:
        """Its port, which is known before it is started."""
        return self._port

    @port.setter
    def port(self, port: int) -> None:
        self._port = self._port or port

    def prepare(self) -> None:
        """Say who it is."""
        super().prepare()
        self.write("data/myid", f"{self.number}\n")

    def command(self) -> list[str]:
        """Return the command line."""
        self.lines = ["initLimit=50", "syncLimit=25"]
        for each in self.cluster.members:
            quorum, election = each.ports
            self.lines.append(f"server.{each.number}={self.host}:{quorum}:{election}")
        return super().command()

    def answers(self) -> bool:
        """Tell whether it runs; it serves when there is a majority."""
        return self.is_mine()

    @property
    def leads(self) -> bool:
        """Whether it is the leader now."""
        with contextlib.suppress(ServerError):
            return "Mode: leader" in self.ask("srvr")
        return False


class ZooKeeperCluster:
    """Three servers, of which two decide."""

    def __init__(self) -> None:
        """Prepare the servers."""
        self.members: list[Member] = []
        self.members += [Member(self, number) for number in (1, 2, 3)]

    def start(self) -> Self:
        """Start the servers, and wait until all serve."""
        try:
            for member in self.members:
                member.start()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def wait(self) -> None:
        """Wait until all that run serve."""
        for member in self.members:
            if member.running:
                wait_until(member.serves, "the cluster of zookeeper", 60.0)

    def stop(self) -> None:
        """End the servers and delete their folders."""
        for member in self.members:
            member.stop()

    @property
    def leader(self) -> Member:
        """The server that leads now."""
        for member in self.members:
            if member.running and member.leads:
                return member
        raise ServerError("the cluster of zookeeper has no leader now")

    @property
    def followers(self) -> list[Member]:
        """The servers that do not lead now."""
        leader = self.leader
        return [member for member in self.members if member is not leader]

    @property
    def address(self) -> str:
        """Where they are, as in a LOCATION."""
        return ",".join(member.address for member in self.members)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
