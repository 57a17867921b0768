"""A poll with a great many messages in its way, against the same poll with none: in flight, not yet due, or all ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks.bench import Bench, Turn
from benchmarks.contenders import TARRY_BARE
from benchmarks.contenders.protocol import Contender, Session, Unavailable
from benchmarks.scenarios.measures import EMPTY, POLL_FUTURE, POLL_IN_FLIGHT, POLL_READY

Obstruct = Callable[[Contender, str], None]


def run_in_flight(bench: Bench) -> None:
    n = bench.plan.in_flight

    def lease(contender: Contender, dsn: str) -> None:
        contender.fill(dsn, n, due_in_s=-60)
        session = contender.open(dsn, durable=bench.plan.durable)
        leased = 0
        while leased < n:
            _, polled = session.poll_many(min(bench.plan.batch, n - leased))
            if not polled:
                raise Unavailable("it handed out fewer messages than were offered")
            leased += polled
        session.close()

    _compare(bench, POLL_IN_FLIGHT, f"poll with {n:,} in flight", lease)
    bench.results.facts["in_flight"] = n


def run_future(bench: Bench) -> None:
    n = bench.plan.future
    _compare(
        bench,
        POLL_FUTURE,
        f"poll with {n:,} in the future",
        lambda contender, dsn: contender.fill(dsn, n, due_in_s=3_600),
    )
    bench.results.facts["future"] = n


def run_ready(bench: Bench) -> None:
    n = bench.plan.ready
    _compare(
        bench,
        POLL_READY,
        f"poll with {n:,} ready",
        lambda contender, dsn: contender.fill(dsn, n, due_in_s=-3_600),
    )
    bench.results.facts["ready"] = n


def _compare(bench: Bench, measure: str, title: str, obstruct: Obstruct) -> None:
    """The consumer is connected, and its plans are made, before there is anything in its way."""
    with ExitStack() as stack:
        turns: list[tuple[str, Sequence[str], Turn]] = []
        for contender in bench.contenders:
            if contender.name == TARRY_BARE:  # with the journal on it has more to carry; once is enough
                continue
            for purpose, name in (("clear", contender.name + EMPTY), ("obstructed", contender.name)):
                dsn = bench.database(contender, purpose)
                bench.clear(dsn, contender)
                session = contender.open(dsn, durable=bench.plan.durable)
                stack.callback(session.close)
                _poll(bench, session, bench.plan.warm_up)
                if purpose == "obstructed":
                    bench.progress.show(f"{title}: preparing {contender.name}")
                    obstruct(contender, dsn)
                bench.settle(dsn, contender)
                _poll(bench, session, bench.plan.warm_up)
                turns.append((name, (measure,), _turn(bench, measure, name, session)))
        bench.rounds(title, turns)


def _turn(bench: Bench, measure: str, name: str, session: Session) -> Turn:
    def turn() -> None:
        _poll(bench, session, bench.plan.polls, measure, name)

    return turn


def _poll(bench: Bench, session: Session, n: int, measure: str | None = None, name: str = "") -> None:
    """Only the polls are measured. What they leased is acked afterwards, so the next turn finds the same."""
    session.offer_many(bench.bodies(n))
    with bench.meter.slice() as polled:
        held = [session.poll_one() for _ in range(n)]
    if None in held:
        raise Unavailable("it handed out fewer messages than were offered")
    if measure is not None:
        bench.results.add(measure, name, bench.meter.sample(polled, n))
    for delivery in held:
        session.ack_one(delivery)
