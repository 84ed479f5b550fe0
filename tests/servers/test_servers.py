"""The private servers start, hang, die and end as the tests that use them need it."""

from __future__ import annotations

import json
import os
import pwd
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import DATABASES, Consul, DatabaseServer, ServerError, chosen, databases, missing, watcher
from .base import free_port

HERE = Path(__file__).parent
KINDS = {store: kind for store, kind in DATABASES.items() if store != "mysql"}
CHOSEN = [name for name in chosen() if name in KINDS]

# Starts a server in a process of its own, tells about it, and waits to be told to go on.
PROGRAM = """
import json, os, sys
from servers import DATABASES
server = DATABASES[sys.argv[1]]().start()
answer = server.execute("SELECT 6 * 7")
facts = {"uid": os.getuid(), "answer": answer, "pids": server.pids, "folder": str(server.folder)}
print(json.dumps(facts), flush=True)
sys.stdin.readline()
"""


def test_a_port_is_given_once() -> None:
    # The processes of a run are seeded alike, and some ask for a port long before they listen.
    program = "import random; from tests.servers.base import free_port; random.seed(22)"
    command = [sys.executable, "-c", f"{program}; print(free_port())"]
    random.seed(22)
    ports = {free_port()}
    random.seed(22)
    ports.add(free_port())
    ports.add(int(subprocess.check_output(command, cwd=HERE.parent.parent)))
    assert len(ports) == 3


def test_a_server_may_open_more_files_than_users_may_at_first(tmp_path: Path) -> None:
    # Consul does not start with the 1,024 that many systems give.
    words = [watcher.__file__, str(os.getpid()), "-1", "-1", "15", str(tmp_path)]
    server = ["sh", "-c", "ulimit -Sn > limit"]
    few = ["sh", "-c", 'ulimit -Sn 1024 && exec "$@"', "sh"]
    subprocess.run([*few, sys.executable, "-I", "-S", *words, *server], check=True, timeout=30)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert (tmp_path / "limit").read_text().strip() == str(most)


def connect(server: DatabaseServer, name: str = "") -> Any:
    """Connect with the driver that Django uses; the answer is limited to 30 s."""
    where = server.settings(name)
    host, port, user = where["HOST"], int(where["PORT"]), where["USER"]
    if server.name == "postgresql":
        import psycopg

        return psycopg.connect(
            host=host, port=port, user=user, dbname=name or "postgres", autocommit=True
        )
    import MySQLdb

    return MySQLdb.connect(
        host=host,
        port=port,
        user=user,
        password=where["PASSWORD"],
        database=name,
        read_timeout=30,
        autocommit=True,
        **where["OPTIONS"],
    )


def ask(server: DatabaseServer, sql: str, name: str = "") -> list[tuple[Any, ...]]:
    """Run one statement on a connection of its own and return the rows."""
    connection = connect(server, name)
    try:
        cursor = connection.cursor()
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def eventually(condition: Callable[[], bool], limit: float = 15.0) -> bool:
    """Wait until a condition holds; return whether it did within the limit."""
    deadline = time.monotonic() + limit
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def gone(pids: list[int], folder: Path) -> bool:
    """Tell whether all the processes and the folder are gone."""
    return not folder.exists() and not any(watcher.look(pid) for pid in pids)


