"""What kazoo runs its threads and opens its sockets with."""

from __future__ import annotations

import socket
import ssl
import sys
from typing import Any

from .options import Facts

__all__ = ["handler"]


def handler(facts: Facts) -> Any:
    """Return kazoo's handler for threads, or for gevent where it has taken their place.

    It calls our watchers at once, who only wake a waiter, and knocks at no server for so long that
    no time is left for the others. ``said`` is what the last one that did not open said.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        from kazoo.handlers.gevent import SequentialGeventHandler as Handler
    else:
        from kazoo.handlers.threading import SequentialThreadingHandler as Handler

    class Ours(Handler):  # type: ignore[misc]
        said = ""

        def dispatch_callback(self, callback: Any) -> None:
            callback.func(*callback.args)

        def create_connection(
            self, address: tuple[str, int], hostname: str, timeout: float, **how: Any
        ) -> socket.socket:
            try:
                return connect(address, hostname, min(timeout, facts.patience), how)
            except OSError as error:
                self.said = f"{hostname}:{address[1]}: {error}"
                raise

    return Ours()


def connect(
    address: tuple[str, int], hostname: str, timeout: float, how: dict[str, Any]
) -> socket.socket:
    """Open a connection; kazoo's own way leaves a socket open when a server's TLS is not sound."""
    wire = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        if how.get("use_ssl"):
            context = ssl.create_default_context(cafile=how.get("ca"))
            context.check_hostname = bool(how.get("check_hostname"))
            if not how.get("verify_certs", True):
                context.verify_mode = ssl.CERT_NONE
            if how.get("certfile"):
                password = how.get("keyfile_password")
                context.load_cert_chain(how["certfile"], how.get("keyfile"), password)
            # Before it is connected: Python leaves one open that is cut off while it is wrapped.
            wire = context.wrap_socket(wire, server_hostname=hostname)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.settimeout(timeout)
        wire.connect(address)
    except BaseException:
        wire.close()
        raise
    return wire
