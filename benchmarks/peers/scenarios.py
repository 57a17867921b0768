"""What is measured. Every scenario gives each contender a turn per round, on one server, in a database of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from benchmarks.measure import Meter
from benchmarks.peers.contenders import Agent, Contender, Unsupported
from benchmarks.server import Server

NO_SUCH_CALL = "its public API has no such call"
"""What an agent reports where its adapter lacks a method."""
REAPED_WITHIN_S = 0.3
COLLAPSED = 3.0
"""A contender whose slowest round is so many times slower than its fastest has collapsed: ratios with it are void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes of a run."""

    rounds: int = 3
    seconds: float = 1.0
    """Of one turn."""
    minutes: float | None = 25.0
    """Of the run, installation excluded. A scenario whose share is over begins no further round; the first always ends."""
    consumers: tuple[int, ...] = (1, 2, 8)
    concurrency: tuple[int, ...] = (1, 64, 256)
    late: int = 50
    held_s: float = 300.0
    """Per contender; less where the minutes are limited."""
    future: tuple[int, ...] = (200_000,)
    in_flight: int = 50_000
    finished: tuple[int, ...] = (50_000,)
    dead: int = 2_000


STANDARD = Plan()
QUICK = Plan(
    rounds=2, seconds=0.3, minutes=8, consumers=(1, 2), concurrency=(1, 64), late=10, held_s=4, future=(5_000,),
    in_flight=2_000, finished=(5_000,), dead=200,
)  # fmt: skip
FULL = Plan(seconds=2.0, minutes=None, future=(1_000_000, 5_000_000), finished=(1_000_000, 10_000_000))

SHARES = {
    "produce": 2.0, "consume": 7.0, "stream": 0.5, "workers": 5.0, "lateness": 3.5, "held": 3.0, "future": 4.0,
    "in-flight": 1.0, "finished": 4.0, "death": 2.5,
}  # fmt: skip
"""Of the time of a run. What a scenario leaves goes to those after it."""


class Clock:
    """The time of a run, divided between its scenarios and between the parts of each."""

    def __init__(self, minutes: float | None, scenarios: Sequence[str]) -> None:
        self._started = time.monotonic()
        self._total_s = None if minutes is None else minutes * 60
        self._left = list(scenarios)
        self._parts = 1
        self._scenario_end = self.part_end = math.inf

    def begin(self, scenario: str) -> None:
        share = SHARES[scenario] / sum(SHARES[name] for name in self._left)
        self._left.remove(scenario)
        if self._total_s is not None:
            now = time.monotonic()
            self._scenario_end = now + share * max(0.0, self._started + self._total_s - now)
        self.divide(1)

    def divide(self, parts: int) -> None:
        """The scenario has so many parts of equal length."""
        self._parts = parts
        self.part_end = self._scenario_end

    def begin_part(self) -> None:
        now = time.monotonic()
        self.part_end = now + max(0.0, self._scenario_end - now) / max(1, self._parts)
        self._parts -= 1

    @property
    def left_s(self) -> float:
        """Of this part."""
        return max(0.0, self.part_end - time.monotonic())

    def __str__(self) -> str:
        spent = time.monotonic() - self._started
        if self._total_s is None:
            return f"{_minutes(spent)}, {len(self._left)} scenarios to come"
        return f"{_minutes(spent)}, {_minutes(max(0.0, self._total_s - spent))} left"


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


@dataclass(slots=True)
class Figure:
    """One turn of one contender."""

    n: int
    wall_s: float
    client_us: float = 0.0
    backend_us: float | None = None
    wal_bytes: float = 0.0
    commits: float = 0.0
    p50_ms: float | None = None
    p99_ms: float | None = None
    memory_mib: float = 0.0
    note: str | None = None
    void: str = ""
    """Why it cannot be compared: `did not reach the size`."""

    @property
    def rate(self) -> float:
        return self.n / self.wall_s if self.wall_s else 0.0


@dataclass(slots=True)
class Results:
    figures: dict[str, dict[str, list[Figure]]] = field(default_factory=dict)
    missing: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, measure: str, name: str, figure: Figure) -> None:
        self.figures.setdefault(measure, {}).setdefault(name, []).append(figure)

    def skip(self, measure: str, name: str, reason: str) -> None:
        self.missing.setdefault(measure, {})[name] = reason

    def median(self, measure: str, name: str, value: Callable[[Figure], float | None]) -> float | None:
        values = [v for figure in self.figures.get(measure, {}).get(name, ()) if (v := value(figure)) is not None]
        return median(values) if values else None

    def collapsed(self, measure: str, name: str) -> bool:
        rates = [figure.rate for figure in self.figures.get(measure, {}).get(name, ()) if figure.rate]
        return bool(rates) and max(rates) > COLLAPSED * min(rates)

    def void(self, measure: str, *names: str, of: str = "") -> str:
        """Why a ratio between these contenders means nothing; empty where it means something. `of`: only reasons of that."""
        for name in names:
            if self.collapsed(measure, name):
                return f"{name} collapsed"
            if reasons := {
                figure.void
                for figure in self.figures.get(measure, {}).get(name, ())
                if figure.void and of in figure.void
            }:
                return f"{name} {reasons.pop()}"
        return ""

    def ratio(
        self, measure: str, above: str, below: str, value: Callable[[Figure], float | None] = lambda f: f.rate
    ) -> float | None:
        """The median of the figures' ratios within each round."""
        by_name = self.figures.get(measure, {})
        pairs = [(value(a), value(b)) for a, b in zip(by_name.get(above, ()), by_name.get(below, ()), strict=False)]
        ratios = [a / b for a, b in pairs if a is not None and b]
        return median(ratios) if ratios else None


