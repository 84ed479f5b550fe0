"""Backoff: bounds, growth and jitter of the sleeps."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from django_distlock.core.backoff import delays

SHORTEST = st.floats(0.0001, 1.0)
FACTOR = st.floats(1.0, 1000.0)


@given(SHORTEST, FACTOR)
def test_each_delay_is_between_half_and_all_of_its_step(shortest: float, factor: float) -> None:
    longest = shortest * factor
    step = shortest
    for delay in islice(delays(shortest, longest), 30):
        assert step / 2 <= delay <= step <= longest
        step = min(step * 2, longest)
    assert step == longest or factor > 2**30


def test_the_defaults_begin_at_5_ms_and_stay_below_100_ms() -> None:
    sleeps = list(islice(delays(), 50))
    assert 0.0025 <= sleeps[0] <= 0.005
    assert all(0.05 <= sleep <= 0.1 for sleep in sleeps[5:])


def test_two_waiters_do_not_stay_together() -> None:
    one, other = (list(islice(delays(), 20)) for _ in range(2))
    # All twenty jitters equal: less likely than a fault of the memory that holds them.
    assert one != other
    assert len(set(one[5:])) > 1


def test_a_longest_below_the_shortest_wins_from_the_second_on() -> None:
    first, *rest = islice(delays(0.2, 0.1), 5)
    assert first <= 0.2
    assert all(0.05 <= sleep <= 0.1 for sleep in rest)
