"""The name of a task's lock that is made of the task and its arguments."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Sequence

from django.core.serializers.json import DjangoJSONEncoder

from ...exceptions import InvalidLockError

__all__ = ["key_maker"]

LONGEST = 200  # characters; what is longer is shown by its digest


def key_maker(
    task: str, unique_on: Sequence[str] | None, signature: inspect.Signature
) -> Callable[..., str]:
    """Return what makes the name of a call: of the arguments ``unique_on``, or of all.

    Equal for arguments that are equal as JSON, in which they travel: a tuple and a list are.
    """
    if isinstance(unique_on, str):
        raise InvalidLockError(f"unique_on are several arguments, such as [{unique_on!r}]")
    known = signature.parameters.values()
    taken = [each.name for each in known if each.kind is not each.VAR_KEYWORD]
    if len(taken) == len(known):  # else any argument may come
        for name in unique_on or ():
            if name not in taken:
                raise InvalidLockError(
                    f"unique_on names {name!r}, which is no argument of the task. "
                    f"Arguments: {', '.join(taken) or 'none'}"
                )

    def key(**arguments: object) -> str:
        chosen = {
            name: arguments.get(name) for name in (arguments if unique_on is None else unique_on)
        }
        try:
            text = json.dumps(chosen, cls=DjangoJSONEncoder, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise InvalidLockError(
                f"The arguments of {task} make no name: {error}. Name some of them by unique_on, "
                "or give a name such as 'report:{tenant.pk}'"
            ) from error
        name = f"{task}:{text}"
        if len(name) > LONGEST:
            name = f"{task}:{hashlib.sha256(text.encode()).hexdigest()}"
        return name

    key.__name__ = key.__qualname__ = task
    return key