Progress = Callable[[str], None]


@dataclass(slots=True)
class Bench:
    plan: Plan
    server: Server
    contenders: Sequence[Contender]
    log: Path
    progress: Progress
    clock: Clock = field(default_factory=lambda: Clock(None, ()))
    results: Results = field(default_factory=Results)
    _databases: int = 0

    def meter_of(self, agent: Agent) -> Any:
        return Meter(self.server.admin)

    def database(self, contender: Contender) -> str:
        return self.server.database(f"{contender.slug}_{self._databases}")

    @contextmanager
    def agents(self, measures: Sequence[str], **options: Any) -> Generator[list[tuple[Agent, str]]]:
        """The contenders that can take part, each in a fresh database."""
        self._databases += 1
        with ExitStack() as stack:
            started: list[tuple[Agent, str]] = []
            for contender in self.contenders:
                if contender.missing:
                    self._skip(measures, contender, contender.missing)
                    continue
                dsn = self.database(contender)
                started.append((Agent(contender, dsn, self.log, **options), dsn))
                stack.callback(started[-1][0].close)
            present: list[tuple[Agent, str]] = []
            for agent, dsn in started:
                try:
                    present.append((agent.opened(), dsn))
                except Unsupported as reason:
                    self._skip(measures, agent.contender, str(reason))
            yield present

    def turns(
        self,
        measure: str,
        present: Sequence[tuple[Agent, str]],
        turn: Callable[[Agent, str], None],
        rounds: int | None = None,
    ) -> list[tuple[Agent, str]]:
        """Rounds of turns, at least one, until the time of this part is over. Returns those that took part to the end."""
        waiting = list(present)
        self.clock.begin_part()
        for number in range(self.plan.rounds if rounds is None else rounds):
            if number and not self.clock.left_s:
                break
            for agent, dsn in list(waiting):
                self.progress(f"{self.clock}: {measure}, round {number + 1}: {agent.contender.name}")
                try:
                    turn(agent, dsn)
                except Unsupported as reason:
                    self._skip((measure,), agent.contender, str(reason))
                    waiting.remove((agent, dsn))
        return waiting

    @contextmanager
    def helpers(self, agent: Agent, dsn: str, count: int, **options: Any) -> Generator[list[Agent]]:
        """More consumers of the same contender."""
        with ExitStack() as stack:
            helpers: list[Agent] = []
            for _ in range(count):
                helpers.append(Agent(agent.contender, dsn, self.log, create=False, **agent.shared, **options))
                stack.callback(helpers[-1].close)
            yield [helper.opened() for helper in helpers]

    def measured(self, measure: str, agent: Agent, call: str, helpers: Sequence[Agent] = (), **request: Any) -> Figure:
        """One call of an agent, or of several at once, with what it cost."""
        agents = [agent, *helpers]
        before = [each.cpu_s() for each in agents]
        meter = self.meter_of(agent)
        with meter.slice() as worked:
            for each in agents:
                each.send(call, **request)
            results = [each.receive() for each in agents]
            if spawned := call in ("work", "late"):
                # A worker brings its own connections. Their CPU is known once the server has reaped them.
                time.sleep(REAPED_WITHIN_S)
        client_s = sum(each.cpu_s() - cpu for each, cpu in zip(agents, before, strict=True))
        n = sum(result["n"] for result in results)
        if not n:
            raise Unsupported("nothing was delivered")
        # Where delays are measured, the rate is that of the sender, and no figure of the contender.
        wall_s = 0.0 if call == "late" else max(result["wall_s"] for result in results) or worked.wall_s
        sample = meter.sample(worked, n, wall_s=wall_s or worked.wall_s, spawned=spawned)
        figure = Figure(
            n=n,
            wall_s=wall_s,
            client_us=client_s / n * 1e6,
            backend_us=sample.backend_us,
            wal_bytes=sample.wal_per_message,
            commits=sample.commits_per_message,
            # They would not represent a worker's whole run.
            p50_ms=None if call == "work" else results[0].get("p50_ms"),
            p99_ms=None if call == "work" else max(result.get("p99_ms") or 0.0 for result in results),
            memory_mib=sum(each.memory_bytes() for each in agents) / 2**20,
            note=results[0].get("note"),
        )
        self.results.add(measure, agent.contender.name, figure)
        return figure

    def _skip(self, measures: Sequence[str], contender: Contender, reason: str) -> None:
        for measure in measures:
            self.results.skip(measure, contender.name, reason)


