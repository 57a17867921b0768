"""Traffic beside the jobs of a test, which knows what was accepted, and what the lake must have of it."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import psycopg

import tarry
from tarry.app import App
from tarry.edges.spark.jobs import verify
from tarry.edges.spark.jobs.verify import VerifyArgs
from tarry.edges.spark.lake.lake import read_events
from tests.kit.spark import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 600.0


class Writers:
    """Traffic that commits late, and sometimes not at all. Knows what was accepted."""

    def __init__(self, app: App, seed: int, every_s: float = 0.1) -> None:
        self._app = app
        self._dice = random.Random(seed)
        self._every_s = every_s
        self._stop = threading.Event()
        self.accepted: set[str] = set()
        self.late = self.rolled_back = 0
        self._threads = [threading.Thread(target=work) for work in (self._lively, self._hesitant)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _lively(self) -> None:
        """Offers, finishes, fails, drops: each at once."""
        queue = self._app.queue("lively")
        turn = 0
        while not self._stop.wait(self._every_s):
            turn += 1
            keys = [f"a-{turn}-{i}" for i in range(10)]
            queue.offer_many([tarry.Message(payload=turn, key=key) for key in keys])
            self.accepted |= {f"lively/{key}" for key in keys}
            for i, delivery in enumerate(queue.try_poll_many(8)):
                delivery.nack("no") if i == 0 else delivery.release() if i == 1 else delivery.ack()
            queue.drop(f"a-{turn}-9")

    def _hesitant(self) -> None:
        """Up to four transactions open at a time, ended in any order, one in four by a rollback."""
        assert self._app.dsn is not None
        queue = self._app.queue("hesitant")
        held: list[tuple[psycopg.Connection[Any], list[str]]] = []
        turn = 0
        while not self._stop.wait(self._every_s):
            turn += 1
            conn = psycopg.connect(self._app.dsn)
            keys = [f"b-{turn}-{i}" for i in range(self._dice.randint(1, 5))]
            queue.offer_many([tarry.Message(payload=turn, key=key) for key in keys], conn=conn)
            held.append((conn, keys))
            if len(held) > 4:
                self._end(*held.pop(self._dice.randrange(len(held))))
        for conn, keys in held:
            self._end(conn, keys)

    def _end(self, conn: psycopg.Connection[Any], keys: list[str]) -> None:
        if self._dice.random() < 0.25:
            conn.rollback()
            self.rolled_back += len(keys)
        else:
            conn.commit()
            self.late += len(keys)
            self.accepted |= {f"hesitant/{key}" for key in keys}
        conn.close()


def check(spark: SparkSession, app: App, lake: str, accepted: set[str]) -> None:
    assert app.dsn is not None
    with psycopg.connect(app.dsn) as conn:
        committed = [row[0] for row in conn.execute("select id from tarry.event order by id").fetchall()]
    events = read_events(spark, app, lake)
    ids = sorted(row[0] for row in rows_of(events.select("id")))
    assert ids == committed, "every committed event is in the lake, once"
    offered = events.where("kind = 'offered'").selectExpr("concat(queue, '/', key)")
    assert {row[0] for row in rows_of(offered)} == accepted, "what was accepted, and nothing else"
    summary = verify.run(spark, app, VerifyArgs(lake=lake))
    assert summary.problems == ()
