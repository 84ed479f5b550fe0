"""The code under test: deposits that read, add and write under a lock."""

from __future__ import annotations

from django.db import transaction

from django_distlock import lock

from .models import Account

told: list[int] = []
"""Whom `deposit` told, after the commit."""


def lock_name(pk: int) -> str:
    """Return the name of the lock of an account."""
    return f"account:{pk}"


def add(pk: int, amount: int) -> int:
    """Read, add and write; safe only under the account's lock."""
    account = Account.objects.get(pk=pk)
    account.balance += amount
    account.save()
    return int(account.balance)


def deposit(pk: int, amount: int) -> int:
    """Deposit with the lock inside the transaction, which keeps it until the commit."""
    with transaction.atomic():
        transaction.on_commit(lambda: told.append(pk))
        with lock(lock_name(pk)):
            return add(pk, amount)


def deposit_outside(pk: int, amount: int) -> int:
    """Deposit with the lock around the transaction."""
    with lock(lock_name(pk)).atomic():
        return add(pk, amount)


@lock("account:{pk}")
def deposit_decorated(pk: int, amount: int) -> int:
    """Deposit in a function that is locked as a whole."""
    return add(pk, amount)


def deposit_and_fail(pk: int, amount: int) -> None:
    """Deposit, and change one's mind."""
    with transaction.atomic():
        deposit(pk, amount)
        raise ValueError("not today")
