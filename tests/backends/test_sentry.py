"""The limit on silent servers shuts the connection that it was set for, and no other."""

from __future__ import annotations

import os
import socket
import time
from types import SimpleNamespace

import pytest

from django_distlock.backends.table import sentry


def test_the_watch_of_an_interrupted_statement_shuts_no_other_connection() -> None:
    """The next connection gets the descriptor of the one that was interrupted."""
    client, server = socket.socketpair()
    next_client, next_server = socket.socketpair()
    with server, next_client, next_server:
        interrupted = sentry.within(client, 0.3)
        interrupted.__enter__()  # and a signal handler raises before the block is entered
        number = client.detach()
        os.dup2(next_client.fileno(), number)
        try:
            end = time.monotonic() + 10
            while number in sentry._sentry.watches:
                assert time.monotonic() < end, "it is still watched"
                time.sleep(0.02)
            next_server.sendall(b"alive")
            assert next_client.recv(5) == b"alive"
        finally:
            os.close(number)


def test_a_connection_whose_statement_was_interrupted_is_not_shut_later() -> None:
    """Django goes on using it."""
    client, server = socket.socketpair()
    with client, server:
        interrupted = sentry.within(client, 0.2)
        interrupted.__enter__()  # and a signal handler raises before the block is entered
        del interrupted
        time.sleep(0.5)
        server.sendall(b"alive")
        assert client.recv(5) == b"alive"


def test_a_closed_descriptor_is_left_to_the_statement() -> None:
    """No process has a million descriptors open."""
    closed = SimpleNamespace(fileno=lambda: 1_000_000)
    with sentry.within(closed, 0.3) as watch:
        assert watch is None


def test_an_overdue_statement_is_cut() -> None:
    client, server = socket.socketpair()
    with client, server, sentry.within(client, 0.1) as watch:
        client.settimeout(10)
        assert client.recv(1) == b""  # because the connection was shut
        assert watch is not None
        assert watch.cut


def test_a_machine_that_is_always_late_cuts_an_overdue_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each check looks as if the process had stood still; more time is given once."""
    monkeypatch.setattr(sentry, "TICK", 2 * sentry.PAUSE)
    client, server = socket.socketpair()
    with client, server, sentry.within(client, 0.1) as watch:
        client.settimeout(15)
        assert client.recv(1) == b""
        assert watch is not None
        assert (watch.spared, watch.cut) == (True, True)
