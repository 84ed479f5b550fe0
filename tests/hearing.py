"""Programs that a test starts hear the signals that the shell may have told the tests to ignore."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["hearing_signals"]


@contextmanager
def hearing_signals() -> Iterator[None]:
    """Have a program that is started hear SIGHUP, SIGINT and SIGQUIT, whatever this process does.

    Under ``nohup`` the first is ignored, in a script's background (``&``) the others, and what is
    ignored stays so in all that is started from there.
    """
    with ExitStack() as before:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
                before.callback(signal.signal, number, signal.SIG_IGN)
        yield
