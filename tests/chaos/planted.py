"""Bugs for the checker to find: our own statements with one condition taken out, as other queues have shipped them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tarry.storage.postgres import statement

_STATEMENT_NOW = "coalesce(%(now)s::timestamptz, statement_timestamp())"
_CLOCK_NOW = "coalesce(%(now)s::timestamptz, clock_timestamp())"
_CTID_AND_TOKEN = "m.ctid = h.tid and m.token = h.token"
_LIVE_QUEUE = "where name = %(queue)s and deleted_at is null and "


@dataclass(frozen=True, slots=True)
class Bug:
    """`changes`: what is taken out of which statement, and what is put there instead."""

    found_as: str
    changes: dict[str, list[tuple[str, str]]]
    weights: dict[str, int]
    """The queues that the clients use, so that the bug has many chances."""
    ends: bool = False
    """It can be seen only when everything was drained."""
    roles: tuple[str, ...] = ()
    """Other roles that must run."""


_MAIN = {"main": 1}

BUGS = {
    # pgmq, graphile-worker, Oban: a client that knows the message may finish it.
    "ack by key": Bug(
        "stale_settle_won",
        {"messages/ack": [(f"{_CTID_AND_TOKEN} and m.key is not distinct from h.key", "m.key = h.key")]},
        _MAIN,
    ),
    # An offer replaces the message, and the old lease settles the new one.
    "token kept on re-offer": Bug("replaced_settle_won", {"messages/offer": [("token = null, ", "")]}, _MAIN),
    "lease that ignores leases": Bug(
        "overlapping", {"messages/poll": [(f" and c.lease_until <= {_STATEMENT_NOW}", "")]}, _MAIN
    ),
    "touch after expiry": Bug(
        "late_touch_won", {"messages/touch": [(f" and m.lease_until > {_CLOCK_NOW}", "")]}, _MAIN
    ),
    "lease that ignores the time": Bug("early", {"messages/poll": [(f" and c.due_at <= {_STATEMENT_NOW}", "")]}, _MAIN),
    # An ack that marks nothing: the message comes back when its lease runs out.
    "ack that removes nothing": Bug(
        "delivered_after_ack",
        {"messages/ack": [("delete from tarry.message m using", "update tarry.message m set consumer = null from")]},
        _MAIN,
    ),
    # A lease that does not count, so that a failing message never dies.
    "attempts that do not count": Bug(
        "attempts_wrong", {"messages/poll": [("attempt = attempt +", "attempt = 0 * attempt +")]}, _MAIN
    ),
    # A limit inside of a subquery: as many for every priority.
    "limit that does not limit": Bug(
        "batch_wrong", {"messages/poll": [("picked limit %(n)s::int))", "picked))")]}, {"main": 1}
    ),
    # A key with a percent sign is a pattern, and takes keys of others along.
    "drop by pattern": Bug(
        "lost", {"messages/drop": [("m.key = %(key)s", "m.key like %(key)s")]}, {"register": 1}, ends=True
    ),
    # A message that is being worked on looks as if it were gone.
    "read that misses what is leased": Bug(
        "not_linearizable",
        {"messages/read": [("and m.queue = q.id", f"and m.queue = q.id and m.lease_until <= {_CLOCK_NOW}")]},
        {"register": 1},
    ),
    "keep that replaces": Bug(
        "not_linearizable", {"messages/offer": [("where excluded.conflict <> 1 and", "where")]}, {"register": 1}
    ),
    "pause that does not pause": Bug(
        "delivered_while_paused",
        {"messages/poll": [("select id from q where paused_at is null", "select id from q")]},
        {"main-paused": 1},
    ),
    "ack without its event": Bug(
        "journal_wrong", {"messages/ack": [("where q.journal <> 'off'", "where false")]}, _MAIN, ends=True
    ),
    # A reader that remembers a number instead of a snapshot: what commits late is never read.
    "journal read by the highest number": Bug(
        "event_missing",
        {"journal/tail": [("not pg_visible_in_snapshot(e.xid, edge.since)", "e.xid >= pg_snapshot_xmax(edge.since)")]},
        {},
        ends=True,
        roles=("follower",),
    ),
    # A new configuration that leaves the messages of the old one where they are.
    "replaced ticks that stay": Bug(
        "tick_stale",
        {"cron/withdraw": [("using locked l where", "using locked l where false and")]},
        {"cron": 1},
        roles=("configurer", "scheduler"),
    ),
    # Accepted, and in the memory of the server only: needs a crash to be found.
    "offer that does not wait for the disk": Bug(
        "lost",
        {
            "messages/offer": [
                (
                    f"from tarry.queue {_LIVE_QUEUE}",
                    f"from (select set_config('synchronous_commit', 'off', true)) o, tarry.queue {_LIVE_QUEUE}",
                )
            ]
        },
        _MAIN,
        ends=True,
    ),
}


def planted(name: str, verb: Any, original: Callable[[Any], Any] = statement.sql) -> Any:
    """The text of a statement with this bug in it, also if it is the one for a single message."""
    text = original(verb)
    for old, new in BUGS[name].changes.get(verb.removesuffix(":one"), []):
        assert old in text, f"{verb}.sql changed, and the bug cannot be planted: {old!r} is not in it"
        text = text.replace(old, new)
    return text


def plant(name: str) -> None:
    """From now on this process runs the modified statements. Call it when the store's modules have been imported."""
    original = statement.sql
    for module in list(sys.modules.values()):
        if getattr(module, "sql", None) is original:
            module.sql = lambda verb: planted(name, verb, original)  # pyright: ignore[reportAttributeAccessIssue]
