"""Twenty thousand messages in one call, against a bare COPY into the same table."""

from __future__ import annotations

import json

from benchmarks.bench import Bench, Turn, body
from benchmarks.contenders import ceilings
from benchmarks.contenders.protocol import Contender, Session
from benchmarks.scenarios.measures import OFFER_BULK

MEASURES = (OFFER_BULK,)


def run(bench: Bench) -> None:
    raw = ceilings.RawCopy(json.dumps(body(0)).encode())
    n = bench.plan.bulk

    def turn_of(contender: Contender, session: Session) -> Turn:
        def turn() -> None:
            bodies = bench.bodies(n)
            with bench.meter.slice() as offered:
                session.offer_many(bodies)
            bench.results.add(OFFER_BULK, contender.name, bench.meter.sample(offered, n))
            bench.clear(bench.database(contender), contender)

        return turn

    def ceiling() -> None:
        bench.results.add(OFFER_BULK, raw.name, raw.run(bench.ceiling_database(), n, bench.meter))
        ceilings.clear(bench.ceiling_database())

    with bench.sessions(MEASURES) as present:
        turns = [(contender.name, MEASURES, turn_of(contender, session)) for contender, session in present]
        bench.rounds(f"batches of {n:,}", [*turns, (raw.name, MEASURES, ceiling)])
