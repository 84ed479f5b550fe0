"""`lease.save(instance)`, and what a plain `save()` leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.serializers.base import DeserializedObject
from django.db import IntegrityError, connections, transaction
from django.db.models.signals import post_save

from django_distlock import FenceRejectedError, InvalidLockError
from tests.backends.tools import Undo, undone
from tests.fencing.models import Account, Document, Savings
from tests.fencing.tools import TOKEN, made_up, rivals, statements


def picture(instance: Any) -> dict[str, Any]:
    """Return all that an instance holds."""
    kept = {name: value for name, value in vars(instance).items() if name != "_state"}
    return kept | {"adding": instance._state.adding, "db": instance._state.db}


def in_store(instance: Account) -> Account:
    """Return what the database has of an instance."""
    return Account.objects.using(instance._state.db).get(pk=instance.pk)


@contextmanager
def saved(model: type[Any]) -> Iterator[list[Any]]:
    """Collect the instances that say they were saved."""
    told: list[Any] = []

    def receiver(instance: Any, **kwargs: Any) -> None:
        told.append(instance)

    post_save.connect(receiver, sender=model)
    try:
        yield told
    finally:
        post_save.disconnect(receiver, sender=model)


def test_a_stale_holder_saves_nothing_and_its_instance_stays(
    account: Account, store: str, name: str
) -> None:
    old, new = rivals(name, store)
    mine, theirs = in_store(account), in_store(account)
    mine.balance = 1
    old.save(mine)
    assert mine.fence == old.fencing_token
    theirs.balance = 10
    new.save(theirs)
    mine.balance = 100
    before = picture(mine)
    with saved(Account) as told, pytest.raises(FenceRejectedError) as caught:
        old.save(mine)
    assert told == []
    assert picture(mine) == before
    assert caught.value.pks == (account.pk,)
    assert (in_store(account).balance, in_store(account).fence) == (10, new.fencing_token)


def test_the_same_token_saves_many_times(account: Account, store: str) -> None:
    lease = made_up("a")
    for balance in range(3):
        account.balance = balance
        with saved(Account) as told:
            lease.save(account)
        assert told == [account]
        assert in_store(account).balance == balance


def test_all_of_djangos_saving_goes_on(account: Account, store: str) -> None:
    before = account.updated
    account.balance = 5
    made_up("a").save(account)
    found = in_store(account)
    assert found.updated == account.updated > before
    assert (account.fence, account.fence_mark) == (found.fence, found.fence_mark)


def test_update_fields(account: Account, store: str) -> None:
    account.balance, account.owner = 5, "nobody"
    made_up("a").save(account, update_fields=["balance"])
    found = in_store(account)
    assert (found.balance, found.fence) == (5, TOKEN)
    assert found.owner != "nobody"
    with pytest.raises(FenceRejectedError):
        made_up("a", TOKEN - 1).save(account, update_fields=["balance"])
    with pytest.raises(ValueError, match="do not exist"):
        made_up("a").save(account, update_fields=["nothing"])


def test_a_new_instance_is_inserted_with_the_token(store: str, name: str) -> None:
    made = Document(title=name[:300])
    made_up("a").save(made, using=store)
    found = Document.objects.using(store).get(pk=made.pk)
    assert (found.edition, found.seal) == (made.edition, made.seal) == (TOKEN, made.seal)
    made_up("a").save(found)
    with pytest.raises(FenceRejectedError):
        made_up("a", TOKEN - 1).save(found)


def test_a_new_instance_that_cannot_be_inserted_stays_new(store: str, name: str) -> None:
    Document.objects.using(store).create(title=name[:300])
    second = Document(title=name[:300])
    before = picture(second)
    with pytest.raises(IntegrityError):
        made_up("a").save(second, using=store)
    assert {**picture(second), "db": None} == before
    with pytest.raises(ValueError, match="Cannot force both"):
        made_up("a").save(second, using=store, update_fields=["title"])
    assert (second.edition, second.seal) == (0, "")


def test_a_row_that_was_deleted_is_not_put_back(account: Account, store: str) -> None:
    stale = in_store(account)
    account.delete()
    before = picture(stale)
    with pytest.raises(Account.DoesNotExist, match="not there any more"):
        made_up("a").save(stale)
    assert picture(stale) == before
    assert not Account.objects.using(store).filter(pk=stale.pk).exists()


def test_a_save_that_fails_takes_the_fence_back(store: str, name: str) -> None:
    first = Document.objects.using(store).create(title=name[:300])
    second = Document.objects.using(store).create(title="")
    second.title = first.title
    with pytest.raises(IntegrityError):
        made_up("a").save(second)
    assert Document.objects.using(store).get(pk=second.pk).edition == second.edition == 0
    second.delete()


def test_a_model_with_a_table_of_its_own(store: str, name: str) -> None:
    made = Savings(owner=name)
    made_up("a").save(made, using=store)
    made.rate, made.balance = 3, 7
    made_up("a").save(made)
    found = Savings.objects.using(store).get(pk=made.pk)
    assert (found.rate, found.balance, found.fence) == (3, 7, TOKEN)
    with pytest.raises(FenceRejectedError):
        made_up("a", TOKEN - 1).save(found)


def test_inside_a_transaction_that_is_undone(account: Account, store: str) -> None:
    with undone(), transaction.atomic(using=store):
        account.balance = 5
        made_up("a").save(account)
        raise Undo
    assert (in_store(account).balance, in_store(account).fence) == (0, 0)


def test_a_rejection_leaves_the_transaction_usable(account: Account, store: str) -> None:
    made_up("a").save(account)
    with transaction.atomic(using=store):
        with pytest.raises(FenceRejectedError):
            made_up("a", TOKEN - 1).save(account)
        account.balance = 9
        made_up("a").save(account)
    assert in_store(account).balance == 9


def test_it_is_the_fence_and_then_the_save(account: Account, store: str) -> None:
    with statements(store) as sent:
        made_up("a").save(account)
    assert [word for word in sent if word in ("UPDATE", "SELECT")] == ["UPDATE", "UPDATE"]


def test_the_async_twin(account: Account, store: str) -> None:
    async def main() -> None:
        await made_up("a").asave(account)
        with pytest.raises(FenceRejectedError):
            await made_up("a", TOKEN - 1).asave(account, update_fields=["balance"])

    asyncio.run(main())
    assert in_store(account).fence == TOKEN
    connections.close_all()


@pytest.mark.parametrize("wrong", [None, 7, "row", Account, Account.objects])
def test_what_is_no_instance(wrong: Any) -> None:
    with pytest.raises(InvalidLockError, match=r"an instance of a model, not .*: read it first"):
        made_up("a").save(wrong)


# -- without a lease -------------------------------------------------------------------------------


def test_a_plain_save_does_not_put_an_old_token_back(account: Account, store: str) -> None:
    read_before = in_store(account)
    made_up("a").save(account)
    read_before.balance = 3
    read_before.save()
    assert (in_store(account).balance, in_store(account).fence) == (3, TOKEN)
    read_before.fence = 0
    read_before.save(update_fields=["fence", "fence_mark"])
    with pytest.raises(FenceRejectedError):
        made_up("a", TOKEN - 1).save(in_store(account))


def test_fixtures_carry_the_fence(account: Account, store: str) -> None:
    made_up("a").save(account)
    account.fence, account.fence_mark = TOKEN + 5, "mark"
    DeserializedObject(account).save(using=store)  # as loaddata does
    assert (in_store(account).fence, in_store(account).fence_mark) == (TOKEN + 5, "mark")
