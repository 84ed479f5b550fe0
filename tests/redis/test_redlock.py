"""What redlock takes as LOCATION, and the demo on it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from django_distlock import InvalidLockBackendError, lock
from django_distlock.backends.redlock import RedlockBackend
from django_distlock.backends.redlock.rounds import Answers
from django_distlock.conf import parse
from django_distlock.core.values import Claim, CleanPolicy, HolderInfo
from tests.claims import claim, granted, opening, started
from tests.redlock import NODES
from tests.servers import chosen
from tests.shop import environment_of, program
from tests.unit.test_redlock_algorithm import Model

ROOT = Path(__file__).resolve().parents[2]
BACKEND = "django_distlock.backends.redlock.RedlockBackend"
ONE, TWO, THREE, FOUR = (f"redis://{host}.example:6379/0" for host in "abcd")


def use(backend: RedlockBackend) -> None:
    """Do with locks what can be done."""
    waiting = lock("a", using=backend.alias, wait=20)
    with lock("a", using=backend.alias, ttl=20) as lease:
        thread = started(lambda: waiting.acquire().release())  # type: ignore[union-attr]
        time.sleep(0.3)
        lease.renew()
        assert [info.name for info in backend.held()] == ["a"]
        lease.downgrade()
        note = HolderInfo(shared=True).dumps()
        beside = claim(backend, "a")._replace(shared=True, note=note)
        granted(backend, beside)
        assert len(backend.holders("a")) == 2
        assert backend.release(beside)
    thread.join(20)

    async def asynchronously() -> None:
        other = lock("a", using=backend.alias, wait=0.3)
        async with lock("a", using=backend.alias, ttl=20):
            assert await asyncio.create_task(other.aacquire()) is None

    asyncio.run(asynchronously())
    assert lock("a", using=backend.alias, wait=5).acquire() is not None
    assert backend.force_release("a") is not None
    backend.clean_batch(CleanPolicy(older_than=0.0), "")
    assert backend.check_deploy() == []


def made(location: Any, **options: Any) -> RedlockBackend:
    """Return a backend that nobody asks."""
    conf = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options}
    return RedlockBackend("own", parse("own", conf))


def test_far_nodes_draw_the_same_token() -> None:
    """What is proposed is near the nodes' clocks when it gets there, however long that takes."""
    backend = made([ONE, TWO, THREE])
    nodes = [Model(0) for _ in range(3)]
    ahead, way = (0, 2_000, 5_000), 0.03  # us, s: of the nodes' clocks, and to them or back

    def acquire(mine: Claim) -> tuple[list[str], Any]:
        """Return which questions it took, and the grant."""
        operation, asked = backend._acquire(mine, 1.0), []
        question = next(operation)
        while True:
            asked.append(question.script.name)
            time.sleep(way)
            answers: Answers = [None] * 3
            for number in range(3) if question.nodes is None else question.nodes:
                nodes[number].clock = round(time.monotonic() * 1e6) + ahead[number]
                answers[number] = [nodes[number].run(question.script.name, question.calls[0])]
            time.sleep(way)
            try:
                question = operation.send(answers)
            except StopIteration as stop:
                return asked, stop.value

    tokens = []
    for number in range(5):
        mine = Claim("x", "0" * 64, f"owner {number}", 30.0)
        asked, grant = acquire(mine)
        assert asked == (["acquire"] if number else ["acquire", "raise"])
        tokens.append(grant.fencing_token)
        for node in nodes:
            assert node.run("release", ("", "", mine.owner, "")) == 1
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize(
    ("location", "said"),
    [
        (None, "is a list of URLs"),
        ("redis://a", "is a list of URLs"),
        ([], "is a list of URLs"),
        ([ONE], "names 1 servers: a quorum needs three, five"),
        ([ONE, TWO], "names 2 servers"),
        ([ONE, TWO, THREE, FOUR], "names 4 servers"),
        ([ONE, TWO, 3], "not by int"),
        ([ONE, TWO, "nowhere"], "CACHES has no alias 'nowhere'"),
        ([ONE, TWO, ONE], "names one server twice"),
        ([ONE, TWO, "redis://a.example/3"], "names one server twice"),
        ([ONE, TWO, "redis://user:secret@A.example:6379"], "names one server twice"),
        ([ONE, "redis://localhost", "redis://127.0.0.1:6379"], "names one server twice"),
        ([ONE, "unix:///run/r.sock", "unix:///run/r.sock?db=1"], "names one server twice"),
    ],
)
def test_what_is_refused(location: Any, said: str) -> None:
    with pytest.raises(InvalidLockBackendError, match=re.escape(said)) as raised:
        made(location)
    assert "DISTLOCKS['own']['LOCATION']" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_what_hosts_put_into_urls_is_ignored_with_a_warning() -> None:
    backend = made([ONE, TWO, f"{THREE}?socket_timeout=1"])
    assert [each.id for each in backend.check()] == ["distlock.W015"]


