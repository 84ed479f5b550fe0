"""Reading the plainest answer: a head and a body of a length that the head says.

Nearly all answers are that, and h11, which is right about all others, takes ten times as long.
What is unusual in any way is left to it.
"""

from __future__ import annotations

import re

from .messages import Answer

__all__ = ["read_plain"]

_MOST = 65536  # bytes of a head
_STATUS = re.compile(rb"HTTP/1\.1 ([2-5]\d\d)(?: [^\r\n]*)?\r\n")
_HEADER = re.compile(r"([A-Za-z0-9-]+):[ \t]*([^\r\n]*?)[ \t]*\r\n")
_BODILESS = (204, 304)
_UNUSUAL = {"transfer-encoding", "connection", "upgrade"}


def read_plain(received: bytes) -> Answer | int | None:
    """Return the answer; or how many bytes it needs at least; or None if it is not plain."""
    end = received.find(b"\r\n\r\n") + 2
    if end < 2:
        return len(received) + 1 if len(received) < _MOST else None
    status = _STATUS.match(received)
    if status is None or (code := int(status[1])) in _BODILESS:
        return None
    text = received[status.end() : end].decode("latin-1")
    found = [(name.lower(), value) for name, value in _HEADER.findall(text)]
    headers = dict(found)
    # Each line is a header of its own: none twice, none that goes on, none that is none.
    if len(headers) != text.count("\n") or len(found) != len(headers) or _UNUSUAL & headers.keys():
        return None
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) < 10):
        return None
    whole = end + 2 + int(length)
    if len(received) < whole:
        return whole
    return Answer(code, headers, received[end + 2 :]) if len(received) == whole else None
