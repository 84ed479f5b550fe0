"""HTTP/1.1 on one connection: what is to be sent, and what was received, in bytes.

httptools, the parser of uvicorn and in C, reads the answers. Nothing here reads or writes a socket,
so threads and event loops share it.
"""

from __future__ import annotations

import ssl
from typing import Any

from .messages import Answer, Endpoint, HttpError, Request

__all__ = ["SIZE", "Framing"]

SIZE = 65536
"""Bytes that are read at once."""
HEADS = 64
"""Heads of requests that a connection keeps."""
LONGEST = 65536 + SIZE
"""Bytes of an answer without the end of its head after which it is none."""


class Framing:
    """What one connection is in the middle of; the parser calls the methods ``on_...``."""

    def __init__(self, endpoint: Endpoint, headers: tuple[tuple[str, str], ...]) -> None:
        import httptools

        self._parse = httptools
        self._heads: dict[tuple[str, str, tuple[tuple[str, str], ...]], bytes] = {}
        self._endpoint = endpoint
        self._headers = (("Host", endpoint.authority), *headers)
        self._silent = True  # whether nothing has come yet, to any request
        self._begin(Request("GET", "/"))

    def _begin(self, request: Request) -> None:
        self._request = request
        self._parser: Any = self._parse.HttpResponseParser(self)
        self._said: dict[str, str] = {}
        self._status = 0
        self._body = bytearray()
        self._received = 0
        self.has_head = False  # whether the head of the answer has come
        self.is_whole = False  # whether all of it has
        self.reusable = True  # whether the connection can take another request afterwards

    @property
    def began(self) -> bool:
        """Whether anything of an answer has come."""
        return self._received > 0

    def failure(self, error: Exception, *, sent: bool) -> HttpError:
        """Return the error of a connection that has failed, a new one or a kept one."""
        closed = isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError)
        away = closed and self._silent
        return HttpError(f"{self._endpoint}: {error}", sent=sent, turned_away=away)

    # -- what is sent ------------------------------------------------------------------------------

    def pack(self, request: Request) -> bytes:
        """Return what to send for a request."""
        self._begin(request)
        known = (request.method, request.target, request.headers)
        head = self._heads.get(known)
        if head is None:
            if len(self._heads) >= HEADS:
                self._heads.clear()
            head = self._heads[known] = self._head_of(request)
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(request.body), request.body)

    def _head_of(self, request: Request) -> bytes:
        lines = [f"{request.method} {request.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self._headers + request.headers]
        text = "".join(lines)
        if not (text.isascii() and text.isprintable()) or " " in request.target:
            raise HttpError("this cannot be sent by HTTP: white space or a control character in it",
                            sent=False)  # fmt: skip
        return "".join(f"{line}\r\n" for line in lines).encode("ascii")

    # -- what is received --------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take what was received; b"" when the server has closed the connection."""
        if not data:
            lengthless = not {"content-length", "transfer-encoding"} & self._said.keys()
            if not (self.has_head and lengthless):
                raise HttpError(f"{self._endpoint} closed the connection", turned_away=self._silent)
            self.is_whole, self.reusable = True, False
            return
        self._received += len(data)
        self._silent = False
        try:
            self._parser.feed_data(data)
        except self._parse.HttpParserCallbackError as error:
            # A signal's handler raised in one of ours, which is not the server's doing.
            raise (error.__context__ or error) from None
        except (self._parse.HttpParserError, self._parse.HttpParserUpgrade) as error:
            self.reusable = False
            if not self.is_whole:
                raise HttpError(f"{self._endpoint} does not speak HTTP: {error}") from error
        if not self.has_head and self._received > LONGEST:
            raise HttpError(f"{self._endpoint} does not speak HTTP: the head has no end")

    def on_message_begin(self) -> None:
        if self.is_whole:
            self.reusable = False  # more than was asked for
        else:
            self._said = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_whole:
            self._said[name.decode("latin-1").lower()] = value.decode("latin-1").strip(" \t")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.is_whole or status < 200:  # 100 and 103 come before the answer
            return
        self._status, self.has_head = status, True
        if self._request.method == "HEAD":  # which has no body, whatever its head says
            self._end()

    def on_body(self, body: bytes) -> None:
        if not self.is_whole:
            self._body += body

    def on_message_complete(self) -> None:
        if self.has_head and not self.is_whole:
            self._end()

    def _end(self) -> None:
        self.is_whole = True
        self.reusable = bool(self._parser.should_keep_alive())

    def answer(self) -> Answer:
        """Return the answer: of one that goes on, the head."""
        return Answer(self._status, self._said, bytes(self._body) if self.is_whole else b"")

    def lines(self, data: bytes | None = None) -> list[bytes]:
        """Return the lines of a stream that are complete, after ``data`` was received.

        Raises HttpError when the stream has ended, once all its lines were returned.
        """
        if data is not None and not self.is_whole:
            self.feed(data)
        *whole, rest = bytes(self._body).split(b"\n")
        self._body = bytearray(rest)
        lines = [line for line in whole if line.strip()]
        if self.is_whole and not lines:
            raise HttpError(f"{self._endpoint} ended the stream")
        return lines
