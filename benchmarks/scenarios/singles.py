"""One message per call, one client: every message pays for its own commit."""

from __future__ import annotations

import json

from benchmarks.bench import Bench, Turn, body
from benchmarks.contenders import ceilings
from benchmarks.contenders.protocol import Session, consume_one_by_one
from benchmarks.scenarios.measures import CONSUME_LOOP, CONSUME_ONE, OFFER_ONE

MEASURES = (OFFER_ONE, CONSUME_ONE, CONSUME_LOOP)


def run(bench: Bench) -> None:
    pgbench = ceilings.PgbenchInsert(1, json.dumps(body(0)).encode())

    def turn_of(name: str, session: Session) -> Turn:
        def turn() -> None:
            n = bench.plan.singles
            bodies = bench.bodies(n)
            with bench.meter.slice() as offered:
                for payload in bodies:
                    session.offer_one(payload)
            bench.results.add(OFFER_ONE, name, bench.meter.sample(offered, n))
            with bench.meter.slice() as consumed:
                consume_one_by_one(session, n)
            bench.results.add(CONSUME_ONE, name, bench.meter.sample(consumed, n))
            session.offer_many(bodies)
            with bench.meter.slice() as looped:
                session.consume(n)
            bench.results.add(CONSUME_LOOP, name, bench.meter.sample(looped, n))

        return turn

    def ceiling() -> None:
        sample = pgbench.run(bench.ceiling_database(), bench.plan.singles, bench.meter)
        for measure in MEASURES:
            bench.results.add(measure, pgbench.name, sample)

    with bench.sessions(MEASURES) as present:
        for _, session in present:
            for payload in bench.bodies(bench.plan.warm_up):
                session.offer_one(payload)
            consume_one_by_one(session, bench.plan.warm_up)
        turns = [(contender.name, MEASURES, turn_of(contender.name, session)) for contender, session in present]
        bench.rounds("one by one", [*turns, (pgbench.name, MEASURES, ceiling)])
