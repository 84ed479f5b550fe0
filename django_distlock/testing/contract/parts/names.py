"""Names: any non-empty str is one, and no two are the same lock."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from .... import lock
from ....backends.base import BaseLockBackend
from ...runners import Runner
from ..base import ContractBase, applies_to_all

__all__ = ["Names"]

NOISE = "".join(chr(0x20000 + pow(number, 3, 42_001)) for number in range(10_000))
"""As long as a name may be, and nothing makes it much shorter where a store packs it."""

# Stores compare without case, accents or trailing spaces, end strings at NUL, refuse characters,
# cut off what is long, and give a meaning to slashes, dots, colons, braces and wildcards.
NAMES = (
    *("A", "a", "a ", " a", " ", "  ", "\t", "\n", "a\n", "a\r\n"),
    *("á", "a\u0301", "Á", "ß", "ss", "SS", "ẞ", "\u0131", "I", "i", "İ", "ǆ", "ﬁ", "fi"),
    *("\0", "a\0", "a\0b", "\0\0", "\x7f", "\u200b", "\ufeff", "a\u200bb"),
    *("/", "//", "/a", "a/", "a/b", "a//b", ".", "..", "../a", "a.b", "\\", "\\n", "a\\nb", "a\nb"),
    *(
        "a:b",
        "a:b:c",
        ":",
        "{{a}}",
        "{a b}",
        "{",
        "}",
        "*",
        "?",
        "[a]",
        "%",
        "_",
        "%s",
        "%(a)s",
        "$1",
        "$a",
    ),
    *("'", '"', "`", ";", "--", "' OR 1=1 --", "<a>", "&amp;", "null", "None", "0", "00", "1e3"),
    *(
        "😀",
        "😀😀",
        "👩‍👩‍👧",
        "\U0010ffff",
        "\ud800",
        "\udfff",
        "\ud83d",
        "a\ud800",
        "日本",
        "עברית",
    ),
    *("x" * 64, "x" * 65, "x" * 192, "x" * 193, "x" * 255, "x" * 256, "x" * 2000),
    *("x" * 10_000, "x" * 9_999 + "y", "y" + "x" * 9_999, "😀" * 10_000, NOISE),
    *("lock-0000000001", "0" * 32, "0" * 64, "default", "contract:"),
)


class Names(ContractBase):
    """What is a name, and which are different."""

    @applies_to_all
    async def test_any_name_is_a_lock_of_its_own(
        self, runner: Runner, twins: Callable[[str], BaseLockBackend]
    ) -> None:
        """Hold many difficult names at once; show each as it was written; free each by itself."""
        a, b = runner.actor(), runner.actor()
        backend = twins(runner.prefix)  # so that short names are this test's own
        leases = {
            name: await a.take(lock(name, using=backend.alias, ttl=600, renew=False))
            for name in NAMES
        }
        assert len(leases) == len(NAMES)
        if self.has("exclusive") and self.has("shows_holders"):
            shown = {info.name: info.fencing_token for info in await b.held(backend)}
            assert shown == {name: self.token(lease) for name, lease in leases.items()}
        for before, after in pairwise(NAMES):
            await a.release(leases[before])
            if self.has("exclusive"):
                assert await b.is_refused(lock(after, using=backend.alias))
                assert not await b.locked(lock(before, using=backend.alias))
        await a.release(leases[NAMES[-1]])
        if self.has("shows_holders"):
            assert await b.held(backend) == []
        assert not await b.locked(lock(NAMES[-1], using=backend.alias))

    @applies_to_all
    async def test_prefixes_do_not_meet(
        self, runner: Runner, twins: Callable[[str], BaseLockBackend]
    ) -> None:
        """Keep prefix and name apart, also when both together read the same."""
        a = runner.actor()
        p = runner.prefix
        places = [(f"{p}a", "b:c"), (f"{p}a:b", "c"), (f"{p}a:", "b:c"), (f"{p}ab", ":c")]
        places += [(f"{p}a", ":b:c"), (f"{p}A", "b:c"), (p, "a:b:c"), ("", f"{p}a:b:c")]
        leases = []
        for prefix, name in places:
            backend = twins(prefix)
            leases.append(await a.take(lock(name, using=backend.alias)))
            if self.has("exclusive") and self.has("shows_holders"):
                assert [info.name for info in await a.held(backend, name)] == [name]
        for lease in leases:
            await a.release(lease)
