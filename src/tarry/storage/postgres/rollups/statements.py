"""Adding the journal to its rollups, window by window."""

from collections.abc import Callable

from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.messages.model import Counted, Counts
from tarry.core.rollups.model import DeathSlice, RolledUp, Standing
from tarry.storage.postgres.journal.bounds import unseen
from tarry.storage.postgres.journal.statements import prefer_bitmap_scans
from tarry.storage.postgres.statement import Op, Row, bind, value

WINDOW = 50_000
"""Transactions that are added at once."""


def roll_up() -> Op[RolledUp]:
    """In a transaction of its own: the head is locked until its end."""
    yield from prefer_bitmap_scans().run()
    heads = yield from bind("rollups/lock_head", list[Row]).run()
    if not heads:
        return RolledUp(0, complete=True)
    head = heads[0]
    next_xid = int(head.snapshot.split(":")[1])
    first_running, current_end, _ = head.current.split(":")
    if next_xid > int(current_end):
        yield from bind("rollups/restart").run()
        return RolledUp(0, complete=True)
    end = next_xid + WINDOW
    is_whole = int(first_running) < end  # below the first that runs, all transactions have ended
    until, end_xid = (None, None) if is_whole else (f"{end}:{end}:", end)
    window = {"since": head.snapshot, "until": until, "end_xid": end_xid, **unseen(head.snapshot)}
    events = yield from bind("rollups/add", value, **window).run()
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


def death_slice(row: Row) -> DeathSlice:
    return DeathSlice(**row._asdict() | {"consumers": tuple(row.consumers)})


def outcome(limit: int) -> Callable[[list[Row]], RedriveOutcome]:
    def decode(rows: list[Row]) -> RedriveOutcome:
        if not rows:
            return RedriveOutcome(Counted(0), Counted(0))
        row = rows[0]
        again = Counted(row.died_again, row.walked_dead >= limit)
        return RedriveOutcome(again, Counted(row.live, row.walked_live >= limit))

    return decode
