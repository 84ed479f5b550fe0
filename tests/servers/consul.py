"""Private Consul servers: one node, and a cluster of three."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from .base import Server, ServerError, free_port

UNPACKED = Path(__file__).parents[2] / ".consul" / "usr" / "bin"
"""Where scripts/setup unpacks Debian's package."""


class Consul(Server):
    """A Consul server with its data on disk: by default one that decides alone.

    Its sessions may have TTLs from ``least_session`` seconds on, so that tests need not wait for
    those of the usual minimum, 10 seconds.
    """

    name = "consul"
    package = "consul (Debian 12 has none: scripts/setup fetches it)"
    programs = ("consul",)
    places = (os.environ.get("DISTLOCK_TEST_CONSUL", ""), str(UNPACKED), "/usr/bin")
    start_limit = 60.0
    password: ClassVar[str] = "4a1c3b0e-1111-4222-8333-444455556666"
    """The token of the administrator of a server with ``acl``."""

    def __init__(
        self,
        *,
        least_session: float = 1.0,
        acl: bool = False,
        tls: bool = False,
        mutual: bool = False,
        expect: int = 1,
        port: int = 0,
        options: Sequence[str] = (),
    ) -> None:
        """Prepare a server; ``expect`` is how many servers the cluster has.

        With a ``port`` that one is taken, so that it can be told before the server is started. A
        ``mutual`` one demands a certificate of its clients.
        """
        super().__init__(options=options)
        self.reserved = port
        self.least_session = least_session
        self.acl = acl
        self.tls = tls or mutual
        self.mutual = mutual
        self.trusted = ""
        self.expect = expect
        self.ports = {name: free_port() for name in ("server", "serf_lan")}
        self.join: list[str] = []

    @classmethod
    def installed(cls) -> bool:
        """Tell whether there is a Consul to be run here."""
        path = os.pathsep.join((*cls.places, os.environ.get("PATH", os.defpath)))
        return shutil.which("consul", path=path) is not None

    # What a test uses

    @property
    def url(self) -> str:
        """The URL of its HTTP API."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"

    @property
    def serf(self) -> str:
        """The address at which the other servers find this one."""
        return f"{self.host}:{self.ports['serf_lan']}"

    @property
    def certificate(self) -> str:
        """The certificate of a ``tls`` server, which is its own authority."""
        return str(self.folder / "consul.crt")

    @property
    def node(self) -> str:
        """The name of the node, which no other server of this machine has."""
        return self.folder.name

    def ask(self, method: str, path: str, body: Any = None, limit: float = 5.0) -> Any:
        """Ask the HTTP API as the administrator, and return the JSON of the answer."""
        said = self.text(path, method, body, limit)
        return None if said is None else json.loads(said or "null")

    def text(self, path: str, method: str = "GET", body: Any = None, limit: float = 5.0) -> Any:
        """Ask the HTTP API as the administrator, and return the answer; None when not found."""
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
        with contextlib.closing(connection):
            headers = {"X-Consul-Token": self.password} if self.acl else {}
            text = None if body is None else json.dumps(body)
            try:
                connection.request(method, path, text, headers)
                answer = connection.getresponse()
                said = answer.read().decode()
            except (OSError, http.client.HTTPException) as error:
                raise ServerError(f"{method} {path}: {error!r}") from error
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ServerError(f"{method} {path}: {answer.status} {said}")
        return said

    def all_keys(self) -> list[str]:
        """Return all keys."""
        return list(self.ask("GET", "/v1/kv/?keys") or ())

    def sessions(self) -> list[str]:
        """Return the ids of all sessions."""
        return [each["ID"] for each in self.ask("GET", "/v1/session/list") or ()]

    def traces(self) -> set[str]:
        """Return all that locks put there: keys and sessions."""
        return {*self.all_keys(), *self.sessions()}

    def leader(self) -> str:
        """Return the address of the leader that this server knows; empty without one."""
        return str(self.ask("GET", "/v1/status/leader") or "")

    @property
    def leads(self) -> bool:
        """Whether it is the leader, by what it knows itself."""
        return self.leader() == f"{self.host}:{self.ports['server']}"

    # How it is run

    def prepare(self) -> None:
        """Make the data folder, and a certificate if one is needed."""
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        self._own(data)
        if self.tls:
            self.make_certificate("consul")
        if self.mutual:
            self.trusted = self.trust_clients("consul")

    def command(self) -> list[str]:
        """Return the command line; the settings stand in a file."""
        ports = {"dns": -1, "grpc": -1, "serf_wan": -1, "http": self.port, **self.ports}
        settings: dict[str, Any] = {
            "server": True,
            "bootstrap_expect": self.expect,
            "data_dir": str(self.folder / "data"),
            "node_name": self.node,
            "bind_addr": self.host,
            "client_addr": self.host,
            "ports": ports,
            # A leader of others gives up after half as many busy seconds.
            "performance": {"raft_multiplier": 2 if self.expect == 1 else 4},
            # Else one that is killed for long comes back without a vote, and gets it after 10 s: if
            # the next one is killed before, there is no majority.
            "autopilot": {"cleanup_dead_servers": False},
            "limits": {"http_max_conns_per_client": 5000},
            "session_ttl_min": f"{self.least_session:g}s",
            "disable_update_check": True,
            "disable_host_node_id": True,  # else all agents of a machine are one node
            "log_level": "warn",
            "retry_join": self.join,
            "retry_interval": "100ms",
        }
        if self.tls:
            settings["ports"] = ports | {"http": -1, "https": self.port}
            settings |= {"cert_file": self.certificate, "key_file": str(self.folder / "consul.key")}
        if self.mutual:
            settings |= {"verify_incoming": True, "ca_file": self.trusted}
        if self.acl:
            tokens = {"master": self.password}
            settings["primary_datacenter"] = "dc1"
            settings["acl"] = {"enabled": True, "default_policy": "deny", "tokens": tokens}
        self.write("consul.json", json.dumps(settings))
        file = str(self.folder / "consul.json")
        return [self.program("consul"), "agent", "-config-file", file, *self.options]

    def _launch(self) -> None:
        self.port = self.reserved or self.port
        super()._launch()

    def answers(self) -> bool:
        """Ask for the node's name, to be sure that it is not another server, and for a leader."""
        if self.ask("GET", "/v1/agent/self")["Config"]["NodeName"] != self.node:
            return False
        return self.expect > 1 or (self.leader() != "" and self.ready())

    def ready(self) -> bool:
        """Tell whether it reads by a leader, and takes sessions for its node."""
        with contextlib.suppress(ServerError):
            nodes = self.ask("GET", "/v1/catalog/nodes?consistent") or ()
            return any(each["Node"] == self.node for each in nodes)
        return False