def python_for(uid: int) -> str:
    """Return a Python that a user may run; ours may be in a closed home folder."""
    for name in (sys.executable, "/usr/bin/python3"):
        check = [name, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            if subprocess.run(check, user=uid, cwd="/", stderr=subprocess.PIPE).returncode == 0:
                return name
        except OSError:
            continue
    pytest.fail(f"no Python 3.11 or newer that user {uid} may run: apt-get install python3")


@pytest.fixture(scope="module", params=CHOSEN)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Return a running server, shared by the tests of its kind."""
    with DATABASES[request.param]() as server:
        yield server


@pytest.fixture
def copy() -> Iterator[Path]:
    """Return an open folder with a copy of this package."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(HERE, Path(folder, "servers"), ignore=shutil.ignore_patterns("__pycache__"))
        yield Path(folder)


def launch(copy: Path, store: str, **options: Any) -> subprocess.Popen[str]:
    """Start ``PROGRAM`` on the copy of this package."""
    return subprocess.Popen(
        [options.pop("python", sys.executable), "-c", PROGRAM, store],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=copy,
        **options,
    )


class TestServers:
    """Every chosen database server; not collected when none is chosen."""

    __test__ = bool(CHOSEN)

    def test_settings_connect(self, server: DatabaseServer) -> None:
        settings = server.create_database("connects")
        json.dumps(settings)  # may be handed to other processes
        assert settings["HOST"] == "127.0.0.1"
        assert ask(server, "SELECT 6 * 7", "connects") == [(42,)]

    def test_text_is_unicode(self, server: DatabaseServer) -> None:
        server.create_database("words")
        ask(server, "CREATE TABLE w (word VARCHAR(20))", "words")
        ask(server, "INSERT INTO w VALUES ('naïve 🔒')", "words")
        assert ask(server, "SELECT word FROM w", "words") == [("naïve 🔒",)]

    def test_starting_a_running_server_changes_nothing(self, server: DatabaseServer) -> None:
        pid = server.pids[0]
        assert server.start().pids[0] == pid

    @pytest.mark.parametrize("how", ["restart", "kill"])
    def test_data_and_port_outlive(self, server: DatabaseServer, how: str) -> None:
        server.create_database(f"kept_{how}")
        ask(server, "CREATE TABLE t (n INT)", f"kept_{how}")
        ask(server, "INSERT INTO t VALUES (7)", f"kept_{how}")
        pids, port = server.pids, server.port
        if how == "kill":
            server.kill()
            assert not server.running
            assert server.pids == []
            with pytest.raises(Exception, match=r"(?i)connect"):
                connect(server)
            server.start()
        else:
            server.restart()
        assert server.running
        assert server.port == port
        assert not set(pids) & set(server.pids)
        assert ask(server, "SELECT n FROM t", f"kept_{how}") == [(7,)]

    def test_a_paused_server_hangs_and_goes_on(self, server: DatabaseServer) -> None:
        connection = connect(server)
        answers: list[Any] = []

        def query() -> None:
            cursor = connection.cursor()
            cursor.execute("SELECT 1")
            answers.append(cursor.fetchone())

        thread = threading.Thread(target=query)
        server.pause()
        try:
            thread.start()
            thread.join(0.5)
            assert thread.is_alive()
            assert server.running
        finally:
            server.resume()
            thread.join(10)
            connection.close()
        assert answers == [(1,)]

    def test_two_at_once(self, server: DatabaseServer) -> None:
        with type(server)() as other:
            assert other.port != server.port
            assert other.folder != server.folder
            other.create_database("only_here")
            assert ask(other, "SELECT 1", "only_here") == [(1,)]
            with pytest.raises(Exception, match="only_here"):
                connect(server, "only_here")

    @pytest.mark.parametrize("state", ["running", "paused", "killed", "in use"])
    def test_stop_leaves_nothing(self, server: DatabaseServer, state: str) -> None:
        other = type(server)().start()
        folder, pids = other.folder, other.pids
        connection = connect(other) if state == "in use" else None
        if state == "paused":
            other.pause()
        if state == "killed":
            other.kill()
        other.stop()
        other.stop()  # twice is fine
        assert gone(pids, folder)
        assert not other.running
        assert other.pids == []
        if connection is not None:
            connection.close()

    def test_outlives_the_thread_that_started_it(self, server: DatabaseServer) -> None:
        with type(server)() as other:
            other.kill()
            thread = threading.Thread(target=other.start)
            thread.start()
            thread.join()
            time.sleep(0.2)
            assert ask(other, "SELECT 1") == [(1,)]

    def test_start_after_stop_is_a_new_server(self, server: DatabaseServer) -> None:
        other = type(server)()
        with other:
            other.create_database("first_life")
        with other, pytest.raises(Exception, match="first_life"):
            connect(other, "first_life")

    def test_durable_waits_for_the_disk(self, server: DatabaseServer) -> None:
        sql = "SHOW fsync"
        if server.name == "mariadb":
            sql = "SELECT @@innodb_flush_log_at_trx_commit"
        with type(server)(durable=True) as durable:
            assert (server.execute(sql), durable.execute(sql)) in {("off", "on"), ("2", "1")}

    def test_options_are_passed_on(self, server: DatabaseServer) -> None:
        postgresql = server.name == "postgresql"
        options = ["-c", "max_connections=33"] if postgresql else ["--max-connections=33"]
        with type(server)(options=options) as other:
            sql = "SHOW max_connections" if postgresql else "SELECT @@max_connections"
            assert other.execute(sql) == "33"

    def test_a_wrong_option_is_told_with_the_log(self, server: DatabaseServer) -> None:
        other = type(server)(options=["--no-such-option=1"])
        with pytest.raises(ServerError, match=r"(?s)ended while starting.*no.such.option"):
            other.start()
        assert not other.running

    def test_a_port_taken_by_another_is_given_up(
        self, server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        free = iter([server.port, server.port])
        module = sys.modules["tests.servers.base"]
        original: Callable[[], int] = module.free_port
        monkeypatch.setattr(module, "free_port", lambda: next(free, 0) or original())
        with type(server)() as other:
            assert other.port != server.port
            assert server.running

    def test_a_long_temporary_folder(
        self, server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            deep = Path(folder, "d" * 120)
            deep.mkdir()
            Path(folder).chmod(0o755)
            monkeypatch.setattr(tempfile, "tempdir", str(deep))
            with type(server)() as other:
                assert other.folder.is_relative_to(deep)
                assert ask(other, "SELECT 1") == [(1,)]

    @pytest.mark.parametrize("paused", [False, True])
    def test_a_killed_test_process_leaves_nothing(
        self, server: DatabaseServer, copy: Path, paused: bool
    ) -> None:
        with launch(copy, server.name) as process:
            assert process.stdout is not None
            facts = json.loads(process.stdout.readline())
            if paused:
                watcher.freeze(facts["pids"][0])
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert eventually(lambda: gone(facts["pids"], Path(facts["folder"])))

    def test_a_forgotten_server_ends_with_the_interpreter(
        self, server: DatabaseServer, copy: Path
    ) -> None:
        with launch(copy, server.name) as process:
            assert process.stdout is not None
            facts = json.loads(process.stdout.readline())
            process.communicate("go on\n", timeout=30)
        assert process.returncode == 0
        assert gone(facts["pids"], Path(facts["folder"]))

    def test_runs_without_being_root(self, server: DatabaseServer, copy: Path) -> None:
        options: dict[str, Any] = {}
        uid = os.getuid()
        if uid == 0:
            nobody = pwd.getpwnam("nobody")
            uid = nobody.pw_uid
            options = {"user": uid, "group": nobody.pw_gid, "extra_groups": []}
            options["python"] = python_for(uid)
        with launch(copy, server.name, **options) as process:
            assert process.stdout is not None
            facts = json.loads(process.stdout.readline())
            owner = Path(f"/proc/{facts['pids'][0]}").stat().st_uid
            process.communicate("go on\n", timeout=30)
        assert facts["answer"] == "42"
        assert facts["uid"] == owner == uid
        assert gone(facts["pids"], Path(facts["folder"]))


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_missing_program_names_the_package(
    kind: type[DatabaseServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "places", ())
    monkeypatch.setenv("PATH", "/nowhere")
    server = kind()
    with pytest.raises(ServerError, match=f"not found. Install it: apt-get install {kind.package}"):
        server.start()
    assert not server.running


def test_chosen_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTLOCK_TEST_STORES", " mariadb  sqlite ")
    assert chosen() == ("sqlite", "mariadb")
    monkeypatch.setenv("DISTLOCK_TEST_STORES", "redis sqlite")
    assert (chosen(), databases()) == (("sqlite", "redis"), ("sqlite",))
    monkeypatch.delenv("DISTLOCK_TEST_STORES")
    assert set(chosen()) >= {"sqlite", "postgresql", "mariadb", "redis"}
    monkeypatch.setenv("DISTLOCK_TEST_STORES", "sqlite oracle")
    with pytest.raises(ValueError, match="oracle"):
        chosen()


def test_a_consul_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTLOCK_TEST_STORES", "consul sqlite")
    monkeypatch.setattr(Consul, "installed", lambda: False)
    assert (chosen(), list(missing())) == (("sqlite",), ["consul"])
    monkeypatch.setattr(Consul, "installed", lambda: True)
    assert (chosen(), missing()) == (("sqlite", "consul"), {})
