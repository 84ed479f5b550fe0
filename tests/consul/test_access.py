"""ACL tokens, and TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from django_distlock import LockBackendError, lock
from tests.claims import excludes
from tests.consul.tools import Opener
from tests.servers import Consul

POLICY = 'key_prefix "distlock/" { policy = "write" } session_prefix "" { policy = "write" }'


@pytest.fixture(scope="module")
def guarded() -> Iterator[Consul]:
    """A server that knows its users, and speaks TLS."""
    with Consul(acl=True, tls=True) as server:
        yield server


def token(server: Consul, rules: str, name: str) -> str:
    """Make a token that may do so much."""
    server.ask("PUT", "/v1/acl/policy", {"Name": name, "Rules": rules})
    made = server.ask("PUT", "/v1/acl/token", {"Policies": [{"Name": name}]})
    return str(made["SecretID"])


def test_the_policy_of_the_docs_is_enough(guarded: Consul, opened: Opener) -> None:
    word = token(guarded, POLICY, "locks")
    backend = opened(guarded.url, TOKEN=word, CA_FILE=guarded.certificate)
    with lock("a", using=backend.alias, ttl=20) as lease:
        lease.renew()
        assert lock("a", using=backend.alias).locked()
        assert [info.name for info in backend.held()] == ["a"]
    backend.clean(older_than=60)


@pytest.mark.parametrize(
    "rules", ['session_prefix "" { policy = "write" }', 'key_prefix "" { policy = "write" }']
)
def test_less_is_refused_and_said(guarded: Consul, opened: Opener, rules: str) -> None:
    word = token(guarded, rules, f"less-{rules[:3]}")
    backend = opened(guarded.url, TOKEN=word, CA_FILE=guarded.certificate)
    with pytest.raises(LockBackendError, match="OPTIONS\\['TOKEN'\\]") as raised:
        lock("a", using=backend.alias).acquire()
    assert word not in str(raised.value)


def test_a_wrong_token(guarded: Consul, opened: Opener) -> None:
    backend = opened(guarded.url, TOKEN="nobody", CA_FILE=guarded.certificate)
    with pytest.raises(LockBackendError, match="OPTIONS\\['TOKEN'\\]"):
        lock("a", using=backend.alias).acquire()


def test_a_certificate_of_nobody_known(guarded: Consul, opened: Opener) -> None:
    backend = opened(guarded.url, TOKEN="nobody")
    with pytest.raises(LockBackendError, match=r"certificate.*CA_FILE"):
        lock("a", using=backend.alias).acquire()


def test_a_server_that_demands_a_certificate(opened: Opener) -> None:
    with Consul(mutual=True) as server:
        cert, key = server.client
        backend = opened(server.url, CA_FILE=server.certificate, CERT_FILE=cert, KEY_FILE=key)
        excludes(backend, "a", ttl=20)
        without = opened(server.url, CA_FILE=server.certificate)
        with pytest.raises(LockBackendError, match=r"(?i)certificate"):
            lock("a", using=without.alias).acquire(wait=0)
        with pytest.raises(LockBackendError, match=r"(?i)certificate"):
            asyncio.run(lock("a", using=without.alias).aacquire(wait=0))
