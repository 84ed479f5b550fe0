"""Requests over kept connections, to one server and to several, from threads and event loops."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from django_distlock.exceptions import InvalidLockBackendError
from django_distlock.http import (
    Answer,
    Endpoint,
    HttpError,
    Request,
    parse_endpoint,
    require_httptools,
)
from tests.http.server import HTTPServer, serving
from tests.http.tools import LIMIT, Ask, Open, get
from tests.servers.base import free_port


def test_an_answer(server: HTTPServer, ask: Ask, opened: Open) -> None:
    http = opened(server.endpoint, headers={"X-Token": "secret"})
    sent = Request("PUT", "/a?b=c", b"body", headers=(("X-More", "1"),))
    answer = ask(http, sent, LIMIT)
    assert (answer.status, answer.headers["x-index"]) == (200, "7")
    assert answer.json() == {"path": "/a?b=c"}
    assert server.bodies == [b"body"]
    headers = server.seen_headers[0]
    assert (headers["X-Token"], headers["X-More"]) == ("secret", "1")
    assert headers["Host"] == f"127.0.0.1:{server.endpoint.port}"


def test_a_connection_is_kept(server: HTTPServer, ask: Ask, opened: Open) -> None:
    http = opened(server.endpoint)
    for _ in range(3):
        ask(http, get(), LIMIT)
    assert server.accepted == 1
    ask(http, get("/last"), LIMIT)  # the server says that it closes
    ask(http, get(), LIMIT)
    assert server.accepted == 2


def test_a_connection_that_was_closed_meanwhile_is_no_error(
    server: HTTPServer, ask: Ask, opened: Open
) -> None:
    http = opened(server.endpoint)
    for _ in range(3):
        assert ask(http, get("/silently-closed"), LIMIT).status == 200
    assert server.paths == ["/silently-closed"] * 3


def test_an_answer_that_never_comes_whole(server: HTTPServer, ask: Ask, opened: Open) -> None:
    http = opened(server.endpoint)
    for path in ("/cut", "/half"):
        with pytest.raises(HttpError, match=r"closed|HTTP") as caught:
            ask(http, get(path), LIMIT)
        assert caught.value.sent
    assert ask(http, get(), LIMIT).status == 200


def test_what_may_not_be_sent_again_is_not(server: HTTPServer, ask: Ask, opened: Open) -> None:
    http = opened(server.endpoint)
    ask(http, get(), LIMIT)
    with pytest.raises(HttpError):
        ask(http, get("/cut", again=False), LIMIT)
    assert server.paths.count("/cut") == 1


def test_the_time_limit(server: HTTPServer, ask: Ask, opened: Open) -> None:
    http = opened(server.endpoint)
    with pytest.raises(HttpError, match=r"did not answer within (1|0\.\d+) s") as caught:
        ask(http, get("/hang"), 1.0)
    assert caught.value.sent
    server.go_on.set()
    assert ask(http, get(), LIMIT).json() == {"path": "/"}


def test_what_is_left_of_a_limit_is_not_called_zero(
    server: HTTPServer, ask: Ask, opened: Open
) -> None:
    """As by a wait that is over while the server is asked a second time."""
    http = opened(server.endpoint)
    ask(http, get(), LIMIT)
    for limit in (0.004, 0.0004):
        with pytest.raises(HttpError, match="did not answer in what was left of the time"):
            ask(http, get("/hang"), limit)


def test_nobody_listens(ask: Ask, opened: Open) -> None:
    http = opened(Endpoint("127.0.0.1", free_port()))
    with pytest.raises(HttpError, match=r"refused|call failed") as caught:
        ask(http, get(), LIMIT)
    assert not caught.value.sent


def test_the_next_server_answers_and_is_asked_first_then(
    server: HTTPServer, ask: Ask, opened: Open
) -> None:
    with serving() as hung:
        hung.go_on.clear()
        down = Endpoint("127.0.0.1", free_port())
        http = opened(hung.endpoint, down, server.endpoint)
        server.go_on.set()
        answer = ask(http, get("/hang"), 1.5)
        assert answer.json() == {"path": "/hang"}
        ask(http, get(), LIMIT)
        assert (hung.paths, server.paths) == (["/hang"], ["/hang", "/"])


def test_a_server_that_says_it_cannot(server: HTTPServer, ask: Ask, opened: Open) -> None:
    with serving() as other:
        other.status = 503
        http = opened(other.endpoint, server.endpoint)
        assert ask(http, get(), LIMIT).status == 200
        server.status = 500
        assert ask(http, get(), LIMIT).status == 503  # the last of both to say so
        assert ask(opened(other.endpoint), get(), LIMIT).status == 503


def test_tls(tmp_path: Path, ask: Ask, opened: Open) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out",
         certificate],
        check=True,
        capture_output=True,
    )  # fmt: skip
    with serving((certificate, key)) as server:
        trusting = opened(server.endpoint, tls=ssl.create_default_context(cafile=certificate))
        assert ask(trusting, get(), LIMIT).status == 200
        strict = opened(server.endpoint)
        with pytest.raises(HttpError, match="certificate"):
            ask(strict, get(), LIMIT)


def test_a_server_that_speaks_something_else(ask: Ask, opened: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            other, _ = listening.accept()
            other.recv(1000)
            other.sendall(b"-ERR what\r\n\r\n")
            other.close()

        thread = threading.Thread(target=answer)
        thread.start()
        http = opened(Endpoint("127.0.0.1", listening.getsockname()[1]))
        with pytest.raises(HttpError, match="does not speak HTTP"):
            ask(http, get(), LIMIT)
        thread.join()


def test_what_cannot_be_sent(server: HTTPServer, ask: Ask, opened: Open) -> None:
    http = opened(server.endpoint)
    with pytest.raises(HttpError, match="cannot be sent") as caught:
        ask(http, get("/a b\r\nX: y"), LIMIT)
    assert not caught.value.sent
    assert server.paths == []


def test_a_body_that_is_no_json() -> None:
    with pytest.raises(HttpError, match="no JSON was answered: b'<html>'"):
        Answer(200, {}, b"<html>").json()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://10.0.0.1", "http://10.0.0.1:2379"),
        ("https://etcd.example:443/", "https://etcd.example:443"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_addresses(url: str, shown: str) -> None:
    assert str(parse_endpoint(url, 2379)) == shown


@pytest.mark.parametrize(
    "url",
    ["", "10.0.0.1", "ftp://a", "http://", "http://a:b@c", "http://a/path", "http://a?q", 1,
     "http://a:99999", "http://a:0", "http://[::1", "http://a#f"],
)  # fmt: skip
def test_what_is_no_address(url: object) -> None:
    with pytest.raises(ValueError, match=r"an address as 'http://127\.0\.0\.1:2379' is"):
        parse_endpoint(url, 2379)


def test_without_httptools(monkeypatch: pytest.MonkeyPatch) -> None:
    require_httptools("shop", "etcd")
    monkeypatch.setitem(sys.modules, "httptools", None)
    with pytest.raises(InvalidLockBackendError, match=r'pip install "django-distlock\[etcd\]"'):
        require_httptools("shop", "etcd")
