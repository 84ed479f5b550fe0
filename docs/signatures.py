"""What the reference says of a function or class: its signature and its docstring."""

from __future__ import annotations

import inspect
import re
from textwrap import fill
from typing import Any

from django.utils.module_loading import import_string

__all__ = ["docstring", "entry"]


def docstring(thing: object) -> str:
    """Return a docstring as Markdown."""
    text = inspect.getdoc(thing)
    if not text:
        raise SystemExit(f"{thing!r} has no docstring, and is in the documentation")
    # The double backticks of reStructuredText mean the same here, but look odd in the source.
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def entry(path: str) -> str:
    """Return signature and docstring of a function, a class or ``module.Class.member``.

    A member has a heading of its own, so that it can be linked to.
    """
    owner_path, _, name = path.rpartition(".")
    owner = None
    # A class stands in a module; before the first dot there is one.
    found = import_string(f"django_distlock.{owner_path}") if "." in owner_path else None
    if isinstance(found, type):
        owner = found
        thing = inspect.getattr_static(owner, name)
        name = f"{owner.__name__}.{name}"
    else:
        thing = import_string(f"django_distlock.{path}")
    heading = "" if owner is None else f"#### `{name}`\n\n"
    if isinstance(thing, property):
        returned = inspect.signature(thing.fget).return_annotation if thing.fget else "Any"
        return f"{heading}```text\n{name}: {returned}\n```\n\n{docstring(thing)}"
    prefix = ""
    if isinstance(thing, classmethod | staticmethod):
        thing = thing.__func__
    if inspect.iscoroutinefunction(thing):
        prefix = "await "
    elif inspect.isasyncgenfunction(thing):
        prefix = "async for ... in "
    shown = _signature(prefix + name, thing, owner)
    return f"{heading}```text\n{shown}\n```\n\n{docstring(thing)}"


def _signature(name: str, thing: Any, owner: type | None) -> str:
    signature = inspect.signature(thing)
    parameters = list(signature.parameters.values())
    if owner is not None:
        parameters = parameters[1:]
    words = []
    starred = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            words.append("*")
            starred = True
        words.append(_parameter(parameter))
    end = ")"
    if not inspect.isclass(thing):
        end += f" -> {_concrete(signature.return_annotation, owner)}"
    line = f"{name}({', '.join(words)}{end}"
    if len(line) <= 88:
        return line
    return f"{name}(\n" + fill(", ".join(words), 84, break_long_words=False).replace(
        "\n", "\n    "
    ).join(["    ", f"\n{end}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    stars = "**" if parameter.kind is parameter.VAR_KEYWORD else stars
    if parameter.default is parameter.empty:
        return stars + parameter.name
    default = parameter.default
    shown = "dict()" if "factory" in repr(default) else repr(default)
    return f"{parameter.name}={shown}"


def _concrete(annotation: Any, owner: type | None) -> str:
    shown = str(annotation)
    got = {"Lock": "Lease", "LockGroup": "tuple[Lease, ...]"}.get(getattr(owner, "__name__", ""))
    return re.sub(r"\bT\b", got, shown) if got else shown
