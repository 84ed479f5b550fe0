"""Many who wait: bounded connections, streams, and those who give up."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from django_distlock.http import (
    Endpoint,
    Full,
    Http,
    HttpError,
)
from tests.http.server import HTTPServer
from tests.http.tools import LIMIT, Open, get
from tests.servers.base import free_port


def test_only_so_many_wait(server: HTTPServer, opened: Open) -> None:
    http = opened(server.endpoint, waiting=1)
    waiting = threading.Thread(target=http.ask, args=(get("/hang", wait=5), LIMIT))
    waiting.start()
    while not server.paths:
        time.sleep(0.005)
    with pytest.raises(Full):
        http.ask(get("/x", wait=5), LIMIT)
    with pytest.raises(Full):
        http.open(get("/lines"), LIMIT)
    assert http.ask(get(), LIMIT).status == 200
    server.go_on.set()
    waiting.join()
    assert http.ask(get("/x", wait=5), LIMIT).status == 200


def test_lines(server: HTTPServer, opened: Open) -> None:
    http = opened(server.endpoint)
    stream = http.open(get("/lines"), LIMIT)
    assert stream.head.status == 200
    assert [stream.line(LIMIT) for _ in range(3)] == [b"one", b"two", b"three"]
    assert stream.line(0.02) is None
    server.go_on.set()
    assert stream.line(LIMIT) == b"last"
    with pytest.raises(HttpError, match="ended"):
        stream.line(LIMIT)
    stream.close()
    stream.close()
    with pytest.raises(HttpError):
        stream.line(LIMIT)


def test_lines_on_a_loop(server: HTTPServer, opened: Open) -> None:
    async def main() -> None:
        http = opened(server.endpoint)
        stream = await http.aopen(get("/lines"), LIMIT)
        assert [await stream.aline(LIMIT) for _ in range(3)] == [b"one", b"two", b"three"]
        assert await stream.aline(0.02) is None
        server.go_on.set()
        assert await stream.aline(LIMIT) == b"last"
        with pytest.raises(HttpError, match="ended"):
            await stream.aline(LIMIT)
        stream.close()
        stream.close()
        with pytest.raises(HttpError):
            await stream.aline(LIMIT)

    asyncio.run(main())


def test_a_stream_that_cannot_begin(server: HTTPServer, opened: Open) -> None:
    server.status = 503
    down = Endpoint("127.0.0.1", free_port())

    async def main(http: Http) -> None:
        await http.aopen(get("/lines"), LIMIT)

    for endpoints in ([down], [server.endpoint, down]):
        http = opened(*endpoints, waiting=1)
        for _ in range(2):  # its place was given back
            with pytest.raises(HttpError, match=r"refused|call failed|503") as caught:
                http.open(get("/lines"), LIMIT)
            assert not isinstance(caught.value, Full)
            with pytest.raises(HttpError, match=r"refused|call failed|503"):
                asyncio.run(main(http))


def test_a_cancelled_request_leaves_no_half_read_connection(
    server: HTTPServer, opened: Open
) -> None:
    async def main() -> None:
        http = opened(server.endpoint)
        await http.aask(get(), LIMIT)
        task = asyncio.create_task(http.aask(get("/hang"), LIMIT))
        while "/hang" not in server.paths:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.go_on.set()
        assert (await http.aask(get("/next"), LIMIT)).json() == {"path": "/next"}

    asyncio.run(main())


def test_tasks_share_a_few_connections(server: HTTPServer, opened: Open) -> None:
    async def main() -> None:
        http = opened(server.endpoint)
        await asyncio.gather(*(http.aask(get(), LIMIT) for _ in range(120)))
        assert server.accepted <= 50

    asyncio.run(main())


def _inodes() -> set[str]:
    """Return the sockets that this process has open."""
    links = Path("/proc/self/fd")
    found = set()
    for link in links.iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def test_a_loop_that_ends_closes_its_connections(server: HTTPServer, opened: Open) -> None:
    http = opened(server.endpoint)
    before = len(_inodes())

    async def main() -> None:
        await http.aask(get(), LIMIT)

    for _ in range(5):
        asyncio.run(main())
    assert server.accepted == 5
    # The server's own ends of these connections may take a moment.
    for _ in range(1000):
        if len(_inodes()) <= before:
            break
        time.sleep(0.01)
    assert len(_inodes()) <= before


def test_closing_from_another_thread(server: HTTPServer, opened: Open) -> None:
    async def main(http: Http) -> None:
        await http.aask(get(), LIMIT)
        await asyncio.to_thread(http.close_idle)
        await asyncio.sleep(0.05)
        await http.aask(get(), LIMIT)
        await asyncio.to_thread(http.close)
        await asyncio.sleep(0.05)

    http = opened(server.endpoint)
    http.ask(get(), LIMIT)
    asyncio.run(main(http))
    assert server.accepted == 3


# Of which Python warns where another thread runs; from 3.15 on as an error of the fork itself.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(server: HTTPServer, opened: Open) -> None:
    http = opened(server.endpoint)
    http.ask(get(), LIMIT)
    child = os.fork()
    if child == 0:
        ok = False
        try:
            ok = http.ask(get("/child"), LIMIT).status == 200
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    http.ask(get("/parent"), LIMIT)
    assert server.accepted == 2
    assert server.paths == ["/", "/child", "/parent"]
