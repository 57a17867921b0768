"""Several consumers at once, each a process of its own, one ack per message."""

from __future__ import annotations

import json
import multiprocessing
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from benchmarks.bench import Bench, Turn, body
from benchmarks.contenders import ceilings
from benchmarks.contenders.protocol import Contender, Session
from benchmarks.scenarios.measures import CONSUME_CROWD

MEASURES = (CONSUME_CROWD,)
_SURPLUS = 60
"""Messages per consumer that stay in the queue."""


def run(bench: Bench) -> None:
    consumers = bench.plan.consumers
    pgbench = ceilings.PgbenchInsert(consumers, json.dumps(body(0)).encode())
    n = bench.plan.per_consumer * consumers

    def turn_of(contender: Contender, session: Session, crowd: Crowd) -> Turn:
        def turn() -> None:
            session.offer_many(bench.bodies(n))
            with bench.meter.slice() as consumed:
                elsewhere_s = crowd.consume(bench.plan.per_consumer)
            sample = bench.meter.sample(consumed, n, elsewhere_s=elsewhere_s)
            bench.results.add(CONSUME_CROWD, contender.name, sample)

        return turn

    def ceiling() -> None:
        bench.results.add(CONSUME_CROWD, pgbench.name, pgbench.run(bench.ceiling_database(), n, bench.meter))

    with ExitStack() as stack, bench.sessions(MEASURES) as present:
        turns: list[tuple[str, tuple[str, ...], Turn]] = []
        crowds = [
            Crowd(contender, bench.database(contender), consumers, durable=bench.plan.durable)
            for contender, _ in present
        ]
        for (contender, session), crowd in zip(present, crowds, strict=True):
            stack.callback(crowd.close)
            # More than they take: in a queue that runs empty, consumers wait for what others have leased ahead.
            session.offer_many(bench.bodies((bench.plan.warm_up + _SURPLUS) * consumers))
            crowd.consume(bench.plan.warm_up)
            turns.append((contender.name, MEASURES, turn_of(contender, session, crowd)))
        bench.rounds(f"{consumers} consumers", [*turns, (pgbench.name, MEASURES, ceiling)])
        for _, session in present:
            while (held := session.poll_many(bench.plan.batch))[1]:
                session.ack_many(held[0])


class Crowd:
    """Consumers that live through the scenario, so that a turn pays for no start."""

    def __init__(self, contender: Contender, dsn: str, size: int, *, durable: bool) -> None:
        # Spawned, not forked: a forked child would share our connections.
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_consumer, args=(theirs, contender, dsn, durable), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def consume(self, each: int) -> float:
        """Every consumer consumes this many; returns their total CPU seconds."""
        for pipe in self._pipes:
            pipe.send(each)
        return sum(pipe.recv() for pipe in self._pipes)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=10)
            process.close()


def _consumer(pipe: Connection, contender: Contender, dsn: str, durable: bool) -> None:  # noqa: FBT001 - from a Process
    session = contender.open(dsn, durable=durable)
    try:
        while True:
            each = pipe.recv()
            started = time.process_time()
            session.consume(each)
            pipe.send(time.process_time() - started)
    except EOFError:
        session.close()
