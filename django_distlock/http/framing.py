"""HTTP/1.1 on one connection, by h11: what is to be sent, and what was received, in bytes.

Nothing here reads or writes a socket, so threads and event loops share it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from .messages import Answer, Endpoint, HttpError, Request

__all__ = ["SIZE", "Framing", "Read", "Reading"]

SIZE = 65536
"""Bytes that are read at once."""

Reading = Generator[None, bytes, Answer]
"""Wants to be sent what was received (b"": the server closed), until it returns the answer."""


class Framing:
    """What one connection is in the middle of."""

    def __init__(self, endpoint: Endpoint, headers: tuple[tuple[str, str], ...]) -> None:
        import h11

        self._kinds = h11
        self._state: Any = h11.Connection(h11.CLIENT)
        self._endpoint = endpoint
        self._headers = (("Host", endpoint.authority), *headers)
        self.began = False  # whether anything of an answer has come
        self._line = b""
        self._ended = False

    def pack(self, request: Request) -> bytes:
        """Return what to send for a request."""
        kinds, state = self._kinds, self._state
        if state.our_state is kinds.DONE:
            state.start_next_cycle()
        self.began = False
        length = (("Content-Length", str(len(request.body))),)
        headers = self._headers + length + request.headers
        try:
            head = kinds.Request(method=request.method, target=request.target, headers=headers)
            packed: bytes = state.send(head)
            if request.body:
                packed += state.send(kinds.Data(data=request.body))
            packed += state.send(kinds.EndOfMessage())
        except kinds.LocalProtocolError as error:
            raise HttpError(f"this cannot be sent by HTTP: {error}", sent=False) from error
        return packed

    def answer(self) -> Reading:
        """Read an answer to its end."""
        kinds = self._kinds
        head: Any = None
        parts: list[bytes] = []
        while True:
            event = self._next()
            if event is kinds.NEED_DATA:
                self._feed((yield))
            elif isinstance(event, kinds.Response):
                head = event
            elif isinstance(event, kinds.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, kinds.EndOfMessage):
                return self._made(head, b"".join(parts))

    def head(self) -> Reading:
        """Read the first part of an answer, which goes on as lines; the body is still missing."""
        kinds = self._kinds
        while True:
            event = self._next()
            if event is kinds.NEED_DATA:
                self._feed((yield))
            elif isinstance(event, kinds.Response):
                return self._made(event, b"")

    def lines(self, data: bytes | None = None) -> list[bytes]:
        """Return the lines that are complete, after ``data`` was received.

        Raises HttpError when the stream has ended, once all its lines were returned.
        """
        if data is not None:
            self._feed(data)
        lines: list[bytes] = []
        while not self._ended and (event := self._next()) is not self._kinds.NEED_DATA:
            if isinstance(event, self._kinds.EndOfMessage):
                self._ended = True
            elif isinstance(event, self._kinds.Data):
                *whole, self._line = (self._line + bytes(event.data)).split(b"\n")
                lines += [line for line in whole if line.strip()]
        if self._ended and not lines:
            raise HttpError(f"{self._endpoint} ended the stream")
        return lines

    @property
    def reusable(self) -> bool:
        """Whether the connection can take another request."""
        done = self._kinds.DONE
        return self._state.our_state is done and self._state.their_state is done

    def _next(self) -> Any:
        try:
            event = self._state.next_event()
        except self._kinds.RemoteProtocolError as error:
            raise HttpError(f"{self._endpoint} does not speak HTTP: {error}") from error
        if isinstance(event, self._kinds.ConnectionClosed):
            raise HttpError(f"{self._endpoint} closed the connection")
        return event

    def _feed(self, data: bytes) -> None:
        if data:
            self.began = True
        elif not self.began:
            raise HttpError(f"{self._endpoint} closed the connection")
        self._state.receive_data(data)

    def _made(self, head: Any, body: bytes) -> Answer:
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        return Answer(head.status_code, headers, body)


Read: TypeAlias = Callable[[Framing], Reading]
"""`Framing.answer` or `Framing.head`."""
