"""`LockedCommand` and `locked_command`: of the user's own commands one instance runs."""

from __future__ import annotations

import signal
import threading
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from django_distlock import InvalidLockError, current_lease, lock, locks
from django_distlock.commands import (
    AlreadyRunningError,
    LockedCommand,
    locked_command,
)
from django_distlock.testing import expire_lease, hold_elsewhere
from tests.backends.tools import (
    SERVERS,
    STORES,
    database_alias,
    is_free,
    lock_alias,
    one_value,
    soon,
    unreachable,
)
from tests.commands.tools import end, line, started
from tests.conftest import SERVERS as STARTED
from tests.servers import ByStore
from tests.unit.tools import Down, UnitBackend, opened


def command(base: type[BaseCommand], alias: str, **attributes: Any) -> type[LockedCommand]:
    """Return a LockedCommand as a module would have it."""
    body = {"__module__": "shop.management.commands.import_stock"} | attributes
    body.setdefault("lock_options", {"using": alias})
    made: type[LockedCommand] = type("Command", (LockedCommand, base), body)
    return made


class Import(BaseCommand):
    """A command without a lock."""

    help = "Import the stock."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", default="main")
        parser.add_argument("--fail", action="store_true")

    def handle(self, *args: Any, **options: Any) -> str:
        if options["fail"]:
            raise LookupError
        return f"imported {options['tenant']}"


class Looking(BaseCommand):
    """A command that tells where it was called from, as its lock says."""

    def handle(self, *args: Any, **options: Any) -> str:
        [info] = locks[self.lock_options["using"]].held()  # type: ignore[attr-defined]
        return str(info.holder.site)