class ConsulCluster:
    """Three servers, of which two can go on without the third."""

    def __init__(self, ports: Sequence[int] = (0, 0, 0)) -> None:
        """Prepare the servers, at these ports if any are given."""
        self.nodes = [Consul(expect=3, port=port) for port in ports]
        for node in self.nodes:
            node.join = [each.serf for each in self.nodes if each is not node]
        self._stack = ExitStack()

    def start(self) -> Self:
        """Start the servers, and wait until they have chosen a leader."""
        try:
            for node in self.nodes:
                self._stack.callback(node.stop)
                node.start()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the servers and delete their folders."""
        self._stack.close()

    def mend(self) -> None:
        """Bring back what was killed or stopped, and wait until they agree."""
        for node in self.nodes:
            node.resume()
            node.start()
        self.wait()

    @property
    def urls(self) -> list[str]:
        """The URLs of all servers."""
        return [node.url for node in self.nodes]

    def wait(self, limit: float = 60.0) -> None:
        """Wait until all that run know one leader, and each other, and all vote."""
        running = [node for node in self.nodes if node.running]
        _wait_until(lambda: all(_is_ready(node) for node in running), limit)
        _wait_until(lambda: _voters(running[0]) == len(self.nodes), limit)

    def leader(self) -> Consul:
        """Return the server that leads."""
        found: list[Consul] = []

        def leading() -> bool:
            found[:] = [node for node in self.nodes if node.running and _leads(node)]
            return len(found) == 1

        _wait_until(leading, 30.0)
        return found[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _leads(node: Consul) -> bool:
    with contextlib.suppress(ServerError):
        return node.leads
    return False


def _is_ready(node: Consul) -> bool:
    with contextlib.suppress(ServerError):
        return node.leader() != "" and node.ready()
    return False


def _voters(node: Consul) -> int:
    with contextlib.suppress(ServerError):
        servers = node.ask("GET", "/v1/operator/raft/configuration")["Servers"]
        return sum(each["Voter"] for each in servers)
    return 0


def _wait_until(condition: Callable[[], bool], limit: float) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise ServerError(f"the cluster was not ready within {limit:.0f} s")
        time.sleep(0.05)
