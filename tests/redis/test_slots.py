"""Which node of a cluster a command goes to: pure, each step by hand."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import AskError, ConnectionError, MovedError, RedisError

from django_distlock.backends.redis.cluster import Slots

A, B, C = ("a", 1), ("b", 2), ("c", 3)
GET = ("GET", b"{1}")  # slot 9842


def owned_by(address: tuple[str, int]) -> list[Any]:
    """Return what a node answers to CLUSTER SLOTS when all belong to one of them."""
    return [[0, 16383, [address[0].encode(), address[1], b"id"]]]


def loaded(first: list[tuple[str, int]], owner: tuple[str, int], *commands: Any) -> Any:
    """Return a route that has learned the slots, and what it asks then."""
    route = Slots(first).ask(list(commands))
    assert next(route) == (first[0], [("CLUSTER", "SLOTS")])
    return route, route.send([owned_by(owner)])


def end(route: Any, answers: list[Any]) -> Any:
    """Send the last answers, and return what the route returns."""
    with pytest.raises(StopIteration) as stop:
        route.send(answers)
    return stop.value.value


def test_a_command_goes_to_the_owner_of_its_slot() -> None:
    route, asked = loaded([A], B, GET, ("TIME",))
    assert asked == (B, [GET, ("TIME",)])
    assert end(route, [1, 2]) == [1, 2]


def test_the_next_node_tells_the_slots_when_one_is_down() -> None:
    route = Slots([A, B]).ask([GET])
    assert next(route) == (A, [("CLUSTER", "SLOTS")])
    assert route.throw(ConnectionError("down")) == (B, [("CLUSTER", "SLOTS")])
    assert route.send([owned_by(C)]) == (C, [GET])
    assert end(route, [7]) == [7]


def test_the_error_of_the_last_node_is_raised() -> None:
    route = Slots([A]).ask([GET])
    next(route)
    with pytest.raises(ConnectionError, match="down"):
        route.throw(ConnectionError("down"))


def test_a_refusal_to_tell_is_raised() -> None:
    route = Slots([A]).ask([GET])
    next(route)
    with pytest.raises(RedisError, match="NOPERM"):
        route.send([RedisError("NOPERM")])


@pytest.mark.parametrize("told", [[], [[0, 5, [b"a", 1, b"id"]]]])
def test_a_slot_without_an_owner(told: list[Any]) -> None:
    route = Slots([A]).ask([GET])
    next(route)
    with pytest.raises(RedisError, match="CLUSTERDOWN"):
        route.send([told])


def test_a_node_without_a_name_is_the_one_that_was_asked() -> None:
    route = Slots([A]).ask([GET])
    next(route)
    assert route.send([[[0, 16383, [b"", 9, b"id"]]]]) == (("a", 9), [GET])


def test_moved_has_the_slots_learned_anew() -> None:
    route, _ = loaded([A], B, GET)
    assert route.send([MovedError("9842 c:3")]) == (A, [("CLUSTER", "SLOTS")])
    assert route.send([owned_by(C)]) == (C, [GET])
    assert end(route, [5]) == [5]


def test_moved_again_and_again_is_the_answer() -> None:
    route, asked = loaded([A], B, GET)
    for _ in range(4):
        assert asked == (B, [GET])
        assert route.send([MovedError("9842 c:3")])[1] == [("CLUSTER", "SLOTS")]
        asked = route.send([owned_by(B)])
    (answer,) = end(route, [MovedError("9842 c:3")])
    assert isinstance(answer, MovedError)


def test_ask_is_followed_once() -> None:
    route, _ = loaded([A], B, GET)
    assert route.send([AskError("9842 c:3")]) == (("c", 3), [("ASKING",), GET])
    assert end(route, [b"OK", 6]) == [6]


def test_a_node_that_is_gone_is_asked_for_anew_the_next_time() -> None:
    slots = Slots([A])
    route = slots.ask([GET])
    next(route)
    assert route.send([owned_by(B)]) == (B, [GET])
    with pytest.raises(ConnectionError):
        route.throw(ConnectionError("gone"))
    assert next(slots.ask([GET])) == (A, [("CLUSTER", "SLOTS")])


class Forgotten(Slots):
    """Another thread forgets what was learned at the worst moment: as soon as it is kept."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, [] if name == "_owners" else value)


def test_what_another_thread_forgets_meanwhile_is_still_used() -> None:
    route = Forgotten([A]).ask([GET, ("TIME",)])
    assert next(route) == (A, [("CLUSTER", "SLOTS")])
    assert route.send([owned_by(B)]) == (B, [GET, ("TIME",)])
    assert end(route, [1, 2]) == [1, 2]
