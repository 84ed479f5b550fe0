"""Answers as servers send them, in pieces and at once, and what is none."""

from __future__ import annotations

import pytest

from django_distlock.http import Answer, Endpoint, HttpError, Request
from django_distlock.http.framing import HEADS, Framing

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-A:  b \r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"


def framing(request: Request | None = None) -> Framing:
    """Return a connection that has sent a request."""
    made = Framing(Endpoint("h", 80), ())
    made.pack(request or Request("GET", "/"))
    return made


def read(data: bytes, piece: int, request: Request | None = None) -> tuple[Answer, bool]:
    """Read an answer in pieces, and tell whether the connection can be used again."""
    made = framing(request)
    pieces = [data[start : start + piece] for start in range(0, len(data), piece)]
    for each in (*pieces, b""):
        made.feed(each)
        if made.is_whole:
            return made.answer(), made.reusable
    raise AssertionError("it has no end")


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_plain_answer(piece: int) -> None:
    answer, reusable = read(PLAIN, piece)
    headers = {"content-type": "text/plain", "x-a": "b", "content-length": "5"}
    assert answer == Answer(200, headers, b"hello")
    assert reusable


@pytest.mark.parametrize(
    ("data", "status", "body", "reusable"),
    [
        (CHUNKED, 200, b"ab", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", 200, b"a", False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", 200, b"a", False),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil it closes", 200, b"until it closes", False),
        (b"HTTP/1.1 200 OK\r\nX: a\r\nX: b\r\nContent-Length: 1\r\n\r\na", 200, b"a", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, 200, b"hello", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("piece", [1, 1000])
def test_any_other_answer(
    data: bytes, status: int, body: bytes, reusable: bool, piece: int
) -> None:
    answer, again = read(data, piece)
    assert (answer.status, answer.body, again) == (status, body, reusable)


def test_an_answer_without_a_body_whatever_its_length() -> None:
    head = PLAIN.partition(b"hello")[0]
    answer, reusable = read(head, 1000, Request("HEAD", "/"))
    assert (answer.body, answer.headers["content-length"], reusable) == (b"", "5", True)


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        PLAIN[:-1],
        PLAIN[:20],
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 140_000,
        b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    with pytest.raises(HttpError):
        read(data, 70_000)


def test_more_than_was_asked_for_is_not_reused() -> None:
    answer, reusable = read(PLAIN + PLAIN, 1000)
    assert answer.body == b"hello"
    assert not reusable


def test_heads_are_kept_but_not_for_ever() -> None:
    made = Framing(Endpoint("h", 80), (("A", "1"),))
    for number in range(2 * HEADS + 5):
        for _ in range(2):
            packed = made.pack(Request("PUT", f"/{number}", b"body", (("B", "2"),)))
            lines = packed.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            assert lines[0] == f"PUT /{number} HTTP/1.1"
            assert [line.lower() for line in lines[1:]] == [
                *("host: h:80", "a: 1", "b: 2", "content-length: 4")
            ]
            assert packed.endswith(b"\r\n\r\nbody")
    assert len(made._heads) <= HEADS


@pytest.mark.parametrize(
    "request_", [Request("GET", "/a b"), Request("GET", "/", headers=(("A", "b\r\nC: d"),))]
)
def test_what_cannot_be_sent_is_refused_each_time(request_: Request) -> None:
    made = framing()
    for _ in range(2):
        with pytest.raises(HttpError, match="cannot be sent"):
            made.pack(request_)
