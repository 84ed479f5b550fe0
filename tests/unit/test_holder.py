"""Who takes a lock, for people: host, process, thread, task and place in the code."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

from django_distlock import Holder, lock
from django_distlock.holder import this_note
from django_distlock.values import Note

from .tools import UnitBackend, in_thread


def holder_of(backend: UnitBackend, name: str = "a") -> Holder:
    """Return the holder that the store shows."""
    info = backend.inspect(name)
    assert info is not None
    return info.holder


def test_a_block_shows_its_place(backend: UnitBackend) -> None:
    with lock("a", using=backend.alias):
        holder = holder_of(backend)
    assert (holder.host, holder.pid) == (socket.gethostname(), os.getpid())
    assert (holder.thread, holder.task) == (threading.current_thread().name, "")
    file, _, rest = holder.site.partition(":")
    assert file == __file__
    line, _, function = rest.partition(" ")
    assert int(line) > 1
    assert function.endswith("test_a_block_shows_its_place")


def test_a_task_shows_its_name_and_place(backend: UnitBackend) -> None:
    async def work() -> Holder:
        async with lock("a", using=backend.alias):
            return holder_of(backend)

    async def main() -> Holder:
        return await asyncio.create_task(work(), name="nightly report")

    holder = asyncio.run(main())
    assert holder.task == "nightly report"
    assert __file__ in holder.site
    assert holder.site.endswith("work")
    assert "nightly report" in str(holder)


def test_a_decorated_function_shows_its_caller(backend: UnitBackend) -> None:
    @lock("a", using=backend.alias)
    def work() -> Holder:
        return holder_of(backend)

    assert "test_a_decorated_function_shows_its_caller" in work().site


def test_another_thread_shows_its_name(backend: UnitBackend) -> None:
    with lock("a", using=backend.alias):
        assert Note.loads(in_thread(lambda: this_note(None))).holder.thread.startswith("Thread-")
        assert holder_of(backend).thread == "MainThread"


def test_code_that_is_all_the_librarys_has_no_place() -> None:
    # As when a thread's target is a bound method of ours.
    seen: list[str] = []
    code = compile("seen.append(this_note(None))", os.path.join(os.sep, "asyncio", "x.py"), "exec")
    scope = {"seen": seen, "this_note": this_note}
    thread = threading.Thread(target=exec, args=(code, scope))
    thread.start()
    thread.join()
    assert "x.py" not in Note.loads(seen[0]).holder.site


def test_each_call_is_noted_with_its_own_line_thread_and_process(backend: UnitBackend) -> None:
    # The text is kept for the next call of the same place.
    notes = [this_note(None) for _ in range(2)]
    assert notes[0] == notes[1]
    assert this_note(None) != notes[0]
    assert in_thread(lambda: this_note(None)) != in_thread(lambda: this_note(None))


def test_the_note_of_a_place_does_not_keep_metadata() -> None:
    notes = [Note.loads(this_note(metadata)) for metadata in ({"a": 1}, None, {"a": 2}, {})]
    assert [note.metadata for note in notes] == [{"a": 1}, {}, {"a": 2}, {}]
    assert len({note.holder for note in notes}) == 1