def call(made: BaseCommand, *arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(made, *arguments, stdout=out, **options)
    return out.getvalue()


@pytest.fixture
def backend() -> Any:
    with opened() as backend:
        yield backend


def names_of(backend: UnitBackend) -> list[str]:
    return [name for verb, name in backend.calls if verb == "try_acquire"]


# -- under the lock ------------------------------------------------------------------------------


def test_it_is_named_after_the_command(backend: UnitBackend) -> None:
    class Checking(Import):
        def handle(self, *args: Any, **options: Any) -> str:
            lease = current_lease()
            assert lease is self.lease  # type: ignore[attr-defined]
            return f"{lease.name} {backend.holds(lease.name)}"

    made = command(Checking, backend.alias)
    assert call(made()) == "command:import_stock True\n"
    assert not backend.holds("command:import_stock")
    assert made.help == "Import the stock."


def test_a_template_over_the_options(backend: UnitBackend) -> None:
    made = command(Import, backend.alias, lock_name="import:{tenant}:{verbosity}")
    assert call(made(), "--tenant", "x") == "imported x\n"
    assert names_of(backend) == ["import:x:1"]
    wrong = command(Import, backend.alias, lock_name="import:{who}")
    with pytest.raises(InvalidLockError, match="do not fill the template"):
        call(wrong())


def test_a_name_of_its_own_making(backend: UnitBackend) -> None:
    def name(self: Any, options: Any) -> str:
        return f"{options['tenant']}!"

    assert call(command(Import, backend.alias, get_lock_name=name)()) == "imported main\n"
    assert names_of(backend) == ["main!"]


def test_as_a_decorator(backend: UnitBackend) -> None:
    made = locked_command("import:{tenant}", using=backend.alias, ttl=60)(Import)
    assert issubclass(made, Import)
    assert (made.__name__, made.__module__, made.__doc__) == ("Import", __name__, Import.__doc__)
    assert made.help == "Import the stock."
    assert call(made()) == "imported main\n"
    assert names_of(backend) == ["import:main"]
    plain = locked_command(using=backend.alias)(Import)
    assert call(plain()) == "imported main\n"
    assert names_of(backend)[1:] == ["command:test_locked_command"]
    # The class that was decorated is as it was.
    assert call(Import()) == "imported main\n"
    assert len(names_of(backend)) == 2


def test_an_error_is_the_commands_and_frees_the_lock(backend: UnitBackend) -> None:
    with pytest.raises(LookupError):
        call(command(Import, backend.alias)(), "--fail")
    assert not backend.holds("command:import_stock")


# -- held ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [None, 1])
def test_another_instance_runs(backend: UnitBackend, code: int | None) -> None:
    attributes = {} if code is None else {"exit_when_held": code}
    made = command(Import, backend.alias, **attributes)
    refusing = pytest.raises(AlreadyRunningError, match="Held by elsewhere pid")
    with hold_elsewhere("command:import_stock", using=backend.alias), refusing as refused:
        call(made())
    assert refused.value.returncode == (code or 75)
    assert isinstance(refused.value, CommandError)
    assert backend.count("try_acquire") == 2  # ours and the other's: it did not wait


def test_another_instance_runs_and_that_is_all_right(backend: UnitBackend) -> None:
    made = command(Import, backend.alias, exit_when_held=0)
    with hold_elsewhere("command:import_stock", using=backend.alias):
        assert call(made()).startswith("Not run. Held by elsewhere pid ")
        assert call(made(), verbosity=0) == ""


def test_it_waits_when_told_to(backend: UnitBackend) -> None:
    options = {"using": backend.alias, "wait": 20}
    made = command(Import, backend.alias, lock_options=options)
    with hold_elsewhere("command:import_stock", using=backend.alias) as holder:
        freeing = threading.Timer(0.2, holder.release)
        freeing.start()
        assert call(made()) == "imported main\n"
        freeing.join()


# -- lost and down -------------------------------------------------------------------------------


def test_a_lost_lock_is_a_failure(backend: UnitBackend) -> None:
    class Losing(Import):
        def handle(self, *args: Any, **options: Any) -> str:
            expire_lease(self.lease)  # type: ignore[attr-defined]
            return "done"

    with pytest.raises(CommandError, match="The lease is lost: a test said so") as lost:
        call(command(Losing, backend.alias)())
    assert lost.value.returncode == 70


def test_the_store_is_down() -> None:
    failing = pytest.raises(CommandError, match="Not run: Lock store error while acquiring")
    down = database_alias("down", unreachable(STORES[0]))
    with down, lock_alias("down", LOCATION="down"), failing as failed:
        call(command(Import, "down")())
    assert failed.value.returncode == 69


def test_a_store_that_fails_at_the_release_takes_nothing_away(
    backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.before["release"].append(Down())
    assert call(command(Import, backend.alias)()) == "imported main\n"
    assert "After the command: Lock store error while releasing" in caplog.text


KILL = ByStore(postgresql="SELECT pg_terminate_backend({})", mariadb="KILL {}")


@pytest.mark.parametrize("store", SERVERS)
def test_a_connection_that_has_died_in_a_long_command(
    store: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a server ends one that was idle for hours: the lock is freed by a new one."""

    class Long(Import):
        def handle(self, *args: Any, **options: Any) -> str:
            STARTED[store].execute(KILL[store].format(one_value(store, "id")))
            return "done"

    made = command(Long, store, lock_name="{tenant}")
    try:
        assert call(made(), "--tenant", name) == "done\n"
        assert is_free(name, store)
        assert caplog.text == ""
    finally:
        connections[store].close()


# -- processes -----------------------------------------------------------------------------------


def test_two_processes_and_one_that_is_ended() -> None:
    with started("nightly", "x") as first, started("nightly", "y") as other:
        assert line(first).startswith("nightly:x ")
        assert line(other).startswith("nightly:y ")
        with started("nightly", "x") as second:
            code, out, err = end(second)
        assert (code, out) == (75, "")
        assert f"pid {first.pid}, MainThread" in err
        assert end(other, "\n") == (0, "done\n", "")
        # By SIGTERM, as cron's host or systemd does: the lock is free at once.
        first.send_signal(signal.SIGTERM)
        assert end(first) == (128 + signal.SIGTERM, "", "")
        assert soon(lambda: not lock("nightly:x", using=STORES[0]).locked())


def test_a_handler_of_the_programs_own_is_left_alone(backend: UnitBackend) -> None:
    def mine(*_: Any) -> None:
        pass

    class Looking(Import):
        def handle(self, *args: Any, **options: Any) -> str:
            return repr(signal.getsignal(signal.SIGTERM))

    before = signal.signal(signal.SIGTERM, mine)
    try:
        assert call(command(Looking, backend.alias)()) == f"{mine!r}\n"
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert "end" in call(command(Looking, backend.alias)())
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_holder_is_the_command() -> None:
    with opened() as backend:
        for made in (
            command(Looking, backend.alias),
            locked_command("looking", using=backend.alias)(Looking),
        ):
            site = call(made()).strip()
            assert site.startswith(f"{__file__}:")
            assert site.endswith(" Looking.handle")
