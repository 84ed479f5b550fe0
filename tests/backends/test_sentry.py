"""The limit on silent servers, where the statement that it was for never said that it was over."""

from __future__ import annotations

import os
import socket
import time

from django_distlock.backends.table import sentry


def test_what_is_left_of_an_interrupted_statement_shuts_no_other_connection() -> None:
    """The number of the descriptor is soon a stranger's: of the connection that is made next."""
    mine, peer = socket.socketpair()
    others, friend = socket.socketpair()
    with peer, others, friend:
        left = sentry.within(mine, 0.3)
        left.__enter__()  # and a signal's handler raises before the block is entered
        number = mine.detach()
        os.dup2(others.fileno(), number)
        try:
            end = time.monotonic() + 10
            while any(watch.descriptor == number for watch in sentry._sentry.watches.values()):
                assert time.monotonic() < end, "it is watched for ever"
                time.sleep(0.02)
            friend.sendall(b"alive")
            assert others.recv(5) == b"alive"
        finally:
            os.close(number)


def test_an_overdue_statement_is_cut() -> None:
    mine, peer = socket.socketpair()
    with mine, peer, sentry.within(mine, 0.1) as watch:
        mine.settimeout(10)
        assert mine.recv(1) == b""  # as its connection was shut
        assert watch is not None
        assert watch.cut
