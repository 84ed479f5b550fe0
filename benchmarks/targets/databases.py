"""The targets of the backends in a database."""

from __future__ import annotations

from .rows import Found, Rows, rates, several

__all__ = ["judge_database"]

SERVERS = ("postgresql", "mariadb", "mysql")
OURS, BASELINE, POLLING = "django-distlock", "bare statements", "bare, polling"
UNQUEUED = "django-distlock, polling"
DB_MUTEX = "django-db-mutex"
ROW, FOR_UPDATE, BY_HAND = "django-distlock row", "bare FOR UPDATE", "select_for_update()"
ADVISORY, BARE_ADVISORY = "django-distlock advisory", "bare advisory lock"
PGLOCK, TOOZ = "django-pglock", "tooz"
SAVE, PLAIN, CONCURRENCY = "VersionedModel.save()", "plain save()", "django-concurrency save()"


def judge_database(rows: Rows, store: str) -> Found:
    """Judge what was measured on a database."""
    for part in (
        _cycles,
        _row_cycles,
        _advisory_cycles,
        _handoff,
        _row_handoff,
        _advisory_handoff,
        _fairness,
        _failing,
        _renewals,
        _save,
    ):
        yield from part(rows, store in SERVERS)
    for alone in (OURS, f"{OURS} version"):
        yield from several(rows, alone, 1.8)


def _cycles(rows: Rows, served: bool) -> Found:
    limits = {BASELINE: 0.85 if served else 0.5, DB_MUTEX: 3.5 if served else 11.0}
    yield from rates(rows, "cycles", OURS, limits)


def _handoff(rows: Rows, served: bool) -> Found:
    for waiters in rows.waiters():
        ours, other, polling, unqueued = (
            rows.get("handoff", name, waiters=waiters)
            for name in (OURS, DB_MUTEX, POLLING, UNQUEUED)
        )
        if ours is None or "p50_us" not in ours:
            continue
        if other and "p50_us" in other:
            ratio = round(ours["p50_us"] / other["p50_us"], 3)
            yield f"hand-off p50 / {DB_MUTEX}, {waiters} waiters", "<=", 0.2, ratio
        if polling and "p99_us" in polling and waiters >= 8:
            ratio = round(ours["p99_us"] / polling["p99_us"], 3)
            yield f"hand-off p99 / polling, {waiters} waiters", "<=", 1.0, ratio
        if unqueued and "p50_us" in unqueued:
            # By which queueing was chosen; what it costs is p99 on SQLite, see waiting.md.
            ratio = round(ours["p50_us"] / unqueued["p50_us"], 3)
            yield f"hand-off p50 / {UNQUEUED}, {waiters} waiters", "<=", 1.0, ratio
        if served:
            yield f"statements an acquisition, {waiters} waiters", "<=", 5.0, ours["statements"]


def _row_cycles(rows: Rows, served: bool) -> Found:
    yield from rates(rows, "cycles", ROW, {FOR_UPDATE: 0.8, BY_HAND: 1.0}, f"{ROW}: ")


def _advisory_cycles(rows: Rows, served: bool) -> Found:
    limits = {PGLOCK: 1.8} if rows.get("cycles", PGLOCK) else {BARE_ADVISORY: 0.6}
    yield from rates(rows, "cycles", ADVISORY, limits, f"{ADVISORY}: ")


def _save(rows: Rows, served: bool) -> Found:
    yield from rates(rows, "save", SAVE, {PLAIN: round(1 / 1.15, 3), CONCURRENCY: 1.0}, f"{SAVE}: ")


def _row_handoff(rows: Rows, served: bool) -> Found:
    for waiters in rows.waiters():
        ours, bare = (rows.get("handoff", name, waiters=waiters) for name in (ROW, FOR_UPDATE))
        if ours and bare and "p50_us" in ours and "p50_us" in bare:
            ratio = round(ours["p50_us"] / bare["p50_us"], 3)
            yield f"{ROW}: hand-off p50 / {FOR_UPDATE}, {waiters} waiters", "<=", 1.2, ratio


def _advisory_handoff(rows: Rows, served: bool) -> Found:
    for waiters in rows.waiters():
        ours, pglock, tooz = (
            rows.get("handoff", name, waiters=waiters) for name in (ADVISORY, PGLOCK, TOOZ)
        )
        for other, wanted in ((pglock, 0.9), (tooz, 0.1)):
            if ours and other and "p50_us" in ours and "p50_us" in other:
                ratio = round(ours["p50_us"] / other["p50_us"], 3)
                name = other["adapter"]
                yield f"{ADVISORY}: hand-off p50 / {name}, {waiters} waiters", "<=", wanted, ratio


def _fairness(rows: Rows, served: bool) -> Found:
    for name, label in ((OURS, ""), (ADVISORY, f"{ADVISORY}: ")):
        ours = rows.get("fairness", name)
        if ours and served:
            yield f"{label}most / least grants", "<=", 1.1, ours["most_per_least"]


def _failing(rows: Rows, served: bool) -> Found:
    ours = rows.get("failing", OURS)
    if ours:
        for what, count in ours["writes"].items():
            if served and not what.endswith("syncs"):
                continue  # records and bytes are shown, but a server writes some by itself
            # What the server does by itself in that time is not of the attempts.
            yield (
                f"{what} in {ours['attempts']} failing attempts",
                "<=",
                0.0,
                float(max(0, count - ours["idle"].get(what, 0))),
            )


def _renewals(rows: Rows, served: bool) -> Found:
    ours = rows.get("renewals", OURS)
    if ours:
        leases = f"{ours['leases']} renewed leases"
        yield f"lost of {leases}", "<=", 0.0, ours["lost"]
        yield f"renewed on time: least s left of {leases}", ">", 0.0, ours["least_remaining"]
        yield f"missing in the store of {leases}", "<=", 0.0, ours["missing_in_store"]
        yield f"% of a core for {leases}", "<=", 25.0, ours["cpu_percent"]
