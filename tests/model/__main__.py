"""Print how many states each model has: ``python -m tests.model``, some minutes."""

from __future__ import annotations

from tests.model import test_engine, test_handoff

MODES = {"xxx": "three that want it alone", "ssx": "two share, one alone", "222": "a limit of two"}


def main() -> None:
    """Search models that are too large for each run of the tests."""
    print("| model | clients | faults | states | ends | wrong |")
    print("| --- | --- | --- | --- | --- | --- |")
    for clients, faults in ((2, 2), (3, 1)):
        engine = test_engine.Model(clients, faults).search()
        what = f"acquisition | {clients} | {faults}"
        print(f"| {what} | {engine.states:,} | {engine.ends:,} | {engine.wrong or 0} |", flush=True)
    for modes, who in MODES.items():
        found = test_handoff.Model(modes, faults=2, ticks=2).search()
        what = f"hand-off on Redis, {who} | {len(modes)} | 2"
        print(f"| {what} | {found.states:,} | {found.ends:,} | {found.wrong or 0} |", flush=True)


if __name__ == "__main__":
    main()
