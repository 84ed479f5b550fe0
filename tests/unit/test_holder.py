"""Who takes a lock, for people: host, process, thread, task and place in the code."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import threading
from dataclasses import replace

from django_distlock import Holder, lock
from django_distlock.core.holder import NOWHERE, Caller, place_of, taken_by, this_note
from django_distlock.core.values import HolderInfo

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
        assert HolderInfo.loads(in_thread(lambda: this_note(None))).holder.thread.startswith(
            "Thread-"
        )
        assert holder_of(backend).thread == "MainThread"


def test_code_that_is_all_the_librarys_has_no_place() -> None:
    # As when a thread's target is a bound method of ours.
    seen: list[str] = []
    code = compile("seen.append(this_note(None))", os.path.join(os.sep, "asyncio", "x.py"), "exec")
    scope = {"seen": seen, "this_note": this_note}
    thread = threading.Thread(target=exec, args=(code, scope))
    thread.start()
    thread.join()
    assert "x.py" not in HolderInfo.loads(seen[0]).holder.site


def test_each_call_is_noted_with_its_own_line_thread_and_process(backend: UnitBackend) -> None:
    # The text is kept for the next call of the same place.
    notes = [this_note(None) for _ in range(2)]
    assert notes[0] == notes[1]
    assert this_note(None) != notes[0]
    assert in_thread(lambda: this_note(None)) != in_thread(lambda: this_note(None))


def test_the_note_of_a_place_does_not_keep_metadata() -> None:
    notes = [HolderInfo.loads(this_note(metadata)) for metadata in ({"a": 1}, None, {"a": 2}, {})]
    assert [note.metadata for note in notes] == [{"a": 1}, {}, {"a": 2}, {}]
    assert len({note.holder for note in notes}) == 1


def test_long_names_of_threads_and_tasks_are_cut() -> None:
    # A longer one could be more than a store takes.
    notes: list[str] = []
    thread = threading.Thread(target=lambda: notes.append(this_note(None)), name="t" * 10**6)
    thread.start()
    thread.join()
    assert HolderInfo.loads(notes[0]).holder.thread == "t" * 500

    async def main() -> str:
        return this_note({"a": 1})

    async def named() -> str:
        return await asyncio.create_task(main(), name="n" * 10**6)

    assert HolderInfo.loads(asyncio.run(named())).holder.task == "n" * 500


# -- who is told by a decorator --------------------------------------------------------------------

ADA = Caller(place_of(holder_of), "shop:pay", "ada")


def test_the_next_lock_shows_whom_it_is_told(backend: UnitBackend) -> None:
    with taken_by(ADA), lock("a", using=backend.alias), lock("b", using=backend.alias):
        told, other = holder_of(backend), holder_of(backend, "b")
    line = holder_of.__code__.co_firstlineno
    assert (told.view, told.user, told.site) == ("shop:pay", "ada", f"{__file__}:{line} holder_of")
    assert ", shop:pay, user ada, " in str(told)
    assert (other.view, other.user) == ("", "")
    assert other.site.endswith("test_the_next_lock_shows_whom_it_is_told")


def test_what_was_not_taken_tells_nothing_of_the_next(backend: UnitBackend) -> None:
    with taken_by(ADA):
        pass
    with lock("a", using=backend.alias):
        assert holder_of(backend).view == ""


def test_a_caller_without_a_place_shows_who_calls(backend: UnitBackend) -> None:
    with taken_by(Caller(view="shop:pay")), lock("a", using=backend.alias):
        assert holder_of(backend).site.endswith("test_a_caller_without_a_place_shows_who_calls")


def test_user_and_call_site_are_left_out(backend: UnitBackend) -> None:
    backend.conf = replace(backend.conf, show_caller=False)
    with lock("a", using=backend.alias):
        assert holder_of(backend).site == ""
    with taken_by(ADA), lock("a", using=backend.alias):
        holder = holder_of(backend)
    assert (holder.view, holder.user, holder.site) == ("shop:pay", "", "")
    assert holder.thread == "MainThread"


def test_the_place_of_what_is_called() -> None:
    line = holder_of.__code__.co_firstlineno
    place = (__file__, line, "holder_of")
    decorated = functools.wraps(holder_of)(lambda: None)
    for each in (holder_of, decorated, functools.partial(decorated)):
        assert place_of(each) == place
    assert place_of(asyncio.Queue().get)[2] == "Queue.get"
    assert place_of(len) == place_of(None) == NOWHERE
