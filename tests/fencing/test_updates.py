"""`fenced(lease)`: what a token may write, and what it may not."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.db.models import F

from django_distlock import FenceRejectedError, InvalidLockError, Lease, locks
from tests.backends.tools import SERVERS, STORES
from tests.fencing.models import Account, Document, Entry, Proxy, Savings
from tests.fencing.tools import TOKEN, made_up, rivals, statements


def add(account: Account, lease: Lease, amount: int) -> int:
    """Add to an account, under a lease."""
    rows = Account.objects.using(account._state.db).fenced(lease)
    return rows.filter(pk=account.pk).update(balance=F("balance") + amount)


# Of one database with the rows.
BESIDE = [(store, f"row-{store}") for store in SERVERS] + [
    (store, f"version-{store}") for store in STORES
]


@pytest.fixture(params=["table", "locmem"])
def using(request: pytest.FixtureRequest, store: str) -> str:
    """An alias of DISTLOCKS: in the database of the rows, or somewhere else."""
    return store if request.param == "table" else "locmem"


def test_a_newer_holder_shuts_the_older_out(account: Account, using: str, name: str) -> None:
    old, new = rivals(name, using)
    assert add(account, old, 1) == 1
    assert add(account, new, 10) == 1
    with pytest.raises(FenceRejectedError) as caught:
        add(account, old, 100)
    account.refresh_from_db()
    assert account.balance == 11
    assert account.fence == new.fencing_token
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.pks == (account.pk,)
    assert (error.name, error.alias) == (name, using)
    for word in ("fencing_tests.Account", str(new.fencing_token), str(old.fencing_token), "again"):
        assert word in str(error)


@pytest.mark.parametrize(("store", "using"), BESIDE, indirect=["store"])
def test_leases_of_the_other_backends(
    account: Account, using: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the older one had been stopped between its last look at its connection and its writes.
    monkeypatch.setattr(locks[using], "sure_until", lambda claim, **_: None)
    old, new = rivals(name, using)
    assert [add(account, lease, 1) for lease in (old, new)] == [1, 1]
    with pytest.raises(FenceRejectedError):
        add(account, old, 100)
    with pytest.raises(FenceRejectedError):
        old.save(account)
    account.refresh_from_db()
    assert (account.balance, account.fence) == (2, new.fencing_token)
    new.release()


def test_one_token_writes_many_times(account: Account, using: str, name: str) -> None:
    _, new = rivals(name, using)
    assert [add(account, new, 1) for _ in range(5)] == [1] * 5
    account.refresh_from_db()
    assert account.balance == 5


def test_one_row_by_its_key_is_one_statement(account: Account, store: str) -> None:
    lease = made_up("a")
    with statements(store) as sent:
        add(account, lease, 1)
    assert sent == ["UPDATE"]


def test_a_row_that_is_not_there_is_no_rejection(account: Account, store: str) -> None:
    account.delete()
    with statements(store) as sent:
        rows = Account.objects.using(store).fenced(made_up("a"))
        assert rows.filter(pk=account.pk or 0).update(balance=1) == 0
    assert [word for word in sent if word in ("UPDATE", "SELECT")] == ["UPDATE", "SELECT"]
    assert rows.filter(pk__in=[]).update(balance=1) == 0


@pytest.mark.parametrize(
    ("lease", "said"),
    [
        ({"token": TOKEN - 1}, "a newer holder (token 1000, ours is 999)"),
        ({"token": 0}, "a newer holder (token 1000, ours is 0)"),
        ({"token": -1}, "a newer holder (token 1000, ours is -1)"),
        ({"owner": "another"}, "another holder (token 1000, ours is 1000)"),
        ({"name": "b", "token": TOKEN + 1}, "under another lock"),
        ({"name": "b"}, "under another lock"),
        ({"name": "A"}, "under another lock"),
    ],
)
def test_what_is_refused(account: Account, lease: dict[str, Any], said: str) -> None:
    assert add(account, made_up("a"), 1) == 1
    with pytest.raises(FenceRejectedError, match="Nothing was written") as caught:
        add(account, made_up(**({"name": "a"} | lease)), 10)
    assert said in str(caught.value)
    account.refresh_from_db()
    assert (account.balance, account.fence) == (1, TOKEN)


@pytest.mark.parametrize("lease", [{}, {"token": TOKEN + 1}, {"token": 2**53, "owner": "another"}])
def test_what_passes(account: Account, lease: dict[str, Any]) -> None:
    assert add(account, made_up("a"), 1) == 1
    assert add(account, made_up("a", **lease), 10) == 1


def test_a_row_is_handed_to_another_lock_by_hand(account: Account, store: str) -> None:
    add(account, made_up("a"), 1)
    with pytest.raises(FenceRejectedError, match=r"update\(fence=0, fence_mark=''\)"):
        add(account, made_up("b", token=1), 1)
    Account.objects.using(store).filter(pk=account.pk).update(fence=0, fence_mark="")
    assert add(account, made_up("b", token=1), 1) == 1


def test_a_token_without_a_mark_is_older_only_when_lower(account: Account, store: str) -> None:
    """Rows that were fenced by hand before, in a column of their own."""
    rows = Account.objects.using(store).filter(pk=account.pk)
    rows.update(fence=TOKEN)
    with pytest.raises(FenceRejectedError, match="another holder"):
        add(account, made_up("a"), 1)
    assert add(account, made_up("a", TOKEN + 1), 1) == 1


def test_of_several_rows_all_are_written_or_none(store: str, name: str) -> None:
    rows = Account.objects.using(store).filter(owner=name)
    for _ in range(3):
        Account.objects.using(store).create(owner=name)
    first, second, third = rows.order_by("pk")
    add(second, made_up("a", TOKEN + 1), 1)
    with transaction.atomic(using=store):
        with pytest.raises(FenceRejectedError) as caught:
            rows.fenced(made_up("a")).update(balance=100)
        assert caught.value.pks == (second.pk,)
        assert rows.count() == 3  # the surrounding transaction goes on
    assert list(rows.order_by("pk").values_list("balance", flat=True)) == [0, 1, 0]
    assert rows.fenced(made_up("a")).exclude(pk=second.pk).update(balance=5) == 2
    newest = made_up("a", TOKEN + 2)
    with statements(store) as sent:
        assert rows.fenced(newest).update(balance=7) == 3
    assert [word for word in sent if word in ("UPDATE", "SELECT")] == ["UPDATE", "SELECT"]
    assert set(rows.values_list("fence", flat=True)) == {TOKEN + 2}
    assert {first.pk, third.pk} < set(rows.values_list("pk", flat=True))


def test_an_update_that_takes_rows_out_of_its_own_filter(account: Account, store: str) -> None:
    rows = Account.objects.using(store).filter(owner=account.owner, balance=0)
    assert rows.fenced(made_up("a")).update(balance=1) == 1
    assert rows.fenced(made_up("a")).update(balance=1) == 0


def test_an_error_names_some_rows_and_carries_a_hundred(account: Account, store: str) -> None:
    Entry.objects.using(store).bulk_create(Entry(account=account) for _ in range(600))
    plain = Entry.objects.using(store).filter(account=account)
    joined = Entry.objects.using(store).filter(account__owner=account.owner)
    assert plain.fenced(made_up("a", TOKEN + 1)).update(amount=1) == 600
    for rows in (plain, joined):
        with pytest.raises(FenceRejectedError) as caught:
            rows.fenced(made_up("a")).update(amount=2)
        assert len(caught.value.pks) == 100
        assert len(str(caught.value)) < 400
    assert joined.fenced(made_up("a", TOKEN + 2)).update(amount=3) == 600


def test_a_filter_that_joins(account: Account, store: str) -> None:
    entry = Entry.objects.using(store).create(account=account)
    rows = Entry.objects.using(store).filter(account__owner=account.owner)
    assert rows.fenced(made_up("a")).update(amount=1) == 1
    with pytest.raises(FenceRejectedError):
        rows.fenced(made_up("a", TOKEN - 1)).update(amount=2)
    assert rows.fenced(made_up("a")).filter(pk=entry.pk).update(amount=3) == 1
    entry.refresh_from_db()
    assert (entry.amount, entry.fence) == (3, TOKEN)


@pytest.mark.parametrize("model", [Savings, Proxy])
def test_inherited_fences(model: type[Account], store: str, name: str) -> None:
    made = model(owner=name)
    made.save(using=store)
    rows = model.objects.using(store).filter(owner=name)
    assert rows.fenced(made_up("a")).filter(pk=made.pk).update(balance=1) == 1
    with pytest.raises(FenceRejectedError):
        rows.fenced(made_up("a", TOKEN - 1)).update(balance=2)
    with pytest.raises(FenceRejectedError):  # the parent's rows are the same ones
        add(Account.objects.using(store).get(pk=made.pk), made_up("a", TOKEN - 1), 1)
    if model is Savings:
        assert Savings.objects.using(store).fenced(made_up("a")).filter(owner=name).update(rate=2)
    made.refresh_from_db()
    assert (made.balance, made.fence) == (1, TOKEN)


def test_fields_and_querysets_of_the_projects_own(store: str, name: str) -> None:
    made = Document.objects.using(store).fenced(made_up("a")).create(title=name[:300])
    drafts = Document.objects.using(store).drafts().filter(title=name[:300])
    with pytest.raises(FenceRejectedError):
        drafts.fenced(made_up("a", TOKEN - 1)).update(text="late")
    assert drafts.fenced(made_up("a")).update(text="written") == 1
    made.refresh_from_db()
    assert (made.text, made.edition) == ("written", TOKEN)


# -- creating and deleting -------------------------------------------------------------------------


def test_what_is_created_carries_the_token(store: str, name: str) -> None:
    made = Account.objects.using(store).fenced(made_up("a")).create(owner=name)
    assert made.fence == TOKEN
    with pytest.raises(FenceRejectedError):
        add(made, made_up("a", TOKEN - 1), 1)


def test_a_second_one_is_kept_out_by_a_constraint(store: str, name: str) -> None:
    Document.objects.using(store).fenced(made_up("a")).create(title=name[:300])
    with pytest.raises(IntegrityError):
        Document.objects.using(store).fenced(made_up("a", TOKEN - 1)).create(title=name[:300])


def test_get_or_create(store: str, name: str) -> None:
    rows = Document.objects.using(store).fenced(made_up("a"))
    made, created = rows.get_or_create({"text": "first"}, title=name[:300])
    assert created
    assert (made.text, made.edition) == ("first", TOKEN)
    late = Document.objects.using(store).fenced(made_up("a", TOKEN - 1))
    found, created = late.get_or_create({"text": "late"}, title=name[:300])
    assert (found.pk, found.text, created) == (made.pk, "first", False)


def test_update_or_create(store: str, name: str) -> None:
    title = name[:300]
    rows = Document.objects.using(store).fenced(made_up("a"))
    made, created = rows.update_or_create({"text": "1"}, {"text": "new"}, title=title)
    assert (made.text, made.edition, created) == ("new", TOKEN, True)
    newer = Document.objects.using(store).fenced(made_up("a", TOKEN + 1))
    found, created = newer.update_or_create({"text": "2"}, title=title)
    assert (found.text, found.edition, created) == ("2", TOKEN + 1, False)
    with pytest.raises(FenceRejectedError):
        rows.update_or_create({"text": "late"}, title=title)
    found.refresh_from_db()
    assert (found.text, found.edition) == ("2", TOKEN + 1)


def test_delete(account: Account, store: str) -> None:
    add(account, made_up("a"), 1)
    rows = Account.objects.using(store).filter(pk=account.pk)
    with pytest.raises(FenceRejectedError):
        rows.fenced(made_up("a", TOKEN - 1)).delete()
    assert rows.exists()
    assert rows.fenced(made_up("a")).delete() == (1, {"fencing_tests.Account": 1})
    assert rows.fenced(made_up("a", TOKEN - 1)).delete()[0] == 0
    assert not rows.exists()


def test_the_fence_is_not_written_by_hand(account: Account, store: str) -> None:
    rows = Account.objects.using(store).fenced(made_up("a")).filter(pk=account.pk)
    for write in (
        lambda: rows.update(fence=1),
        lambda: rows.create(fence_mark=""),
        lambda: rows.get_or_create({"fence": 1}, pk=0),
        lambda: rows.update_or_create({"balance": 1}, {"fence": 1}, pk=0),
    ):
        with pytest.raises(InvalidLockError, match="is written by the fence itself"):
            write()


# -- async -----------------------------------------------------------------------------------------


def test_the_async_twins(store: str, name: str) -> None:
    title = name[:300]

    async def main() -> None:
        rows = Document.objects.using(store).fenced(made_up("a"))
        late = Document.objects.using(store).fenced(made_up("a", TOKEN - 1))
        made = await rows.acreate(title=title)
        assert await rows.filter(pk=made.pk).aupdate(text="a") == 1
        with pytest.raises(FenceRejectedError):
            await late.filter(pk=made.pk).aupdate(text="late")
        assert await late.aget_or_create(title=title) == (made, False)
        assert await rows.aupdate_or_create({"text": "b"}, title=title) == (made, False)
        with pytest.raises(FenceRejectedError):
            await late.aupdate_or_create({"text": "late"}, title=title)
        with pytest.raises(FenceRejectedError):
            await late.filter(pk=made.pk).adelete()
        assert (await rows.filter(pk=made.pk).adelete())[0] == 1

    asyncio.run(main())
    assert not connections[store].in_atomic_block
