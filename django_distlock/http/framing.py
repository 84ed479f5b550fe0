"""HTTP/1.1 on one connection, by h11: what is to be sent, and what was received, in bytes.

A head is made by h11 once and kept, and h11 is asked of those answers only that are not plain.
Nothing here reads or writes a socket, so threads and event loops share it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from .messages import Answer, Endpoint, HttpError, Request
from .plain import read_plain

__all__ = ["SIZE", "Framing", "Read", "Reading"]

SIZE = 65536
"""Bytes that are read at once."""
HEADS = 64
"""Heads of requests that a connection keeps."""

Reading = Generator[None, bytes, Answer]
"""Wants to be sent what was received (b"": the server closed), until it returns the answer."""


class Framing:
    """What one connection is in the middle of."""

    def __init__(self, endpoint: Endpoint, headers: tuple[tuple[str, str], ...]) -> None:
        import h11

        self._kinds = h11
        self._state: Any = None  # h11's, for an answer that is not plain
        self._request = Request("GET", "/")
        self._heads: dict[tuple[str, str, tuple[tuple[str, str], ...]], bytes] = {}
        self._endpoint = endpoint
        self._headers = (("Host", endpoint.authority), *headers)
        self.began = False  # whether anything of an answer has come
        self._line = b""
        self._ended = False

    def pack(self, request: Request) -> bytes:
        """Return what to send for a request."""
        self._request, self._state, self.began = request, None, False
        known = (request.method, request.target, request.headers)
        head = self._heads.get(known)
        if head is None:
            if len(self._heads) >= HEADS:
                self._heads.clear()
            bare, _ = self._begin(self._headers + request.headers)
            head = self._heads[known] = bare[:-2]  # without the empty line
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(request.body), request.body)

    def _begin(self, headers: tuple[tuple[str, str], ...]) -> tuple[bytes, Any]:
        """Return the head of the request, and a connection of h11's that has sent it."""
        kinds, request = self._kinds, self._request
        state = kinds.Connection(kinds.CLIENT)
        try:
            head = kinds.Request(method=request.method, target=request.target, headers=headers)
            return state.send(head), state
        except kinds.LocalProtocolError as error:
            raise HttpError(f"this cannot be sent by HTTP: {error}", sent=False) from error

    def _leave_to_h11(self) -> None:
        """Have h11 know what was sent, so that it can read the answer."""
        body, kinds = self._request.body, self._kinds
        length = (("Content-Length", str(len(body))),)
        _, self._state = self._begin(self._headers + length + self._request.headers)
        if body:
            self._state.send(kinds.Data(data=body))
        self._state.send(kinds.EndOfMessage())

    def answer(self) -> Reading:
        """Read an answer to its end."""
        received = bytearray()
        needed: int | None = 1 if self._request.method != "HEAD" else None
        while needed is not None:
            data = yield
            if not data:
                break
            self.began = True
            received += data
            if len(received) >= needed:  # looked at once it is whole, not at each part of it
                found = read_plain(bytes(received))
                if isinstance(found, Answer):
                    return found
                needed = found
        self._leave_to_h11()
        if received:
            self._feed(bytes(received))
        if needed is not None:
            self._feed(b"")
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
        self._leave_to_h11()
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
        if self._state is None:
            return True
        done, (more, _) = self._kinds.DONE, self._state.trailing_data
        return self._state.our_state is done and self._state.their_state is done and not more

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