def produce(bench: Bench) -> None:
    measures = {"produce one": 1, "produce 1,000": 1_000}
    bench.clock.divide(len(measures))
    with bench.agents(list(measures)) as present:
        for measure, batch in measures.items():

            def turn(agent: Agent, dsn: str, measure: str = measure, batch: int = batch) -> None:
                bench.measured(measure, agent, "produce", seconds=bench.plan.seconds, batch=batch)

            bench.turns(measure, present, turn)


def consume(bench: Bench) -> None:
    parts = [
        (f"consume {what} × {count}", batch, count)
        for count in bench.plan.consumers
        for what, batch in (("one", 1), ("1,000", 1_000))
    ]
    bench.clock.divide(len(parts))
    with bench.agents([measure for measure, _, _ in parts]) as present:
        for measure, batch, count in parts:
            sizes: dict[str, int] = {}

            def turn(
                agent: Agent,
                dsn: str,
                measure: str = measure,
                batch: int = batch,
                count: int = count,
                sizes: dict[str, int] = sizes,
            ) -> None:
                name = agent.contender.name
                call, limit, request, note = _best(agent, batch, count)
                if name not in sizes:
                    # Ten times what a worker fetches at once: its time runs from the first job to the last.
                    least = batch if call == "consume" else 10 * request["concurrency"]
                    rate = _rate(bench, agent, call, limit, request, least=least)
                    sizes[name] = max(2 * least, int(rate * bench.plan.seconds * min(count, 2) / count))
                with bench.helpers(agent, dsn, count - 1) as helpers:
                    _fill(agent, count * sizes[name])
                    figure = bench.measured(measure, agent, call, helpers, **request, **{limit: sizes[name]})
                    figure.note = figure.note or note

            bench.turns(measure, present, turn)


def _fetches(agent: Agent, batch: int) -> bool:
    """Whether it has a call that fetches messages. Raises where it has one, but not for such batches."""
    try:
        agent.call("consume", seconds=0.0, batch=batch)
    except Unsupported as reason:
        if str(reason) != NO_SUCH_CALL:
            raise
        return False
    return True


def _best(agent: Agent, batch: int, count: int) -> tuple[str, str, dict[str, Any], str | None]:
    """How this contender consumes: the call, the name of its limit, its request, and a note where that is a worker."""
    if _fetches(agent, batch):
        return "consume", "most", {"seconds": 60.0, "batch": batch}, None
    if count > 1:
        raise Unsupported("it has no call that fetches: as a worker it is measured with one process")
    concurrency = 1 if batch == 1 else 256
    return "work", "n", {"concurrency": concurrency}, f"no call that fetches: a worker, concurrency {concurrency}"


def stream(bench: Bench) -> None:
    measure = "consume(), one durable ack each"
    with bench.agents((measure,)) as present:

        def turn(agent: Agent, dsn: str) -> None:
            n = int(bench.plan.seconds * 2_000)
            _fill(agent, n)
            bench.measured(measure, agent, "stream", seconds=60.0, most=n)

        bench.turns(measure, present, turn)


