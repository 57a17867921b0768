"""Queues with a hundred thousand messages, whose statements were planned at different moments of their lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from enum import Enum
from typing import Any

import psycopg

from tarry.core.messages.model import Draft, LeaseId, PollOptions
from tarry.core.settings import QueueSettings
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres.arrays import register_array_dumpers
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.messages.cursor import HEAD
from tarry.storage.postgres.messages.lease_tokens import lease_tokens, new_poll_number
from tarry.storage.postgres.queues import statements as queue_statements
from tarry.storage.postgres.statement import Op, Statement
from tarry.storage.postgres.wakeup import statements as wait_statements
from tests.kit.servers import Servers
from tests.plans.explaining import prepare

QUEUE = "full"
SLEEPER: dict[str, Any] = {
    "process": "me",
    "sleep_for": timedelta(minutes=1),
    "scan_every": timedelta(seconds=1),
    "longest": timedelta(minutes=1),
}
ROWS = 100_000
HELD = 5_000
RARE = ROWS // 1_000
"""One of a thousand has the type `rare`, every other one `common`; the rest has none."""

# The last ones are held, so the head is as a healthy queue's is. A token is the number of its message.
_FILL = """
    insert into tarry.message (queue, key, payload, due_at, planned_at, created_at, priority, conflict, attempt, token,
        lease_until, type)
    select (select id from tarry.queue where name = %(queue)s), 'k' || lpad(i::text, 6, '0'), decode(repeat('00', 40), 'hex'),
        at, at, at, i %% %(priorities)s, 0, (i >= %(free)s)::int,
        case when i >= %(free)s then i end,
        case when i >= %(free)s then now() + interval '1 hour' else '-infinity' end,
        case when i %% 1000 = 999 then 'rare' when i %% 2 = 0 then 'common' end
    from generate_series(0, %(rows)s - 1) i
    cross join lateral (select now() - make_interval(secs => %(ago_s)s + (%(rows)s - i) / 1000.0) as at) t
"""


class Moment(Enum):
    """When the statements were planned, and what the planner knew then."""

    EMPTY = "planned on the empty table, never analysed"
    ANALYSED_EMPTY = "planned on the empty table, which was analysed"
    ANALYSED_FULL = "planned on the full table, which was analysed"
    FULL = "planned on the full table, never analysed"


def held(n: int) -> list[LeaseId]:
    """The first n of those that are held, in key order."""
    return [LeaseId(f"k{i:06d}", lease_tokens(i, [bytes(6)])[0]) for i in range(ROWS - HELD, ROWS - HELD + n)]


def first_of(op: Op[Any]) -> Statement[Any]:
    step = next(op)
    assert isinstance(step, Statement)
    return step


def _lease(n: int, type: str | None) -> Statement[Any]:
    options = PollOptions(type=type, consumer="c")
    return statements.poll(QUEUE, n, HEAD, options, number=new_poll_number(), durable=False, now=None)


HOT: dict[str, Callable[[int], Statement[Any]]] = {
    "lease": lambda n: _lease(n, None),
    "lease_typed": lambda n: _lease(n, "rare"),
    "offer": lambda n: first_of(ops.offer_many(QUEUE, [Draft(lease_id.key, b"new") for lease_id in held(n)], None)),
    "ack": lambda n: statements.ack(QUEUE, held(n), None),
    "ack_by_key": lambda n: statements.ack(QUEUE, held(n), None, by_key=True),
    "nack": lambda n: statements.nack(QUEUE, [statements.Failed(lease_id) for lease_id in held(n)], None),
    "bury": lambda n: statements.nack(
        QUEUE, [statements.Failed(lease_id, reason="buried") for lease_id in held(n)], None
    ),
    "touch": lambda n: statements.touch(QUEUE, held(n), None, None),
    "release": lambda n: statements.release(QUEUE, held(n), None),
    "live_leases": lambda n: statements.live_leases(QUEUE, held(n)),
    "refused": lambda n: statements.refused(QUEUE, "ack", [lease_id.key for lease_id in held(n)], None),
    "read": lambda n: statements.read(QUEUE, held(1)[0].key, None),
    "wait": lambda n: wait_statements.wait(QUEUE, None, None, **SLEEPER),
    "wait_typed": lambda n: wait_statements.wait(QUEUE, "rare", None, **SLEEPER),
    "drop": lambda n: statements.drop(QUEUE, held(1)[0].key, None, None),
}
WAYS: dict[str, set[str]] = {
    "lease": {"message_order", "Tid Scan"},
    "lease_typed": {"message_order_by_type", "Tid Scan"},
    "offer": set(),  # finds conflicts through message_key, which is elsewhere in the plan of an insert
    "ack": {"Tid Scan"},
    **{key: {"message_key", "Tid Scan"} for key in ("ack_by_key", "nack", "bury", "touch", "release")},
    **{key: {"message_key"} for key in ("live_leases", "refused", "read", "drop")},
    "wait": {"message_order"},
    "wait_typed": {"message_order_by_type"},
}


class Scene:
    """`own` is a connection as our pool makes them, with every hot statement prepared; `other` is a plain one."""

    def __init__(self, dsn: str, moment: Moment) -> None:
        self._closing = ExitStack()
        self.own = self._closing.enter_context(psycopg.connect(dsn, **KEYWORDS))
        configure(self.own)
        self.other = self._closing.enter_context(psycopg.connect(dsn, autocommit=True))
        register_array_dumpers(self.other.adapters)
        quiet = "alter table {} set (autovacuum_enabled = off)"
        for table in ("tarry.message", "tarry.queue"):
            self.other.execute(quiet.format(table))  # pyright: ignore[reportArgumentType]
        drive(self.own, queue_statements.create(QUEUE, QueueSettings(), None).run())
        if moment is Moment.ANALYSED_EMPTY:
            self.other.execute("analyze tarry.message, tarry.queue")
        if moment in (Moment.EMPTY, Moment.ANALYSED_EMPTY):
            self._prepare_all()
        fill(self.other)
        if moment is Moment.ANALYSED_FULL:
            self.other.execute("analyze tarry.message, tarry.queue")
        self._prepare_all()

    def _prepare_all(self) -> None:
        """One message and many are different texts."""
        for make in HOT.values():
            prepare(self.own, make(1))
            prepare(self.own, make(2))

    def close(self) -> None:
        self._closing.close()


def fill(
    conn: psycopg.Connection[Any], rows: int = ROWS, held: int = HELD, priorities: int = 10, ago_s: int = 1
) -> None:
    """`ago_s`: since when the last of them is due."""
    params = {"queue": QUEUE, "rows": rows, "free": rows - held, "priorities": priorities, "ago_s": ago_s}
    conn.execute(_FILL, params)


class Scenes:
    """Made on first use, and kept: filling a table takes most of a second."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._made: dict[tuple[str, Moment], tuple[str, Scene]] = {}

    def get(self, server: str, moment: Moment) -> Scene:
        if (server, moment) not in self._made:
            dsn = self._servers.get(server).new_database()
            self._made[server, moment] = dsn, Scene(dsn, moment)
        return self._made[server, moment][1]

    def close(self) -> None:
        for (server, _), (dsn, scene) in self._made.items():
            scene.close()
            self._servers.get(server).drop_database(dsn)


def bound(name: str, n: int) -> int:
    """How many rows a statement may look at. For each of n: once to find it, and once or twice to change it."""
    walks: Sequence[str] = ("wait", "wait_typed")
    return 10_000 if name in walks else 3 * n + 10
