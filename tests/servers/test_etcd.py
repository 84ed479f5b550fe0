"""etcd servers: with their data over a restart and a kill, encrypted, and as a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import Etcd, EtcdCluster, ServerError, chosen, watcher

KEPT = {"key": "a2VwdA==", "value": "eWVz"}  # kept: yes


@pytest.fixture(scope="module")
def server() -> Iterator[Etcd]:
    """Return a running server."""
    with Etcd() as server:
        yield server


class TestEtcd:
    """Not collected unless etcd is chosen."""

    __test__ = "etcd" in chosen()

    def test_it_runs_as_somebody_else_on_loopback(self, server: Etcd) -> None:
        owner = Path(f"/proc/{server.pids[0]}").stat().st_uid
        assert owner == (server._uid if os.getuid() == 0 else os.getuid())
        assert b"0.0.0.0" not in Path(f"/proc/{server.pids[0]}/cmdline").read_bytes()

    def test_an_error_is_an_error(self, server: Etcd) -> None:
        with pytest.raises(ServerError, match="lease not found"):
            server.ask("lease/revoke", {"ID": "77"})
        with pytest.raises(ServerError, match="has no nonsense"):
            server.metric("nonsense")

    @pytest.mark.parametrize("how", ["restart", "kill"])
    def test_data_and_port_outlive(self, how: str) -> None:
        with Etcd() as server:
            server.ask("kv/put", KEPT)
            port, pids = server.port, server.pids
            if how == "kill":
                server.kill()
                assert server.pids == []
                server.start()
            else:
                server.restart()
            assert (server.port, server.pids == pids) == (port, False)
            assert server.all_keys() == ["kept"]
            server.delete("kept")
            assert server.all_keys() == []

    def test_paused_it_does_not_answer(self, server: Etcd) -> None:
        server.pause()
        try:
            with pytest.raises(ServerError, match="timed out"):
                server.ask("kv/range", {"key": "YQ=="}, limit=0.2)
        finally:
            server.resume()
        server.ask("kv/range", {"key": "YQ=="})

    def test_encrypted(self) -> None:
        with Etcd(tls=True) as server:
            assert server.url.startswith("https://")
            assert server.all_keys() == []

    @pytest.mark.parametrize(("heartbeat", "least"), [(10, 1), (60, 1), (100, 2), (200, 3)])
    def test_the_shortest_lease(self, heartbeat: int, least: int) -> None:
        with Etcd(heartbeat=heartbeat) as server:
            assert int(server.ask("lease/grant", {"TTL": 1})["TTL"]) == least

    def test_only_a_durable_one_waits_for_the_disk(self) -> None:
        for durable in (True, False):
            with Etcd(durable=durable) as server:
                line = Path(f"/proc/{server.pids[0]}/cmdline").read_bytes()
                assert (b"--unsafe-no-fsync" in line) is not durable

    def test_a_cluster(self) -> None:
        with EtcdCluster() as cluster:
            leader = cluster.leader
            leader.ask("kv/put", KEPT)
            leader.kill()
            assert cluster.leader is not leader
            cluster.bring_up()
            assert leader.all_keys() == ["kept"]
            pids = [node.pids[0] for node in cluster.nodes]
        assert not any(watcher.look(pid) for pid in pids)

    def test_stop_leaves_nothing(self) -> None:
        server = Etcd().start()
        folder, pids = server.folder, server.pids
        server.pause()
        server.stop()
        assert not folder.exists()
        assert not any(watcher.look(pid) for pid in pids)


def test_a_missing_program_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Etcd, "places", ())
    monkeypatch.setenv("PATH", "/nowhere")
    server = Etcd()
    with pytest.raises(ServerError, match=r"not found\. Install it: apt-get install etcd-server"):
        server.start()
    assert not server.running