def workers(bench: Bench) -> None:
    measures = {f"worker, concurrency {concurrency}": concurrency for concurrency in bench.plan.concurrency}
    bench.clock.divide(len(measures))
    with bench.agents(list(measures)) as present:
        for measure, concurrency in measures.items():
            sizes: dict[str, int] = {}

            def turn(
                agent: Agent,
                dsn: str,
                measure: str = measure,
                concurrency: int = concurrency,
                sizes: dict[str, int] = sizes,
            ) -> None:
                name = agent.contender.name
                if name not in sizes:
                    # Ten times what is fetched at once: the time runs from the first job to the last.
                    least = 10 * concurrency
                    rate = _rate(bench, agent, "work", "n", {"concurrency": concurrency}, least=least)
                    sizes[name] = max(least, min(60_000, int(rate * bench.plan.seconds)))
                _fill(agent, sizes[name])
                bench.measured(measure, agent, "work", n=sizes[name], concurrency=concurrency)

            bench.turns(measure, present, turn)


def _rate(bench: Bench, agent: Agent, call: str, limit: str, request: dict[str, Any], *, least: int) -> float:
    """Messages per second, from a run that is long enough to size a turn."""
    n = max(10, least)
    while True:
        _fill(agent, n)
        wall_s = max(1e-3, agent.call(call, **request, **{limit: n})["wall_s"])
        if wall_s > bench.plan.seconds / 4 or n >= 20_000:
            return n / wall_s
        n = min(20_000, 5 * n)


def lateness(bench: Bench) -> None:
    measures = {"lateness, idle": (0.2, 1), "lateness, 100 jobs/s": (0.01, 5)}
    with bench.agents(list(measures)) as present:
        for measure, (every_s, times) in measures.items():

            def turn(
                agent: Agent, dsn: str, measure: str = measure, every_s: float = every_s, times: int = times
            ) -> None:
                bench.measured(measure, agent, "late", n=bench.plan.late * times, every_s=every_s)

            bench.turns(measure, present, turn, rounds=1)


HELD = ("held snapshot, first tenth", "held snapshot, last tenth")


def held_snapshot(bench: Bench) -> None:
    slices = 10
    with bench.agents(HELD) as present, ExitStack() as stack:
        for _, dsn in present:
            holder = stack.enter_context(psycopg.connect(dsn))
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("select 1")
        # At least as long as ten cycles need: a slice measures the last of its cycles.
        seconds = min(bench.plan.held_s, bench.clock.left_s / max(1, len(present)))
        able = present
        for number in range(slices):
            measure = HELD[0] if number == 0 else HELD[1] if number == slices - 1 else None
            able = bench.turns(
                measure or "held snapshot",
                able,
                lambda agent, dsn, measure=measure: _cycle(bench, measure, agent, seconds / slices),
                rounds=1,
            )


def _cycle(bench: Bench, measure: str | None, agent: Agent, seconds: float) -> None:
    """Produce and consume in batches of 100, for some seconds; where it is measured, at the end of them."""
    n = 1_000 if _fetches(agent, 100) else 200  # a worker starts anew in each cycle
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        agent.call("produce", batch=100, most=n)
        _take(bench, None, agent, n)
    if measure:
        agent.call("produce", batch=100, most=n)
        _take(bench, measure, agent, n)


def future(bench: Bench) -> None:
    bench.clock.divide(2 * len(bench.plan.future))
    for size in bench.plan.future:
        _beside(
            bench,
            f"{size:,} future",
            size,
            lambda agent, n: agent.call("produce", batch=1_000, most=n, delay_s=86_400),
        )


def in_flight(bench: Bench) -> None:
    bench.clock.divide(2)

    def lease(agent: Agent, n: int) -> None:
        _fill(agent, n)
        agent.call("poll_only", n=n)

    _beside(bench, f"{bench.plan.in_flight:,} in flight", bench.plan.in_flight, lease)


def finished(bench: Bench) -> None:
    bench.clock.divide(2 * len(bench.plan.finished))

    def finish(agent: Agent, n: int) -> None:
        _fill(agent, n)
        _take(bench, None, agent, n, batch=1_000)

    for size in bench.plan.finished:
        _beside(bench, f"{size:,} finished", size, finish)


def empty_before(what: str) -> str:
    return f"batches of 100, empty (before {what})"


