"""A discrete-event model of one queue: recorded arrivals and service times, replayed with other workers, retries or load.

Workers take the ready message with the highest priority, then the earliest due one, as a poll does. A failed attempt is
retried after the back-off of the policy, and the last one allowed makes a dead letter. Seconds count from the start of the
recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf
from random import Random
from typing import NamedTuple

from tarry.core.analytics.metrics import Quantiles
from tarry.core.errors import InvalidInput
from tarry.core.messages.retry import Retry

POINTS = 60
"""Points in each series of a result."""
NOISE_S = 0.05
"""Smaller differences come from wakeups and round trips, which are not modelled."""

_NEIGHBOURS = 20
"""Copies of an arrival are spread over this many following arrivals. If they were placed only in the gap before the next
arrival, short gaps would split into two shorter ones: for Poisson arrivals doubled to a load of 0.7, the median wait was 2.2
times the theoretical one. A recording does not distinguish chance from demand, so random peaks are doubled as well, and the
mean wait is still 1.3 times the theoretical one."""


class Arrival(NamedTuple):
    """One message. `at_s`: when it is both offered and due, and so deliverable."""

    at_s: float
    service_s: float
    """How long each attempt occupies a worker."""
    priority: int = 0
    failures: int = 0
    """Attempts that failed."""
    losses: int = 0
    """Attempts whose lease expired; they come first."""
    is_dead: bool = False
    """It failed all its attempts. Any further attempt fails with the overall failure rate."""
    is_buried: bool = False
    """Its handler buried it, under any retry policy."""
    leaves_s: float = inf
    """When it was dropped or replaced: it is not delivered after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    workers: int
    """Messages that are processed at the same time, by all consumers together."""
    retry: Retry = field(default_factory=Retry)
    max_attempts: int | None = None
    lease_for_s: float = 30.0
    rate: float = 1.0
    """Load as a multiple of the recorded one."""
    opens_s: float = 0.0
    """When the workers start."""
    seed: int = 1

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InvalidInput(f"workers must be at least 1, got {self.workers}")
        if not 0 < self.rate <= 1000:
            raise InvalidInput(f"rate must be more than 0 and at most 1000, got {self.rate}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Statistics of the messages in a recording or in a simulation."""

    messages: int
    done: int
    dead: int
    left: int
    """Dropped or replaced before they were delivered."""
    lag: Quantiles
    """From ready to the first delivery."""
    mean_lag_s: float
    longest_lag_s: float
    drain_s: float
    """From the last arrival to the end of the last message."""
    busy: float
    """Share of the workers' time that was used."""
    step_s: float
    waiting: tuple[int, ...]
    """Maximum number of waiting messages in each step, as the points of a chart."""


class Delivered(NamedTuple):
    """The course of one message. `start_s` is None if it was never delivered."""

    ready_s: float
    start_s: float | None
    end_s: float
    worked_s: float
    is_dead: bool = False


def simulate(arrivals: Sequence[Arrival], scenario: Scenario) -> Course:
    """Run the model. Equal arguments give equal results."""
    random = Random(scenario.seed)  # noqa: S311 - a simulation
    messages = _at_rate(sorted(arrivals), scenario.rate, random)
    failing = _failure_rate(arrivals)
    retry, most = scenario.retry, scenario.max_attempts or inf
    # At equal times workers become free first, and all messages of the instant are ready before one is chosen.
    future: list[
        tuple[float, int, int, int]
    ] = []  # seconds, 0: a worker is free or 1: a message is ready, message, attempt
    for n, message in enumerate(messages):
        heappush(future, (message.at_s, 1, n, 0))
    if scenario.opens_s > 0:
        heappush(future, (scenario.opens_s, 0, -1, 0))
    ready: list[tuple[int, float, int, int]] = []
    free = scenario.workers if scenario.opens_s <= 0 else 0
    starts: list[float | None] = [None] * len(messages)
    worked = [0.0] * len(messages)
    ends: list[Delivered | None] = [None] * len(messages)

    def settle(n: int, now: float, *, is_dead: bool) -> None:
        ends[n] = Delivered(messages[n].at_s, starts[n], now, worked[n], is_dead)

    while future:
        now = future[0][0]
        while future and future[0][0] == now:
            _, is_message, n, attempt = heappop(future)
            if is_message:
                heappush(ready, (-messages[n].priority, now, n, attempt))
                continue
            if n < 0:
                free += scenario.workers
                continue
            free += 1
            message = messages[n]
            is_lost = attempt <= message.losses
            recorded = message.losses + message.failures
            if attempt <= recorded or (message.is_dead and random.random() < failing):
                if attempt >= most or (message.is_buried and attempt >= recorded):
                    settle(n, now, is_dead=True)
                else:
                    delay = 0.0 if is_lost else retry.delay(attempt, random.random()).total_seconds()
                    heappush(future, (now + delay, 1, n, attempt))
            else:
                settle(n, now, is_dead=False)
        while free and ready:
            _, _, n, attempt = heappop(ready)
            message = messages[n]
            if message.leaves_s <= now:
                settle(n, message.leaves_s, is_dead=False)
                continue
            if starts[n] is None:
                starts[n] = now
            took = scenario.lease_for_s if attempt < message.losses else message.service_s
            worked[n] += took
            free -= 1
            heappush(future, (now + took, 0, n, attempt + 1))
    return course([end for end in ends if end is not None], scenario.workers)


def course(messages: Sequence[Delivered], workers: int) -> Course:
    """Statistics of a recording, or of one simulation."""
    first = min((of.ready_s for of in messages), default=0.0)
    last = max((of.ready_s for of in messages), default=0.0)
    end = max((of.end_s for of in messages), default=0.0)
    step = max((end - first) / POINTS, 1e-6)
    lags = sorted(of.start_s - of.ready_s for of in messages if of.start_s is not None)
    dead = sum(of.is_dead for of in messages)
    return Course(
        messages=len(messages),
        done=len(lags) - dead,
        dead=dead,
        left=len(messages) - len(lags),
        lag=Quantiles(*(_rank(lags, share) for share in (0.5, 0.95, 0.99))),
        mean_lag_s=sum(lags) / max(len(lags), 1),
        longest_lag_s=lags[-1] if lags else 0.0,
        drain_s=max(end - last, 0.0),
        busy=min(sum(of.worked_s for of in messages) / (workers * max(end - first, 1e-6)), 1.0),
        step_s=step,
        waiting=_waiting(messages, first, step),
    )


def difference(recorded: Course, simulated: Course, service_s: float) -> tuple[float, str]:
    """The largest deviation of the model from a recording, and the name of that number. Deviations are relative to the
    recorded value or the mean service time, whichever is longer.
    """
    shortest = max(service_s, NOISE_S)
    numbers = (
        ("p50 of the lag", recorded.lag.p50, simulated.lag.p50, shortest),
        ("p95 of the lag", recorded.lag.p95, simulated.lag.p95, shortest),
        ("p99 of the lag", recorded.lag.p99, simulated.lag.p99, shortest),
        ("drain time", recorded.drain_s, simulated.drain_s, shortest),
        ("number of dead letters", recorded.dead, simulated.dead, max(0.01 * recorded.messages, 1)),
    )
    return max((abs(then - now) / max(then, least), name) for name, then, now, least in numbers)


def _at_rate(arrivals: Sequence[Arrival], rate: float, random: Random) -> list[Arrival]:
    """The arrivals multiplied by `rate`, with copies spread over the following arrivals: bursts stay bursts and grow, and
    independent arrivals stay independent.
    """
    if rate == 1.0:
        return list(arrivals)
    messages: list[Arrival] = []
    for n, arrival in enumerate(arrivals):
        times = int(rate) + (random.random() < rate % 1)
        gap = arrivals[min(n + _NEIGHBOURS, len(arrivals) - 1)].at_s - arrival.at_s
        moved = (0.0, *(gap * random.random() for _ in range(times - 1)))
        messages += [arrival._replace(at_s=arrival.at_s + by, leaves_s=arrival.leaves_s + by) for by in moved[:times]]
    return sorted(messages)


def _failure_rate(arrivals: Iterable[Arrival]) -> float:
    """Share of attempts that fail, for attempts beyond the recorded ones of a dead letter."""
    failed = attempts = 0
    for arrival in arrivals:
        failed += arrival.failures
        attempts += arrival.failures + (not arrival.is_dead)
    return min(failed / attempts, 0.99) if attempts else 0.0


def _rank(values: Sequence[float], share: float) -> float:
    return values[max(ceil(share * len(values)) - 1, 0)] if values else 0.0


def _waiting(messages: Sequence[Delivered], first: float, step: float) -> tuple[int, ...]:
    changes = sorted(
        change for of in messages for change in ((of.ready_s, 1), (of.end_s if of.start_s is None else of.start_s, -1))
    )
    most, now = [0] * POINTS, 0
    reached = 0
    for second, by in changes:
        at = min(int((second - first) / step), POINTS - 1)
        for n in range(reached, at + 1):
            most[n] = max(most[n], now)
        reached, now = at, now + by
        most[at] = max(most[at], now)
    return tuple(most)
