"""Work off the loop: awaited to its end, or never begun."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable

import pytest

from django_distlock.core.clock import STILL
from django_distlock.core.loops import to_the_end, within

from .tools import LIMIT

Work = Callable[[], None]


def on_a_thread(work: Work) -> asyncio.Future[None]:
    """Run work on a thread of the loop's own pool."""
    return asyncio.get_running_loop().run_in_executor(None, work)


def raising() -> str:
    """Fail."""
    raise ValueError("the work's own")


def test_a_limit_is_kept() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with within(0.02):
                await asyncio.sleep(LIMIT)
        async with within(LIMIT):
            await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.parametrize("answered", [True, False])
def test_a_loop_that_stood_still_has_time_for_the_answer(answered: bool) -> None:
    async def main() -> bool:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            reader, writer = await asyncio.open_connection(sock=ours)

            async def ask() -> bool:
                async with within(0.02):
                    return await reader.read(1) == b"x"

            asking = asyncio.ensure_future(ask())
            await asyncio.sleep(0)
            if answered:
                theirs.send(b"x")
            time.sleep(0.02 + STILL + 0.1)
            try:
                return await asking
            finally:
                writer.close()

    if answered:
        assert asyncio.run(main())
    else:
        with pytest.raises(TimeoutError):
            asyncio.run(main())


def test_its_result_and_its_error_are_the_works() -> None:
    assert asyncio.run(to_the_end(lambda: "done", on_a_thread)) == "done"
    with pytest.raises(ValueError, match="the work's own"):
        asyncio.run(to_the_end(raising, on_a_thread))


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fails", [False, True])
def test_a_cancellation_waits_for_work_that_has_begun(times: int, fails: bool) -> None:
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go.wait(LIMIT)
        done.set()
        if fails:
            raising()

    async def main() -> None:
        task = asyncio.create_task(to_the_end(work, on_a_thread))
        assert await asyncio.to_thread(begun.wait, LIMIT)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
            assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    asyncio.run(main())


def test_work_that_is_cancelled_before_it_began_never_does() -> None:
    starts: list[Work] = []

    def later(work: Work) -> asyncio.Future[None]:
        starts.append(work)
        return asyncio.get_running_loop().create_future()

    async def main() -> None:
        task = asyncio.create_task(to_the_end(lambda: pytest.fail("it ran"), later))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        starts[0]()

    asyncio.run(main())


def test_a_thread_that_could_not_begin_is_an_error() -> None:
    def never(work: Work) -> asyncio.Future[None]:
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(RuntimeError("cannot start new thread"))
        return failed

    with pytest.raises(RuntimeError, match="cannot start new thread"):
        asyncio.run(to_the_end(lambda: None, never))


def test_a_thread_whose_start_was_cancelled_is_a_cancellation() -> None:
    def never(work: Work) -> asyncio.Future[None]:
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        return cancelled

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await to_the_end(lambda: None, never)

    asyncio.run(main())


def test_work_that_ends_after_its_loop_is_told_to_nobody() -> None:
    begun, go = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def work() -> None:
        begun.set()
        assert go.wait(LIMIT)

    def start(run: Work) -> asyncio.Future[None]:
        threads.append(threading.Thread(target=run))
        threads[0].start()
        return asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    coroutine = to_the_end(work, start)
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.wait_for(asyncio.sleep(0.01), LIMIT))
    assert begun.wait(LIMIT)
    loop.close()
    go.set()
    threads[0].join(LIMIT)
    assert not threads[0].is_alive()
    coroutine.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
