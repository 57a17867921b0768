"""A thousand messages per call: few commits, so what counts is CPU and WAL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from benchmarks.bench import Bench, Turn
from benchmarks.contenders import PROTOTYPE
from benchmarks.contenders.protocol import Contender, Session, Unavailable
from benchmarks.scenarios.measures import CONSUME_MANY, OFFER_MANY, OFFER_MANY_KEYED

MEASURES = (OFFER_MANY, CONSUME_MANY)


def run(bench: Bench) -> None:
    _run(bench, f"batches of {bench.plan.batch:,}", MEASURES, "main", _generated)


def run_keyed(bench: Bench) -> None:
    """In a database of its own: keys that grow and keys that do not would spoil each other's index."""
    _run(bench, f"batches of {bench.plan.batch:,}, random keys", (OFFER_MANY_KEYED,), "keyed", _keyed)


def _run(
    bench: Bench, title: str, measures: Sequence[str], purpose: str, work: Callable[[Bench, str, Session], None]
) -> None:
    def turn_of(contender: Contender, session: Session) -> Turn:
        return lambda: work(bench, contender.name, session)

    with bench.sessions(measures, purpose, (PROTOTYPE,) if purpose == "main" else ()) as present:
        for _, session in present:
            # psycopg prepares what it sees for the sixth time, and PostgreSQL may keep a plan five times after that.
            for _ in range(min(12, bench.plan.warm_up)):
                session.offer_many(bench.bodies(bench.plan.batch), random_keys(bench) if purpose == "keyed" else None)
                consume_many(session, bench.plan.batch, bench.plan.batch)
        turns = [(contender.name, measures, turn_of(contender, session)) for contender, session in present]
        bench.rounds(title, turns)


def _generated(bench: Bench, name: str, session: Session) -> None:
    batches = [bench.bodies(bench.plan.batch) for _ in range(bench.plan.batches)]
    n = bench.plan.batch * bench.plan.batches
    with bench.meter.slice() as offered:
        for batch in batches:
            session.offer_many(batch)
    bench.results.add(OFFER_MANY, name, bench.meter.sample(offered, n))
    with bench.meter.slice() as consumed:
        lost = consume_many(session, n, bench.plan.batch)
    bench.results.note_lost(name, lost)
    bench.results.add(CONSUME_MANY, name, bench.meter.sample(consumed, n))


def _keyed(bench: Bench, name: str, session: Session) -> None:
    batches = [(bench.bodies(bench.plan.batch), random_keys(bench)) for _ in range(bench.plan.batches)]
    n = bench.plan.batch * bench.plan.batches
    with bench.meter.slice() as offered:
        for batch, keys in batches:
            session.offer_many(batch, keys)
    bench.results.add(OFFER_MANY_KEYED, name, bench.meter.sample(offered, n))
    bench.results.note_lost(name, consume_many(session, n, bench.plan.batch))


def random_keys(bench: Bench) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(bench.plan.batch)]


def consume_many(session: Session, n: int, batch: int) -> int:
    """Number of messages leased beyond the limit: they are lost."""
    taken = lost = 0
    while taken < n:
        limit = min(batch, n - taken)
        held, polled = session.poll_many(limit)
        if not polled:
            raise Unavailable("it handed out fewer messages than were offered")
        session.ack_many(held)
        taken += polled
        lost += max(0, polled - limit)
    return lost
