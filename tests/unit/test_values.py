"""Values: notes survive whatever stands in the store, and secrets are not shown."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, asdict, fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_distlock.core.values import (
    Claim,
    Grant,
    Holder,
    HolderInfo,
    LockInfo,
    Refusal,
    moment,
    noted,
)

# Two lone surrogates that JSON would join are left out: joined they are the same for people.
WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORD,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORD, inner, max_size=4),
    max_leaves=12,
)
HOLDERS = st.builds(Holder, WORD, st.integers(0, 2**22), WORD, WORD, WORD, WORD, WORD)


@given(HOLDERS, st.dictionaries(WORD, JSON, max_size=4))
def test_a_note_is_ascii_and_read_back_as_it_was(holder: Holder, metadata: dict[str, Any]) -> None:
    text = HolderInfo(holder, metadata).dumps()
    assert text.isascii()
    assert "\0" not in text
    read = HolderInfo.loads(text)
    assert read.holder == holder
    assert read.metadata == metadata


@given(st.text(st.characters(), max_size=20))
def test_a_lone_surrogate_is_written_and_read(word: str) -> None:
    text = HolderInfo(Holder(host=word), {word: word}).dumps()
    assert text.isascii()
    assert isinstance(HolderInfo.loads(text), HolderInfo)


def test_an_empty_note_is_short() -> None:
    assert HolderInfo().dumps() == "{}"
    assert HolderInfo.loads("{}") == HolderInfo.loads("") == HolderInfo.loads(None) == HolderInfo()


def check_read(text: str) -> None:
    """Read a note and assert that what came out has the types that it promises."""
    note = HolderInfo.loads(text)
    holder = note.holder
    assert isinstance(holder.pid, int)
    assert not isinstance(holder.pid, bool)
    for word in (holder.host, holder.thread, holder.task, holder.site, holder.view, holder.user):
        assert isinstance(word, str)
    assert isinstance(note.metadata, dict)
    assert isinstance(str(holder), str)


@given(st.text(st.characters(), max_size=60))
@example("null")
@example("[]")
@example("5")
@example('"x"')
@example("NaN")
@example("{")
@example("\ufeff{}")
@example('{"pid": true, "host": null, "metadata": []}')
@example('{"pid": 1e400, "host": 5, "site": {"a": 1}, "metadata": "x"}')
@example('{"pid": "12"}')
@example('{"pid": ' + "9" * 5000 + "}")
def test_any_text_is_read(text: str) -> None:
    check_read(text)


@given(JSON)
def test_any_json_is_read(value: Any) -> None:
    check_read(json.dumps(value))


FIELDS = ("host", "pid", "thread", "task", "site", "view", "user", "metadata")


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
def test_a_note_with_any_json_in_its_fields_is_read(value: dict[str, Any]) -> None:
    check_read(json.dumps(value))


@pytest.mark.parametrize("depth", [400, 900, 100_000])
@pytest.mark.parametrize("shape", ["{}", '{{"host": {}}}', '{{"metadata": {{"a": {}}}}}'])
def test_json_nested_too_deep_is_read(shape: str, depth: int) -> None:
    # A refusal carries the holder's note: a hostile one must not turn "held" into a crash.
    check_read(shape.format("[" * depth + "]" * depth))


def test_a_holder_reads_well() -> None:
    assert str(Holder()) == "an unknown holder"
    assert str(Holder(pid=7)) == "? pid 7"
    assert str(Holder("web1", 7, "MainThread")) == "web1 pid 7, MainThread"
    assert str(Holder("web1", 7, "MainThread", "Task-1", "a.py:3 f")) == (
        "web1 pid 7, Task-1, a.py:3 f"
    )


def test_the_owner_is_not_shown() -> None:
    # Who knows the owner can release the lock: it must not get into logs.
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    info = LockInfo("n", Holder(), 1, moment, None, owner="secret")
    assert "secret" not in repr(info)
    assert "secret" not in repr(Claim("n", "k", "secret", 30.0, "note"))
    assert info == LockInfo("n", Holder(), 1, moment, None, owner="other")
    assert info.owner == "secret"
    assert "secret" not in repr(asdict(info))
    assert replace(info, name="m").owner == "secret"


def told(text: str) -> LockInfo:
    """Return what a store tells of a lock with a note, which is not read yet."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return noted(text, name="n", fencing_token=1, acquired_at=moment, expires_at=None, owner="me")


@pytest.mark.parametrize("text", [HolderInfo(Holder("web1", 7), {"a": [1]}).dumps(), "", "[", "{}"])
def test_what_a_store_tells_is_read_when_it_is_asked_for(text: str) -> None:
    note = HolderInfo.loads(text)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    plain = LockInfo("n", note.holder, 1, moment, None, metadata=note.metadata, owner="me")
    assert told(text).holder == note.holder
    assert told(text).metadata == note.metadata
    assert told(text) == plain
    assert plain == told(text)
    assert repr(told(text)) == repr(plain)
    for way in (copy.copy, copy.deepcopy, replace, lambda info: pickle.loads(pickle.dumps(info))):
        again = way(told(text))
        assert (again, again.owner) == (plain, "me")
    info = told(text)
    assert info.metadata is info.metadata


def test_what_a_store_tells_has_no_other_attributes() -> None:
    info = told("{}")
    assert not hasattr(info, "nothing")
    with pytest.raises(AttributeError, match="'LockInfo' object has no attribute 'nothing'"):
        info.nothing  # type: ignore[attr-defined] # noqa: B018
    for field in fields(info):
        with pytest.raises(FrozenInstanceError):
            setattr(info, field.name, None)


def test_values_cannot_be_changed() -> None:
    values: list[Any] = [
        Claim("n", "k", "o", 1.0),
        Grant(1, 1.0),
        Refusal(),
        Holder(),
        HolderInfo(),
    ]
    for value in values:
        names = getattr(value, "_fields", None) or [each.name for each in fields(value)]
        for name in names:
            with pytest.raises(AttributeError):  # FrozenInstanceError is one
                setattr(value, name, None)


@pytest.mark.parametrize("microseconds", [10**18, -(10**18), 9 * 10**18])
def test_a_time_that_is_none(microseconds: int) -> None:
    """What a store has may be damaged: it is shown without the time."""
    assert moment(microseconds) is None
    assert moment(1_000_000) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