def test_what_is_taken() -> None:
    for location in ([ONE, TWO, THREE], (ONE, TWO, "unix:///run/r.sock"), [ONE, TWO, "rediss://c"]):
        assert len(made(location).cluster) == 3


def test_a_wrong_option_is_told() -> None:
    for wrong in (0, -1, True, "1", None):
        with pytest.raises(InvalidLockBackendError, match="NODE_TIMEOUT"):
            made([ONE, TWO, THREE], NODE_TIMEOUT=wrong)


@pytest.mark.parametrize(
    ("options", "ttl", "limit"),
    [
        ({}, 1.0, 0.5),
        ({}, 30.0, 1.5),
        ({}, 3600.0, 5.0),
        ({"COMMAND_TIMEOUT": 10.0}, 100.0, 5.0),
        ({"COMMAND_TIMEOUT": 0.3}, 100.0, 0.3),
        ({"NODE_TIMEOUT": 0.1}, 3600.0, 0.1),
        ({"NODE_TIMEOUT": 9.0}, 1.0, 5.0),
    ],
)
def test_a_round_may_take_a_share_of_the_ttl(
    options: dict[str, float], ttl: float, limit: float
) -> None:
    assert made([ONE, TWO, THREE], **options)._limit(ttl) == limit


def test_no_password_is_shown() -> None:
    backend = made([ONE, TWO, "redis://user:secret@c.example"])
    assert "secret" not in " ".join(backend.cluster.shown)


class TestOnServers:
    """Not collected unless redis is chosen."""

    __test__ = "redis" in chosen()

    def test_servers_that_are_one(self) -> None:
        """Tell in production what an address does not tell."""
        urls = [node.url() for node in NODES[:3]]
        assert made(urls).check_deploy() == []
        twice = made([*urls[:2], f"unix://{NODES[0].socket}"])
        (error,) = twice.check_deploy()
        assert error.id == "distlock.E025"
        assert urls[0] in error.msg

    def test_servers_that_are_not_fit(self) -> None:
        NODES[0].execute("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
        try:
            urls = [node.url() for node in NODES[:2]]
            found = made([*urls, "redis://localhost:1"]).check_deploy()
        finally:
            NODES[0].execute("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
        assert [each.id for each in found] == ["distlock.W012", "distlock.W013"]

    def test_a_user_with_few_rights(self) -> None:
        """As the how-to has it: for holders, waiters, who looks and who cleans."""
        page = (ROOT / "docs/howto/use-redlock.md").read_text()
        words = page[page.index("ACL SETUSER") :].partition("\n")[0].split()
        for node in NODES[:3]:
            node.execute(*words)
        try:
            urls = [node.url(user="locker", password="secret") for node in NODES[:3]]
            settings = {"BACKEND": BACKEND, "LOCATION": urls}
            with opening(RedlockBackend, lambda alias: settings) as opened:
                use(opened())
        finally:
            for node in NODES[:3]:
                node.execute("ACL", "DELUSER", "locker")

    def test_it_runs(self, tmp_path: Path) -> None:
        environment = environment_of(
            tmp_path, SHOP_REDLOCK=" ".join(node.url() for node in NODES[:3])
        )
        words = ["demo", "--using", "redlock", "--workers", "3", "--stock", "20", "--json"]
        program(environment, "manage.py", "migrate", "-v0")
        found = json.loads(program(environment, "manage.py", *words))
        (run,) = [run for run in found["runs"] if run["alias"] == "redlock"]
        assert (run["technique"], run["orders"], run["oversold"]) == ("redlock", 20, 0)
        (kill,) = found["kills"]
        assert (kill["early"], kill["oversold"], kill["lost"]) == (0, 0, 0)
