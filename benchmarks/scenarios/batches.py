"""A thousand messages per call: few commits, so what counts is CPU and WAL."""

from __future__ import annotations

import uuid

from benchmarks.bench import Bench, Turn
from benchmarks.contenders.protocol import Contender, Session, Unavailable
from benchmarks.scenarios.measures import CONSUME_MANY, OFFER_MANY, OFFER_MANY_KEYED

MEASURES = (OFFER_MANY, CONSUME_MANY, OFFER_MANY_KEYED)


def run(bench: Bench) -> None:
    def turn_of(contender: Contender, session: Session) -> Turn:
        def turn() -> None:
            _generated(bench, contender.name, session)
            _keyed(bench, contender.name, session)

        return turn

    with bench.sessions(MEASURES) as present:
        for _, session in present:
            for _ in range(
                6
            ):  # psycopg prepares what it sees for the fifth time, and PostgreSQL what it plans for the sixth
                session.offer_many(bench.bodies(bench.plan.batch))
                consume_many(session, bench.plan.batch, bench.plan.batch)
        turns = [(contender.name, MEASURES, turn_of(contender, session)) for contender, session in present]
        bench.rounds(f"batches of {bench.plan.batch:,}", turns)


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
    batches = [
        (bench.bodies(bench.plan.batch), [str(uuid.uuid4()) for _ in range(bench.plan.batch)])
        for _ in range(bench.plan.batches)
    ]
    n = bench.plan.batch * bench.plan.batches
    with bench.meter.slice() as offered:
        for batch, keys in batches:
            session.offer_many(batch, keys)
    bench.results.add(OFFER_MANY_KEYED, name, bench.meter.sample(offered, n))
    bench.results.note_lost(name, consume_many(session, n, bench.plan.batch))


def consume_many(session: Session, n: int, batch: int) -> int:
    """How many more were taken than asked for: a queue that does this loses them."""
    taken = lost = 0
    while taken < n:
        asked = min(batch, n - taken)
        held, found = session.poll_many(asked)
        if not found:
            raise Unavailable("it handed out fewer messages than were offered")
        session.ack_many(held)
        taken += found
        lost += max(0, found - asked)
    return lost
