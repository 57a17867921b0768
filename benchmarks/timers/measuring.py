"""One contender with one number of timers. Each measurement has a process of its own: no garbage of those before it."""

from __future__ import annotations

import math
import random
import time
import tracemalloc
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any

from benchmarks.timers.contenders import CANCELLED, CONTENDERS, Contender

FAR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Plan:
    sizes: tuple[int, ...] = (100, 10_000, 1_000_000)
    window_s: float = 2.0
    """The timers that fire are spread over this long."""
    fires: int = 10_000
    """At most so many of them fire in the window: 5,000 a second. The others are an hour away."""
    popped: int = 20_000
    """At most so many are taken to see what taking one costs."""
    cancelled: int = 1_000
    idle_s: float = 1.0
    weighed: int = 100_000
    """At most so many are weighed: what one takes does not depend on how many there are."""


@dataclass(frozen=True, slots=True)
class Figures:
    contender: str
    timers: int
    start_us: float
    """CPU per timer, with all the others waiting."""
    cancel_us: float
    fire_us: float
    bytes: float
    """Memory per timer; of threads only what Python knows of, not their stacks."""
    idle_percent: float
    """CPU of one core, while nothing is due for a long time."""
    busy_percent: float
    """CPU of one core, while timers fire."""
    late_p50_us: float
    late_p99_us: float
    late_max_us: float


def measured(name: str, n: int, plan: Plan) -> Figures:
    chance = random.Random(n)
    cancelled = CANCELLED.get(name, plan.cancelled)

    def fresh() -> AbstractContextManager[Contender]:
        return closing(CONTENDERS[name]())

    fires = min(n, plan.fires)
    with fresh() as contender:
        started, start_us = _start(contender, n - fires or n, chance)
        idle = _idle(contender, plan)
        cancel_us = _cancel(contender, chance.sample(started, min(len(started), cancelled)))
        late, busy = _fire(contender, fires, plan, chance)
    with fresh() as contender:
        fire_us = _take_what_is_due(contender, n, chance, min(n, plan.popped))
    with fresh() as contender:
        weight = _weigh(contender, min(n, plan.weighed), chance)
    return Figures(
        contender=name,
        timers=n,
        start_us=start_us,
        cancel_us=cancel_us,
        fire_us=fire_us,
        bytes=weight,
        idle_percent=idle,
        busy_percent=busy,
        late_p50_us=_quantile(late, 0.5) * 1e6,
        late_p99_us=_quantile(late, 0.99) * 1e6,
        late_max_us=late[-1] * 1e6,
    )


def _start(contender: Contender, n: int, chance: random.Random) -> tuple[list[Any], float]:
    """Timers that are far away, and what each of them cost to start."""
    dues = _far(n, chance)
    before = time.process_time()
    started = [contender.start(due) for due in dues]
    return started, (time.process_time() - before) / n * 1e6


def _cancel(contender: Contender, timers: list[Any]) -> float:
    before = time.process_time()
    for timer in timers:
        contender.cancel(timer)
    return (time.process_time() - before) / len(timers) * 1e6


def _take_what_is_due(contender: Contender, n: int, chance: random.Random, taken: int) -> float:
    """Due items in random order: the cost of taking, without waiting."""
    now = time.monotonic()
    for due in [*_far(n - taken, chance), *(now - 10 * chance.random() for _ in range(taken))]:
        contender.start(due)
    before = time.process_time()
    contender.collect(taken)
    return (time.process_time() - before) / taken * 1e6


def _weigh(contender: Contender, n: int, chance: random.Random) -> float:
    dues = _far(n, chance)
    kept: list[Any] = [None] * n
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for i, due in enumerate(dues):
        kept[i] = contender.start(due)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / n


def _idle(contender: Contender, plan: Plan) -> float:
    cpu, wall = time.process_time(), time.monotonic()
    contender.idle(plan.idle_s)
    return 100 * (time.process_time() - cpu) / (time.monotonic() - wall)


def _fire(contender: Contender, fires: int, plan: Plan, chance: random.Random) -> tuple[list[float], float]:
    """Lateness, sorted, and the CPU it took."""
    begin = time.monotonic() + 0.2
    for at in chance.sample(range(fires), fires):
        contender.start(begin + at / fires * plan.window_s)
    cpu, wall = time.process_time(), time.monotonic()
    late = sorted(contender.collect(fires))
    return late, 100 * (time.process_time() - cpu) / (time.monotonic() - wall)


def _far(n: int, chance: random.Random) -> list[float]:
    """Between one and two hours from now."""
    now = time.monotonic()
    return [now + FAR_S * (1 + chance.random()) for _ in range(n)]


def _quantile(values: list[float], share: float) -> float:
    return values[math.ceil(share * len(values)) - 1]
