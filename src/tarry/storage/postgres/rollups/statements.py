"""Adding the journal to its rollups, window by window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.messages.model import Counted, Counts
from tarry.core.rollups.model import RolledUp, Standing
from tarry.storage.postgres.journal.statements import prefer_bitmap_scans
from tarry.storage.postgres.statement import Op, Row, Statement, no_result, sql, value

WINDOW = 50_000
"""Transactions that are added at once."""
_SOUGHT = 50
"""As in journal/tail."""


def roll_up() -> Op[RolledUp]:
    """In a transaction of its own: the head is locked until its end."""
    yield from prefer_bitmap_scans().run()
    head = yield from Statement(sql("rollups/lock_head"), {}, _first).run()
    if head is None:
        return RolledUp(0, complete=True)
    oldest, next_xid, listed = head.snapshot.split(":")
    first_running, current_end, _ = head.current.split(":")
    if int(next_xid) > int(current_end):
        yield from Statement(sql("rollups/restart"), {}, no_result).run()
        return RolledUp(0, complete=True)
    end = int(next_xid) + WINDOW
    is_whole = int(first_running) < end  # below the first that runs, all transactions have ended
    running = [int(xid) for xid in listed.split(",")] if listed else []
    if len(running) > _SOUGHT:
        next_xid, running = oldest, []
    params: dict[str, Any] = {
        "since": head.snapshot,
        "until": None if is_whole else f"{end}:{end}:",
        "end_xid": None if is_whole else end,
        "next_xid": int(next_xid),
        "running": running,
    }
    events = yield from Statement(sql("rollups/add"), params, value).run()
    return RolledUp(events, complete=is_whole)


def standings(limit: int) -> Callable[[list[Row]], list[Standing]]:
    def counted(n: int, scanned: int) -> Counted:
        return Counted(n, scanned >= limit)

    def decode(rows: list[Row]) -> list[Standing]:
        return [
            Standing(
                queue=row.queue,
                counts=Counts(
                    delayed=counted(row.later - row.later_held, row.later),
                    ready=counted(row.due - row.due_held, row.due),
                    leased=counted(row.due_held + row.later_held, max(row.due, row.later)),
                    dead=counted(row.dead, row.dead),
                    lag_for=row.lag,
                ),
                waiting=row.waiting,
                live_total=row.live_total,
                dead_total=row.dead_total,
            )
            for row in rows
        ]

    return decode


def _first(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None


def outcome(limit: int) -> Callable[[list[Row]], RedriveOutcome]:
    def decode(rows: list[Row]) -> RedriveOutcome:
        if not rows:
            return RedriveOutcome(Counted(0), Counted(0))
        row = rows[0]
        again = Counted(row.died_again, row.walked_dead >= limit)
        return RedriveOutcome(again, Counted(row.live, row.walked_live >= limit))

    return decode