def _beside(bench: Bench, what: str, size: int, prepare: Callable[[Agent, int], Any]) -> None:
    """Produce and consume 100 at a time, in an empty queue and in one beside so many messages, in turns: a machine that
    becomes slower meanwhile slows down both."""
    empty, full = empty_before(what), f"batches of 100, {what}"
    reached: dict[str, int] = {}
    sizes: dict[str, int] = {}
    with bench.agents((empty,)) as unused, bench.agents((full,)) as present:
        beside_none = {agent.contender.name: agent for agent, _ in unused}

        def turn(measure: str | None, agent: Agent, n: int) -> None:
            agent.call("produce", batch=100, most=n)
            _take(bench, measure, agent, n)

        def prepared(agent: Agent, dsn: str) -> None:
            """In steps, for at most twice this contender's share of the time that is left: fast ones need less."""
            share_s = (
                math.inf if agent.contender.whole else 2 * bench.clock.left_s / max(1, len(present) - len(reached))
            )
            end, done = time.monotonic() + share_s, 0
            while done < size and (not done or time.monotonic() < end):
                step = min(10_000 if done else 1_000, size - done)
                prepare(agent, step)
                done += step
            reached[agent.contender.name] = done

        def both(agent: Agent, dsn: str) -> None:
            name = agent.contender.name
            if name not in sizes:
                sizes[name] = _size_of_turn(bench, beside_none[name], turn)
            turn(empty, beside_none[name], sizes[name])
            turn(full, agent, sizes[name])
            if reached[name] < size:
                figure = bench.results.figures[full][name][-1]
                figure.void, figure.note = (
                    "did not reach the size",
                    f"with {reached[name]:,}: no more in the time for it",
                )

        able = bench.turns(full, present, prepared, rounds=1)
        bench.turns(full, able, both)


def _size_of_turn(bench: Bench, agent: Agent, turn: Callable[[None, Agent, int], None]) -> int:
    """Fast contenders consume for as long as slow ones, so that single pauses of the machine count less."""
    n = max(200, int(bench.plan.seconds * 2_000))
    if not _fetches(agent, 100):
        return n
    started = time.monotonic()
    turn(None, agent, n)
    rate = n / (time.monotonic() - started)
    return max(n, min(20_000, int(bench.plan.seconds * rate)) // 100 * 100)


def death(bench: Bench) -> None:
    """Consumers die with so many leases of five seconds: how soon are all of them delivered again?"""
    measure, n, lease_s = f"{bench.plan.dead:,} leases of 5 s, consumer killed", bench.plan.dead, 5.0
    with bench.agents((measure,), lease_s=lease_s) as present:

        def turn(agent: Agent, dsn: str) -> None:
            with bench.helpers(agent, dsn, 1, lease_s=lease_s) as (victim,):
                _fill(agent, n)
                victim.call("poll_only", n=n)
                victim.kill()
            started, back = time.monotonic(), 0
            while back < n and time.monotonic() - started < 60:
                back += agent.call("consume", seconds=1.0, batch=1_000)["n"]
                time.sleep(0.05)
            if back < n:
                raise Unsupported(f"{back:,} of {n:,} were delivered again within a minute")
            bench.results.add(measure, agent.contender.name, Figure(n=n, wall_s=time.monotonic() - started))

        bench.turns(measure, present, turn, rounds=1)


SCENARIOS: dict[str, Callable[[Bench], None]] = {
    "produce": produce,
    "consume": consume,
    "stream": stream,
    "workers": workers,
    "lateness": lateness,
    "held": held_snapshot,
    "future": future,
    "in-flight": in_flight,
    "finished": finished,
    "death": death,
}


def _fill(agent: Agent, n: int) -> None:
    for batch, most in ((1_000, n - n % 1_000), (n % 1_000, n % 1_000)):
        if most:
            agent.call("produce", batch=batch, most=most)


def _take(bench: Bench, measure: str | None, agent: Agent, n: int, batch: int = 100) -> None:
    """Consume so many in batches, or by a worker where there is no other way."""
    if _fetches(agent, batch):
        request: dict[str, Any] = {"call": "consume", "seconds": 60.0, "batch": batch, "most": n}
    else:
        request = {"call": "work", "n": n, "concurrency": 64}
    if measure is None:
        agent.call(**request)
        return
    figure = bench.measured(measure, agent, **request)
    if request["call"] == "work":
        # It may have fetched all of them before the first was handled, where its time begins.
        figure.note, figure.void = (
            "by a worker, whose start counts: compare its slow-down",
            "consumes by a worker, few jobs",
        )
