"""A Redis as a value, which runs the scripts of the redis backend: the very text that is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from lupa.lua51 import LuaRuntime, lua_type

__all__ = ["Key", "Keys", "Redis"]

Key: TypeAlias = "tuple[Any, float]"
"""What is stored, a text or a tuple of texts, and until when in ms; infinite without an end."""
Keys: TypeAlias = "tuple[tuple[str, Key], ...]"

FOREVER = float("inf")


class Answered(NamedTuple):
    """What a script came to: its answer, and the keys after it."""

    answer: Any
    keys: Keys


class Redis:
    """Runs commands and scripts on keys; a script that was run before costs nothing."""

    def __init__(self) -> None:
        self._lua = LuaRuntime(encoding="latin-1", unpack_returned_tuples=True)
        globals_ = self._lua.globals()
        globals_.redis = self._lua.table_from(
            {"call": self._call, "pcall": self._call, "error_reply": _raise}
        )
        self._null = self._lua.eval("newproxy()")
        globals_.cjson = self._lua.table_from(
            {"encode": self._encode, "decode": self._decode, "null": self._null}
        )
        self._scripts: dict[str, Callable[..., Any]] = {}
        self._known: dict[Any, Answered] = {}
        self._keys: dict[str, Key] = {}
        self._now = 0

    def run(
        self, script: str, keys: Sequence[str], args: Sequence[str], stored: Keys, now: int
    ) -> Answered:
        """Run a script at the time ``now``, in ms."""
        asked = (script, tuple(keys), tuple(args), stored, now)
        if asked not in self._known:
            self._begin(stored, now)
            answer = self._script(script)(self._table(keys), self._table(args))
            self._known[asked] = Answered(self._plain(answer), self._end())
        return self._known[asked]

    def command(self, words: Sequence[Any], stored: Keys, now: int) -> Answered:
        """Carry out one command."""
        self._begin(stored, now)
        return Answered(self._call(*words), self._end())

    def _begin(self, stored: Keys, now: int) -> None:
        self._keys, self._now = {key: held for key, held in stored if held[1] > now}, now

    def _end(self) -> Keys:
        return tuple(sorted(self._keys.items()))

    def _script(self, text: str) -> Callable[..., Any]:
        if text not in self._scripts:
            self._scripts[text] = self._lua.eval(f"function(KEYS, ARGV)\n{text}\nend")
        return self._scripts[text]

    def _table(self, words: Sequence[str]) -> Any:
        return self._lua.table_from(list(words))

    # -- values, as Lua and Redis turn them into each other ----------------------------------------

    def _plain(self, value: Any) -> Any:
        if lua_type(value) == "table":
            return tuple(self._plain(value[number + 1]) for number in range(len(value)))
        return int(value) if isinstance(value, float) else value

    def _encode(self, value: Any) -> str:
        return json.dumps(self._raw(value), separators=(",", ":"))

    def _raw(self, value: Any) -> Any:
        if lua_type(value) == "userdata":  # null
            return None
        if lua_type(value) == "table":
            return [self._raw(value[number + 1]) for number in range(len(value))]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def _decode(self, text: str) -> Any:
        return self._cooked(json.loads(text))

    def _cooked(self, value: Any) -> Any:
        if value is None:
            return self._null
        if isinstance(value, list):
            return self._lua.table_from([self._cooked(each) for each in value])
        return value

    # -- commands ----------------------------------------------------------------------------------

    def _call(self, verb: str, *words: Any) -> Any:
        texts = [_text(word) for word in words]
        done: Any = _COMMANDS[verb](self, *texts)
        if isinstance(done, list):
            return self._lua.table_from(done)
        return done

    def _got(self, key: str) -> Any:
        held = self._keys.get(key)
        return None if held is None else held[0]

    def _list(self, key: str) -> list[str]:
        return list(self._got(key) or ())

    def _put(self, key: str, value: Sequence[str]) -> None:
        until = self._keys[key][1] if key in self._keys else FOREVER
        if value:
            self._keys[key] = tuple(value), until
        else:
            self._keys.pop(key, None)

    def get(self, key: str) -> Any:
        return self._got(key) or False

    def set(self, key: str, value: str, px: str, life: str) -> Any:
        assert px == "PX"
        self._keys[key] = value, self._now + int(life)
        return self._lua.table_from({"ok": "OK"})

    def setrange(self, key: str, start: str, new: str) -> int:
        old, until = self._keys[key]
        begin = int(start)
        self._keys[key] = old[:begin] + new + old[begin + len(new) :], until
        return len(old)

    def delete(self, *keys: str) -> int:
        return sum(self._keys.pop(key, None) is not None for key in keys)

    def exists(self, *keys: str) -> int:
        return sum(key in self._keys for key in keys)

    def pttl(self, key: str) -> int:
        until = self._keys[key][1] if key in self._keys else 0
        return -2 if key not in self._keys else -1 if until == FOREVER else int(until) - self._now

    def pexpire(self, key: str, life: str) -> int:
        if key in self._keys:
            self._keys[key] = self._keys[key][0], self._now + int(life)
        return int(key in self._keys)

    def sadd(self, key: str, member: str) -> int:
        self._put(key, sorted({*self._list(key), member}))
        return 1

    def srem(self, key: str, member: str) -> int:
        self._put(key, [each for each in self._list(key) if each != member])
        return 1

    def rpush(self, key: str, value: str) -> int:
        self._put(key, [*self._list(key), value])
        return len(self._list(key))

    def lpop(self, key: str) -> Any:
        found = self._list(key)
        self._put(key, found[1:])
        return found[0] if found else False

    def lindex(self, key: str, number: str) -> Any:
        found = self._list(key)
        return found[int(number)] if len(found) > int(number) else False

    def llen(self, key: str) -> int:
        return len(self._list(key))

    def lrem(self, key: str, count: str, value: str) -> int:
        assert count == "0"
        found = self._list(key)
        self._put(key, [each for each in found if each != value])
        return found.count(value)

    def time(self) -> list[str]:
        return [str(self._now // 1000), str(self._now % 1000 * 1000)]


_NAMES = "get set setrange exists pttl pexpire sadd srem rpush lpop lindex llen lrem time"
_COMMANDS: Mapping[str, Callable[..., Any]] = {
    "DEL": Redis.delete,
    **{name.upper(): getattr(Redis, name) for name in _NAMES.split(" ")},
}


def _text(word: Any) -> str:
    return format(word, ".17g") if isinstance(word, float) else str(word)


def _raise(text: str) -> None:
    raise AssertionError(text)
