"""What values of OPTIONS are refused, for every backend that has such an option."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_distlock.backends import options

ASKED = """
import sys
from django_distlock.backends.options import tls_context
try:
    tls_context({"CERT_FILE": sys.argv[1], "KEY_FILE": sys.argv[2]})
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("judge", "right", "wrong"),
    [
        (options.true_or_false, [True, False], [0, "yes", None]),
        (options.positive, [0.1, 5], [0, -1, True, "5", float("inf"), float("nan")]),
        (options.seconds(1, 60), [1, 60, 1.5], [0.9, 61, True, "5", float("nan")]),
        (options.whole_number(0, 9), [0, 9], [-1, 10, 1.0, True, "1"]),
        (options.one_of("queue", "poll"), ["queue", "poll"], ["Queue", "", None, ["queue"], True]),
        (options.text, ["x"], ["", None, b"x", 5]),
        (options.secret, ["x"], ["", None, b"x", 5]),
        (options.mapping, [{}, {"a": 1}], [None, [("a", 1)], "a"]),
        (options.file_name, ["/x"], ["", None, 5]),
    ],
)
def test_what_is_taken(judge: Callable[[Any], object], right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        assert judge(value) == value
    for value in wrong:
        with pytest.raises(ValueError, match="expected"):
            judge(value)


def test_a_path_is_a_file_name() -> None:
    assert options.file_name(Path("/a/b")) == "/a/b"


@pytest.mark.parametrize("judge", [options.secret, options.mapping])
def test_what_may_be_a_secret_is_not_shown(judge: Callable[[Any], object]) -> None:
    with pytest.raises(ValueError, match="expected") as raised:
        judge(b"swordfish")
    assert "swordfish" not in str(raised.value)


def test_a_key_with_a_password_is_refused_not_asked_for(tmp_path: Path) -> None:
    """Python asks for it at the terminal, and a server that starts would wait for the answer."""
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "1", "-subj", "/CN=web"]
    made += ["-passout", "pass:swordfish", "-keyout", key, "-out", cert]
    subprocess.run(made, check=True, capture_output=True)
    terminal, ours = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASKED, cert, key],
            stdin=ours,
            capture_output=True,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            timeout=60,
            check=True,
        )
    finally:
        os.close(terminal)
        os.close(ours)
    assert "CERT_FILE or KEY_FILE cannot be loaded" in done.stdout
