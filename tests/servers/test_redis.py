"""Redis servers: with and without their data, closed, encrypted, copied, and as a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from . import Redis, RedisCluster, Sentinel, ServerError, chosen, watcher
from .redis import wait_until


def client(server: Redis, **options: object) -> redis.Redis:
    """Return a client that gives up after 5 s and asks once."""
    url = str(options.pop("url", server.url()))
    given: Any = {"socket_timeout": 5, "retry": None, "decode_responses": True} | options
    return redis.Redis.from_url(url, **given)


def get(server: Redis, key: str, **options: object) -> object:
    """Return what a key holds, over a connection of its own."""
    with client(server, **options) as asking:
        return asking.get(key)


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    """Return a running server."""
    with Redis() as server:
        yield server


class TestRedis:
    """Not collected unless redis is chosen."""

    __test__ = "redis" in chosen()

    def test_it_runs_as_somebody_else_on_loopback(self, server: Redis) -> None:
        assert server.execute("CONFIG", "GET", "bind") == "bind\n127.0.0.1"
        owner = Path(f"/proc/{server.pids[0]}").stat().st_uid
        expected = server._uid if os.getuid() == 0 else os.getuid()
        assert owner == expected

    def test_an_error_is_an_error(self, server: Redis) -> None:
        with pytest.raises(ServerError, match="unknown command"):
            server.execute("NONSENSE")

    @pytest.mark.parametrize("how", ["restart", "kill"])
    @pytest.mark.parametrize("persistent", [True, False])
    def test_data_and_port_outlive(self, how: str, persistent: bool) -> None:
        with Redis(persistent=persistent) as server:
            server.execute("SET", "kept", "yes")
            port, pids = server.port, server.pids
            if how == "kill":
                server.kill()
                assert server.pids == []
                server.start()
            else:
                server.restart()
            assert (server.port, server.pids == pids) == (port, False)
            assert get(server, "kept") == ("yes" if persistent else None)

    def test_wiped_it_comes_back_empty(self, server: Redis) -> None:
        server.execute("SET", "kept", "no")
        with pytest.raises(ServerError, match="stop or kill it"):
            server.wipe()
        server.kill()
        server.wipe()
        server.start()
        assert get(server, "kept") is None

    def test_paused_it_keeps_its_connections(self, server: Redis) -> None:
        with client(server) as asking:
            asking.set("kept", 1)
            server.pause()
            try:
                with pytest.raises(redis.TimeoutError):
                    get(server, "kept", socket_timeout=0.2)
            finally:
                server.resume()
            assert asking.get("kept") == "1"

    def test_a_password_and_accounts(self) -> None:
        with Redis(password="pass word/@:#") as server:
            server.execute("ACL", "SETUSER", "ann", "on", ">secret", "~ann:*", "+@all")
            with pytest.raises(redis.AuthenticationError):
                get(server, "x", url=f"redis://{server.host}:{server.port}/0")
            assert get(server, "ann:x", url=server.url(user="ann", password="secret")) is None
            with pytest.raises(redis.exceptions.NoPermissionError):
                get(server, "x", url=server.url(user="ann", password="secret"))
            assert get(server, "x") is None

    def test_the_password_is_not_on_the_command_line(self) -> None:
        with Redis(password="pass-word") as server:
            assert b"pass-word" not in Path(f"/proc/{server.pids[0]}/cmdline").read_bytes()

    def test_a_unix_socket(self, server: Redis) -> None:
        assert server.socket
        server.execute("SET", "way", "any")
        assert get(server, "way", url=f"unix://{server.socket}?db=0") == "any"

    def test_encrypted(self) -> None:
        with Redis(tls=True) as server:
            assert server.url().startswith("rediss://")
            assert get(server, "x") is None
            with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
                get(server, "x", url=f"redis://{server.host}:{server.port}/0")

    def test_a_replica_that_lags_and_is_promoted(self, server: Redis) -> None:
        server.execute("SET", "before", "1")
        with Redis(replica_of=server) as replica:
            replica.wait_for_link()
            assert get(replica, "before") == "1"
            with pytest.raises(redis.ReadOnlyError), client(replica) as asking:
                asking.set("x", 1)
            replica.pause()
            server.execute("SET", "after", "1")
            server.kill()
            replica.resume()
            replica.promote()
            server.start()
            assert (get(server, "after"), replica.info("role")) == ("1", "master")

    def test_options_are_passed_on(self) -> None:
        with Redis(options=["--maxmemory", "3mb"]) as server:
            assert server.execute("CONFIG", "GET", "maxmemory") == "maxmemory\n3145728"

    def test_debug_commands_are_allowed(self, server: Redis) -> None:
        assert server.execute("DEBUG", "SLEEP", "0") == "OK"

    def test_sentinel_fails_over(self) -> None:
        with Redis() as master, Redis(replica_of=master) as replica, Sentinel(master) as sentinel:
            replica.wait_for_link()
            wait_until(lambda: "num-slaves\n1" in known(sentinel), "what Sentinel knows")
            master.kill()
            wait_until(lambda: replica.role == "master", "the replica's promotion")

    def test_a_cluster(self) -> None:
        with RedisCluster() as cluster:
            with redis.RedisCluster.from_url(cluster.url, decode_responses=True) as asking:
                for number in range(20):
                    asking.set(f"key {number}", number)
                assert asking.get("key 7") == "7"
                asking.disconnect_connection_pools()  # closing it leaves them open
            sizes = [int(node.execute("DBSIZE")) for node in cluster.nodes]
            assert sum(sizes) == 20
            assert all(sizes)
            pids = [node.pids[0] for node in cluster.nodes]
        assert not any(watcher.look(pid) for pid in pids)

    def test_stop_leaves_nothing(self) -> None:
        server = Redis().start()
        folder, pids = server.folder, server.pids
        server.pause()
        server.stop()
        assert not folder.exists()
        assert not any(watcher.look(pid) for pid in pids)


def known(sentinel: Sentinel) -> str:
    """Return what a Sentinel says of its master."""
    return sentinel.execute("SENTINEL", "MASTER", "main")


def test_a_missing_program_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redis, "places", ())
    monkeypatch.setenv("PATH", "/nowhere")
    server = Redis()
    with pytest.raises(ServerError, match=r"not found\. Install it: apt-get install redis-server"):
        server.start()
    assert not server.running
