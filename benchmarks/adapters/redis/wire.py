"""Bare sockets: what no client can be faster than, in Python."""

from __future__ import annotations

import hashlib
import secrets
import socket
from typing import Any
from urllib.parse import urlsplit

__all__ = ["COMPARE_AND_DELETE", "SHA", "TTL", "Wire", "acquiring", "releasing", "token", "urls"]

TTL = 30_000  # ms, as that of an alias is by default
COMPARE_AND_DELETE = (
    b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
)
SHA = hashlib.sha1(COMPARE_AND_DELETE, usedforsecurity=False).hexdigest().encode()


def urls() -> list[str]:
    """Return where the servers are."""
    from django.conf import settings

    where: str | list[str] = settings.DISTLOCKS["default"]["LOCATION"]
    return [where] if isinstance(where, str) else where


def token() -> bytes:
    """Return a value that nobody can guess, as each acquisition needs one."""
    return secrets.token_hex(16).encode()


def packed(*words: bytes) -> bytes:
    """Return a command as it is sent."""
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
    return b"".join(parts)


def acquiring(key: bytes, value: bytes) -> bytes:
    """Return ``SET key value NX PX 30000`` as it is sent."""
    return b"*6\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n%d\r\n" % (
        len(key), key, len(value), value, TTL
    )  # fmt: skip


def releasing(key: bytes, value: bytes) -> bytes:
    """Return the call of the compare-and-delete script as it is sent."""
    return b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        SHA, len(key), key, len(value), value
    )  # fmt: skip


class Wire:
    """A socket, of which each answer is small enough to come in one piece."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port or 6379))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send: Any = self._socket.sendall
        self._receive = self._socket.recv

    def receive(self) -> bytes:
        """Return the next answer as it came."""
        answer = self._receive(4096)
        if answer[-2:] != b"\r\n" or answer[:1] == b"-":
            raise RuntimeError(f"Redis answered {answer!r}")
        return answer

    def ask(self, command: bytes) -> bytes:
        """Send a packed command and return the answer."""
        self.send(command)
        return self.receive()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
