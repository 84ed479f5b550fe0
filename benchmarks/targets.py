"""What is to be reached, and by how much it was reached or missed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .bench import Row

__all__ = ["Verdict", "judge"]

SERVERS = ("postgresql", "mariadb")
OURS, FLOOR, POLLING = "django-distlock", "bare statements", "bare, polling"
DB_MUTEX = "django-db-mutex"
ROW, FOR_UPDATE, BY_HAND = "django-distlock row", "bare FOR UPDATE", "select_for_update()"
SAVE, PLAIN, CONCURRENCY = "VersionedModel.save()", "plain save()", "django-concurrency save()"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target and the figure beside it."""

    store: str
    what: str
    sign: str
    wanted: float
    got: float

    @property
    def reached(self) -> bool:
        """Whether the figure is as wanted."""
        return self.got >= self.wanted if self.sign == ">=" else self.got <= self.wanted

    @property
    def off_by(self) -> str:
        """How far the figure is from what is wanted, in per cent of it."""
        if not self.wanted:
            return f"{self.got - self.wanted:+g}"
        return f"{100 * (self.got / self.wanted - 1):+.0f} %"


class _Rows:
    """The lines of one store, found by what they are of."""

    def __init__(self, rows: list[Row], store: str) -> None:
        self.rows = [row for row in rows if row["store"] == store]

    def get(self, measure: str, adapter: str, **facts: object) -> Row | None:
        wanted = {"measure": measure, "adapter": adapter, **facts}
        return next((row for row in self.rows if wanted.items() <= row.items()), None)

    def waiters(self) -> list[int]:
        return sorted({row["waiters"] for row in self.rows if row["measure"] == "handover"})


def judge(rows: list[Row]) -> list[Verdict]:
    """Return a verdict for each target that something was measured for."""
    found: list[Verdict] = []
    for store in dict.fromkeys(row["store"] for row in rows):
        mine = _Rows(rows, store)
        for part in (
            _pairs,
            _row_pairs,
            _handover,
            _row_handover,
            _fairness,
            _failing,
            _renewals,
            _save,
        ):
            for what, sign, wanted, got in part(mine, store in SERVERS):
                found.append(Verdict(store, what, sign, wanted, got))
    return found


_Found = Iterator[tuple[str, str, float, float]]


def _pairs(rows: _Rows, served: bool) -> _Found:
    ours = rows.get("pairs", OURS)
    limits = {FLOOR: 0.85 if served else 0.5, DB_MUTEX: 3.5 if served else 11.0}
    for other, wanted in limits.items():
        if ours and other in ours["times"]:
            yield f"pairs / {other}", ">=", wanted, ours["times"][other]


def _handover(rows: _Rows, served: bool) -> _Found:
    for waiters in rows.waiters():
        ours, other, polling = (
            rows.get("handover", name, waiters=waiters) for name in (OURS, DB_MUTEX, POLLING)
        )
        if ours is None or "p50_us" not in ours:
            continue
        if other and "p50_us" in other:
            ratio = round(ours["p50_us"] / other["p50_us"], 3)
            yield f"hand-over p50 / {DB_MUTEX}, {waiters} waiters", "<=", 0.2, ratio
        if polling and "p99_us" in polling and waiters >= 8:
            ratio = round(ours["p99_us"] / polling["p99_us"], 3)
            yield f"hand-over p99 / polling, {waiters} waiters", "<=", 1.0, ratio
        if served:
            yield f"statements an acquisition, {waiters} waiters", "<=", 5.0, ours["statements"]


def _row_pairs(rows: _Rows, served: bool) -> _Found:
    yield from _rates(rows, "pairs", ROW, {FOR_UPDATE: 0.8, BY_HAND: 1.0})


def _save(rows: _Rows, served: bool) -> _Found:
    yield from _rates(rows, "save", SAVE, {PLAIN: round(1 / 1.15, 3), CONCURRENCY: 1.0})


def _rates(rows: _Rows, measure: str, who: str, limits: dict[str, float]) -> _Found:
    ours = rows.get(measure, who)
    for other, wanted in limits.items():
        if ours and other in ours["times"]:
            yield f"{who}: {measure} / {other}", ">=", wanted, ours["times"][other]


def _row_handover(rows: _Rows, served: bool) -> _Found:
    for waiters in rows.waiters():
        ours, bare = (rows.get("handover", name, waiters=waiters) for name in (ROW, FOR_UPDATE))
        if ours and bare and "p50_us" in ours and "p50_us" in bare:
            ratio = round(ours["p50_us"] / bare["p50_us"], 3)
            yield f"{ROW}: hand-over p50 / {FOR_UPDATE}, {waiters} waiters", "<=", 1.2, ratio


def _fairness(rows: _Rows, served: bool) -> _Found:
    ours = rows.get("fairness", OURS)
    if ours and served:
        yield "most / least grants", "<=", 1.1, ours["most_per_least"]


def _failing(rows: _Rows, served: bool) -> _Found:
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


def _renewals(rows: _Rows, served: bool) -> _Found:
    ours = rows.get("renewals", OURS)
    if ours:
        yield f"lost of {ours['leases']} renewed leases", "<=", 0.0, ours["lost"]
