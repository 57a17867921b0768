"""Looking at a hundred thousand dead letters, and sweeping a long queue, touches what is shown and no more.

Plans are made on empty tables and kept: the worst moment, and the one at which a program starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest

from tarry.core.clock import AuthorityClock
from tarry.core.dead_letters.fingerprints import READ, fingerprint
from tarry.core.dead_letters.redrive import (
    EVERY_LETTER,
    WALK,
    DeadFilter,
    RedriveJob,
    RedriveOptions,
    RedrivePhase,
    RedriveState,
)
from tarry.core.messages.model import Counted
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres.arrays import register_array_dumpers
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.dead_letters import role as dead_letters
from tarry.storage.postgres.maintenance.role import PostgresMaintenance
from tarry.storage.postgres.messages.live_heads import LiveHeads
from tarry.storage.postgres.queues import statements as queue_statements
from tarry.storage.postgres.statement import Statement, bind
from tests.kit.clocks import START
from tests.kit.servers import Server
from tests.plans.explaining import Plan, fresh, kept, prepare, undone
from tests.plans.scenes import QUEUE, fill

ROWS = 100_000
MAINTENANCE = PostgresMaintenance(AuthorityClock(), StoreSettings(), LiveHeads())
GROUPS = [fingerprint("exhausted", f"{'x' * i}") for i in range(10)]
_FILL = """
    insert into tarry.dead_letter (version, queue, died_at, due_at, created_at, priority, attempt, reason, key, payload,
        fingerprint)
    select 1000000 + i, (select id from tarry.queue where name = %(queue)s), at, at, at, 0, 3, 'exhausted', 'dead' || i,
        decode(repeat('00', 40), 'hex'), case when i %% 1000 > 0 then (%(groups)s::text[])[1 + i %% 10] end
    from generate_series(1, %(rows)s) i
    cross join lateral (select now() - make_interval(secs => i / 1000.0) as at) t
"""


def job(where: DeadFilter = EVERY_LETTER) -> RedriveJob:
    return RedriveJob(
        id=1, queue=QUEUE, where=where, state=RedriveState.RUNNING, phase=RedrivePhase.REST, total=Counted(0),
        created_at=START, updated_at=START, next_at=START,
    )  # fmt: skip


STATEMENTS: dict[str, Callable[[], Statement[Any]]] = {
    "list": lambda: dead_letters.dead_letters(QUEUE, EVERY_LETTER, 100),
    "list a group": lambda: dead_letters.dead_letters(QUEUE, DeadFilter(fingerprint=GROUPS[0]), 100),
    "show": lambda: dead_letters.dead_letters(QUEUE, DeadFilter(versions=(1000007,)), 1),
    "count": lambda: dead_letters.count(QUEUE, EVERY_LETTER, 1_000),
    "count a group": lambda: dead_letters.count(QUEUE, DeadFilter(fingerprint=GROUPS[0]), 1_000),
    "groups": lambda: dead_letters.groups(QUEUE, 100, 1_000),
    "without fingerprint": lambda: bind("dead_letters/without_fingerprint", list, queue=None, limit=1_000, read=READ),
    "walk": lambda: dead_letters.walk(job()),
    "sweep": lambda: cast("Any", next(MAINTENANCE.sweep(QUEUE, limit=100).start(True))),
}
BOUNDS = {
    "list": 10_000, "list a group": 10_000, "show": 1, "count": 1_001, "count a group": 1_001,
    "groups": 10 * (1_001 + 1_000 + 4), "without fingerprint": 1_000, "walk": WALK, "sweep": 0,
}  # fmt: skip
WAYS = {"show": {"dead_letter_pkey"}, "list a group": {"dead_letter_group"}, "count a group": {"dead_letter_group"}}


class Scene:
    def __init__(self, dsn: str) -> None:
        self.own = psycopg.connect(dsn, **KEYWORDS)
        configure(self.own)
        self.other = psycopg.connect(dsn, autocommit=True)
        register_array_dumpers(self.other.adapters)
        drive(self.own, queue_statements.create(QUEUE, QueueSettings(), None).run())
        for make in STATEMENTS.values():
            prepare(self.own, make())
        self.other.execute(_FILL, {"queue": QUEUE, "rows": ROWS, "groups": GROUPS})
        fill(self.other, held=0)
        self.other.execute("analyze tarry.dead_letter")  # as autovacuum does after so many rows
        start = dead_letters.begin_redrive(QUEUE, RedriveOptions(request=uuid4()), Counted(0), None)
        drive(self.other, start.run())

    def close(self) -> None:
        self.own.close()
        self.other.close()


@pytest.fixture(scope="module")
def scene(server: Server) -> Iterator[Scene]:
    dsn = server.new_database()
    scene = Scene(dsn)
    yield scene
    scene.close()
    server.drop_database(dsn)


def plans(scene: Scene, name: str) -> list[Plan]:
    with undone(scene.own), undone(scene.other):
        return [kept(scene.own, STATEMENTS[name](), run=True), fresh(scene.other, STATEMENTS[name](), run=True)]


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_plan_walks_further_than_it_must(scene: Scene, name: str) -> None:
    for plan in plans(scene, name):
        # A way that is not the one meant is tried too, and finds its condition void.
        ways = {node.way for node in plan.scans("dead_letter") if node.facts["Actual Loops"] and node.rows}
        assert "Seq Scan" not in ways
        assert plan.rows("dead_letter") <= BOUNDS[name], ways
        if name in WAYS:
            assert ways <= WAYS[name]


def test_a_sweep_walks_the_order_up_to_its_limit(scene: Scene) -> None:
    for plan in plans(scene, "sweep"):
        assert plan.ways() == {"message_order", "Tid Scan"}
        assert plan.rows() <= 10 * (1 + 100), "the first of each priority, and as many as the limit"
