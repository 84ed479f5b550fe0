"""Which leases may write: living ones of a backend with tokens, and no others."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from django.db import transaction

from django_distlock import (
    FenceRejectedError,
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockNotHeldError,
    UnsupportedOperationError,
    lock,
    locks,
    requires_fence,
)
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.testing import expire_lease
from tests.backends.tools import lock_alias
from tests.fencing.models import Account
from tests.fencing.tools import TOKEN, just_before, made_up, rivals, somebody, statements


class Tokenless(LocMemBackend):
    """A backend that promises no order of its tokens."""

    supports_fencing: ClassVar[bool] = False


@requires_fence
def checked(account: Account, lease: Lease | None = None) -> int:
    """Do something under a lease."""
    assert lease is not None
    return account.balance


WRITES: dict[str, Callable[[Account, Any], object]] = {
    "update": lambda row, lease: (
        Account.objects.using(row._state.db).fenced(lease).filter(pk=row.pk).update(balance=1)
    ),
    "create": lambda row, lease: (
        Account.objects.using(row._state.db).fenced(lease).create(owner="somebody")
    ),
    "get_or_create": lambda row, lease: (
        Account.objects.using(row._state.db).fenced(lease).get_or_create(pk=row.pk)
    ),
    "update_or_create": lambda row, lease: (
        Account.objects.using(row._state.db)
        .fenced(lease)
        .update_or_create({"balance": 1}, pk=row.pk)
    ),
    "delete": lambda row, lease: Account.objects.using(row._state.db).fenced(lease).delete(),
    "save": lambda row, lease: lease.save(row),
    "requires_fence": lambda row, lease: checked(row, lease=lease),
}


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest) -> Callable[[Account, Any], object]:
    """Each way of writing under a lease."""
    return WRITES[request.param]


def ways(*names: str) -> pytest.MarkDecorator:
    """Run a test for these ways only."""
    return pytest.mark.parametrize("write", [WRITES[name] for name in names], ids=names)


@pytest.fixture
def nothing_sent(store: str) -> Iterator[None]:
    """Assert that the test sends nothing to the database."""
    with statements(store) as sent:
        yield
    assert sent == []


@ways("update", "create", "get_or_create", "update_or_create", "delete", "requires_fence")
@pytest.mark.parametrize("wrong", [None, 7, "lease", object()])
def test_what_is_no_lease(
    account: Account, write: Callable[..., object], wrong: Any, nothing_sent: None
) -> None:
    with pytest.raises(InvalidLockError, match="was the lock obtained"):
        write(account, wrong)


def test_a_backend_without_tokens(
    account: Account, write: Callable[..., object], nothing_sent: None
) -> None:
    with (
        lock_alias("tokenless", BACKEND=f"{__name__}.Tokenless"),
        lock("a", using="tokenless") as lease,
        pytest.raises(UnsupportedOperationError, match="no fencing tokens"),
    ):
        write(account, lease)


def test_a_lease_that_is_known_to_be_lost(
    account: Account, write: Callable[..., object], nothing_sent: None
) -> None:
    lease = somebody("lost", "locmem")
    expire_lease(lease)
    with pytest.raises(LeaseLostError):
        write(account, lease)


def test_a_lease_whose_time_is_up(
    account: Account, write: Callable[..., object], nothing_sent: None
) -> None:
    lease = lock("up", using="locmem", ttl=0.5, renew=False).acquire()
    time.sleep(0.55)
    with pytest.raises(LeaseLostError):
        write(account, lease)


def test_a_lease_that_was_released_or_given_away(
    account: Account, write: Callable[..., object], nothing_sent: None
) -> None:
    released, detached = somebody("released", "locmem"), somebody("detached", "locmem")
    released.release()
    handle = detached.detach()
    for lease in (released, detached):
        with pytest.raises(LockNotHeldError):
            write(account, lease)
    Lease.attach(handle).release()


@ways("update", "update_or_create", "delete", "save")  # the others write no row of somebody else
def test_the_fence_holds_although_the_check_passes(
    account: Account, store: str, name: str, write: Callable[..., object]
) -> None:
    """The next holder writes between our check and our statement."""
    old, new = rivals(name, store)
    rows = Account.objects.using(store).filter(pk=account.pk)
    word = "UPDATE" if write in (WRITES["update"], WRITES["save"]) else "SELECT"

    def next_holder() -> None:
        rows.fenced(new).update(balance=77)

    with just_before(store, word, next_holder), pytest.raises(FenceRejectedError):
        write(account, old)
    # On our connection, so it may have been undone with our transaction.
    next_holder()
    with pytest.raises(FenceRejectedError):
        write(account, old)
    assert rows.get().balance == 77


def test_an_attached_lease_has_the_same_fence(account: Account, store: str, name: str) -> None:
    rows = Account.objects.using(store).filter(pk=account.pk)
    lease = somebody(name, store)
    rows.fenced(lease).update(balance=1)
    handle = lease.detach()
    with Lease.attach(handle) as attached:
        assert rows.fenced(attached).update(balance=2) == 1
        newer = made_up(name, attached.fencing_token + 1)
    assert rows.fenced(newer).update(balance=3) == 1, "the same name is the same lock"


def test_nested_leases_have_the_same_fence(account: Account, store: str, name: str) -> None:
    rows = Account.objects.using(store).filter(pk=account.pk)
    with lock(name, using=store, reentrant=True) as outer:
        rows.fenced(outer).update(balance=1)
        with lock(name, using=store, reentrant=True) as inner:
            assert rows.fenced(inner).update(balance=2) == 1
        assert rows.fenced(outer).update(balance=3) == 1


def test_one_holder_after_the_other(account: Account, store: str, name: str) -> None:
    for using in (store, "dummy"):
        for balance in range(3):
            account.refresh_from_db()
            with lock(f"{name} {using}", using=using) as lease:
                account.balance = balance
                if balance == 0:  # handed from the first lock to the second
                    rows = Account.objects.using(store).filter(pk=account.pk)
                    rows.update(fence=0, fence_mark="")
                lease.save(account)
            assert account.fence == lease.fencing_token


def test_inside_a_transaction(account: Account, store: str, name: str) -> None:
    rows = Account.objects.using(store).filter(pk=account.pk)
    with transaction.atomic(using=store), lock(name, using=store) as lease:
        rows.fenced(lease).update(balance=1)
        lease.save(account)
    with lock(name, using=store).atomic(using=store) as lease:
        assert rows.fenced(lease).update(balance=2) == 1
    assert rows.get().balance == 2


def test_a_lock_with_another_prefix_is_another_lock(account: Account, store: str) -> None:
    rows = Account.objects.using(store).filter(pk=account.pk)
    rows.fenced(made_up("a")).update(balance=1)
    backend = "django_distlock.backends.locmem.LocMemBackend"
    with lock_alias("other", BACKEND=backend, PREFIX="other"), lock("a", using="other") as lease:
        assert lease.fencing_token > TOKEN
        with pytest.raises(FenceRejectedError, match="another lock"):
            rows.fenced(lease).update(balance=2)


# -- @requires_fence -------------------------------------------------------------------------------


def test_the_function_is_called_with_what_was_given(account: Account) -> None:
    lease = made_up("a")
    assert checked(account, lease) == checked(account, lease=lease) == account.balance
    with pytest.raises(InvalidLockError, match="not None"):
        checked(account)
    with pytest.raises(TypeError, match="missing"):
        checked()  # type: ignore[call-arg]
    assert checked.__name__ == "checked"


def test_methods_and_other_names() -> None:
    class Worker:
        @requires_fence(lease="under")
        def work(self, *, under: Lease) -> int:
            return under.fencing_token

    assert Worker().work(under=made_up("a")) == TOKEN
    with pytest.raises(InvalidLockError, match="'under'"):
        Worker().work(under=None)  # type: ignore[arg-type]


def test_coroutines() -> None:
    begun = []

    @requires_fence
    async def work(lease: Lease) -> int:
        begun.append(lease)
        return lease.fencing_token

    async def main() -> None:
        assert await work(made_up("a")) == TOKEN
        lost = somebody("lost", "locmem")
        expire_lease(lost)
        with pytest.raises(LeaseLostError):
            await work(lost)

    asyncio.run(main())
    assert len(begun) == 1


def test_functions_that_cannot_be_decorated() -> None:
    with pytest.raises(InvalidLockError, match="no parameter 'lease'"):
        requires_fence(len)

    def generator(lease: Lease) -> Iterator[int]:
        yield lease.fencing_token

    async def agenerator(lease: Lease) -> Any:
        yield lease.fencing_token

    for function in (generator, agenerator):
        with pytest.raises(InvalidLockError, match="is a generator"):
            requires_fence(function)


def test_a_stolen_lock_is_noticed_once_it_is_known(name: str) -> None:
    lease = somebody(name, "locmem")
    locks["locmem"].force_release(name)

    @requires_fence
    def work(lease: Lease) -> None:
        contextvars.copy_context()

    work(lease)  # not known yet: only the fence in the rows helps now
    with pytest.raises(LeaseLostError):
        lease.renew()
    with pytest.raises(LeaseLostError):
        work(lease)
