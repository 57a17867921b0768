"""The model of a queue agrees with queueing theory, where theory has an answer, and follows the rules of a queue."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate
from math import exp, factorial
from random import Random

import pytest

from tarry.core.analytics.simulation import Arrival, Course, Delivered, Scenario, course, difference, simulate
from tarry.core.errors import InvalidInput
from tarry.core.messages.retry import Retry

ARRIVALS = 40_000


def poisson(rate: float, *, service: float | None, seed: int = 7, n: int = ARRIVALS) -> list[Arrival]:
    """Arrivals at random with this many per second; service of exactly so long, or exponential with mean 1."""
    random = Random(seed)
    times = accumulate(random.expovariate(rate) for _ in range(n))
    return [Arrival(at, random.expovariate(1.0) if service is None else service) for at in times]


def waits_longer(workers: int, load: float, wait: float) -> float:
    """Erlang C for service of mean 1: the probability to wait for longer than this."""
    offered = workers * load
    queued = offered**workers / factorial(workers) / (1 - load)
    chance = queued / (sum(offered**k / factorial(k) for k in range(workers)) + queued)
    return chance * exp(-(workers - offered) * wait)


@pytest.mark.parametrize(("workers", "load"), [(1, 0.5), (3, 0.6), (8, 0.7)])
def test_exponential_service_waits_as_in_erlangs_formula(workers: int, load: float) -> None:
    result = simulate(poisson(workers * load, service=None), Scenario(workers=workers))
    mean = waits_longer(workers, load, 0) / (workers - workers * load)
    assert result.mean_lag_s == pytest.approx(mean, rel=0.15)
    assert waits_longer(workers, load, result.lag.p95) == pytest.approx(0.05, rel=0.4)
    assert result.busy == pytest.approx(load, rel=0.03)
    assert result.done == ARRIVALS


@pytest.mark.parametrize(("rate", "most"), [(1.0, 1.1), (2.0, 1.4)])
def test_equal_service_waits_as_in_pollaczeks_formula_and_rather_longer_at_twice_the_rate(
    rate: float, most: float
) -> None:
    load = 0.7
    result = simulate(poisson(load / rate, service=1.0, n=int(ARRIVALS / rate)), Scenario(workers=1, rate=rate))
    assert result.busy == pytest.approx(load, rel=0.03)
    assert 0.9 < result.mean_lag_s / (load / (2 * (1 - load))) < most


def test_half_the_rate_is_half_of_the_messages_and_twice_is_all_of_them_twice() -> None:
    arrivals = poisson(1.0, service=0.1, n=4_000)
    assert simulate(arrivals, Scenario(workers=4, rate=0.5)).messages == pytest.approx(2_000, rel=0.05)
    assert simulate(arrivals, Scenario(workers=4, rate=2.0)).messages == 8_000
    burst = [Arrival(0.0, 1.0)] * 10
    assert simulate(burst, Scenario(workers=1, rate=2.0)).drain_s == 20.0, "a burst stays one, twice as large"


def test_workers_take_the_highest_priority_and_then_the_earliest() -> None:
    arrivals = [Arrival(0.0, 10.0), Arrival(1.0, 1.0), Arrival(2.0, 1.0, priority=5), Arrival(3.0, 1.0, priority=5)]
    result = simulate(arrivals, Scenario(workers=1))
    assert (result.longest_lag_s, result.lag.p50) == (11.0, 8.0), "waits of 0, 8, 8 and 11 s"
    assert result.drain_s == 10.0


def test_failures_are_retried_after_the_back_off_until_no_attempt_is_left() -> None:
    retry = Retry(initial_for=timedelta(seconds=10), factor=2.0, jitter=0.0)
    twice = Arrival(0.0, 1.0, failures=2)
    assert simulate([twice], Scenario(workers=1, retry=retry)).drain_s == 1 + 10 + 1 + 20 + 1
    result = simulate([twice], Scenario(workers=1, retry=retry, max_attempts=2))
    assert (result.done, result.dead, result.drain_s) == (0, 1, 12.0)
    dead = Arrival(0.0, 1.0, failures=3, is_dead=True)
    assert simulate([dead], Scenario(workers=1, max_attempts=3)).dead == 1
    others = [Arrival(float(n), 0.1) for n in range(300)]
    more = simulate([dead, *others], Scenario(workers=1, max_attempts=9))
    assert (more.dead, more.done) == (0, 301), "with more attempts it may succeed: one in a hundred fails"
    buried = Arrival(0.0, 1.0, failures=1, is_dead=True, is_buried=True)
    assert simulate([buried], Scenario(workers=1, max_attempts=9)).drain_s == 1.0


def test_a_lost_lease_keeps_its_worker_and_is_delivered_again_at_once() -> None:
    result = simulate([Arrival(0.0, 1.0, losses=1)], Scenario(workers=1, lease_for_s=30.0))
    assert (result.done, result.drain_s) == (1, 31.0)
    assert simulate([Arrival(0.0, 1.0, losses=1)], Scenario(workers=1, max_attempts=1)).dead == 1


def test_a_message_that_was_dropped_in_time_is_not_delivered_and_workers_may_come_later() -> None:
    arrivals = [Arrival(0.0, 1.0, leaves_s=5.0), Arrival(0.0, 1.0, leaves_s=50.0)]
    result = simulate(arrivals, Scenario(workers=2, opens_s=10.0))
    assert (result.left, result.done, result.lag.p50) == (1, 1, 10.0)
    assert result.waiting[0] == 2
    assert result.waiting[-1] == 0


def test_equal_seeds_give_equal_courses() -> None:
    arrivals = poisson(1.0, service=None, n=500)
    first, again, other = (simulate(arrivals, Scenario(workers=2, rate=1.5, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_the_difference_to_a_recording_is_named() -> None:
    waited = course([Delivered(0.0, 2.0, 3.0, 1.0), Delivered(0.0, 3.0, 4.0, 1.0)], workers=1)
    assert difference(waited, waited, 1.0)[0] == 0.0
    sooner: Course = simulate([Arrival(0.0, 1.0)] * 2, Scenario(workers=1))
    assert difference(waited, sooner, 1.0) == (1.0, "p50 of the lag")


def test_a_scenario_needs_workers_and_a_rate() -> None:
    for given in ({"workers": 0}, {"workers": 1, "rate": 0.0}):
        with pytest.raises(InvalidInput):
            Scenario(**given)  # type: ignore[arg-type]
    assert simulate([], Scenario(workers=1)).messages == 0
