"""`lock_for`: a lock named after a model instance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from django.db.models import Model

from .exceptions import InvalidLockError
from .lock import Lock, LockOptions, lock

__all__ = ["lock_for"]


def lock_for(instance: Any, **options: Unpack[LockOptions]) -> Lock:
    """Return a lock named after a saved model instance: app label, model and primary key.

    Takes the options of `lock`. Raises InvalidLockError when it has no primary key yet, or only
    parts of a composite one. With multi-table inheritance the child and its parent have locks of
    their own, although they share a row: take that of one of them everywhere.
    """
    if not isinstance(instance, Model):
        raise InvalidLockError(
            f"lock_for() takes a saved model instance; got {instance!r:.200}. "
            "For a model as a whole or a queryset, use lock() with a name of your own"
        )
    composite = isinstance(instance.pk, tuple)
    parts = instance.pk if composite else (instance.pk,)
    if None in parts:
        raise InvalidLockError("An instance without a primary key cannot name a lock: save it")
    words = [str(part) for part in parts]
    if composite:
        # So that no two keys run into one name: ("a,", "b") and ("a", ",b").
        words = [word.replace("\\", r"\\").replace(",", r"\,") for word in words]
    # The concrete model, so that a proxy or a deferred instance names the same row's lock.
    meta = (instance._meta.concrete_model or type(instance))._meta
    options.setdefault("label", f"{meta.label_lower}:{{pk}}")
    return replace(lock(f"{meta.label_lower}:{','.join(words)}", **options), _literal=True)
