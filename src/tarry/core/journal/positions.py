"""Tailing the journal: resumable positions, and pages of the events committed after them.

A position is a bound between snapshots (`journal.snapshots`), not a number: an event whose transaction commits late lies
after every position issued before, whatever its id. It is text, for HTTP headers and for clients that store it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from tarry.core.journal.events import Event
from tarry.core.journal.snapshots import Mark, Point, SnapshotBound

LONGEST_POSITION = 16_000
"""Length of the text: snapshots list the transactions in progress, at most a few thousand."""
_NUMBER = "[0-9]{1,19}"
_SNAPSHOT = f"{_NUMBER}:{_NUMBER}:(?:{_NUMBER}(?:,{_NUMBER})*)?"
_POINT = "([0-9a-f]{1,16})[.]([0-9a-f]{1,16})"
_POSITION = re.compile(rf"([0-9a-f.]{{1,60}})(?:~{_POINT})?~({_SNAPSHOT})(?:~({_SNAPSHOT})~({_NUMBER})~({_NUMBER}))?")
_MOST = 2**63


class GapReason(StrEnum):
    """Why events may be missing between a position and the next event."""

    UNKNOWN = "unknown"
    """Not a position of this journal: malformed, of another database, or of one restored to an earlier time."""
    FAILOVER = "failover"
    """A standby took over that had not, or not provably, received everything before the position. Events before it may be
    lost. The following events begin before the failover, so that none is left out: events may repeat."""
    PRUNED = "pruned"
    """Events after it were pruned from the journal."""
    TOO_FAR = "too_far"
    """More events follow it than the replay limit."""
    UNREADABLE = "unreadable"
    """An event could not be serialized. The following events are complete."""


@dataclass(frozen=True, slots=True)
class Position:
    journal: str
    """The journal's identity: transaction ids are meaningless in another one."""
    edge: SnapshotBound

    def __str__(self) -> str:
        edge = self.edge
        journal = self.journal if edge.point is None else f"{self.journal}~{edge.point.branch:x}.{edge.point.lsn:x}"
        if edge.mark is None:
            return f"{journal}~{edge.snapshot}"
        return f"{journal}~{edge.base}~{edge.snapshot}~{edge.mark.xid}~{edge.mark.id}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Parse a position; None for text that no store has issued. Strict, because it becomes part of a statement."""
        match = _POSITION.fullmatch(text) if len(text) <= LONGEST_POSITION else None
        if match is None:
            return None
        journal, branch, lsn, first, second, xid, id = match.groups()
        if not all(_is_snapshot(snapshot) for snapshot in (first, second) if snapshot is not None):
            return None
        point = None if branch is None else Point(int(branch, 16), int(lsn, 16))
        if point is not None and (point.branch >= _MOST or point.lsn >= _MOST):
            return None
        if second is None:
            return cls(journal, SnapshotBound(first, point=point))
        if int(xid) >= _MOST or int(id) >= _MOST:
            return None
        return cls(journal, SnapshotBound(second, first, Mark(int(xid), int(id)), point))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events in the order of their transactions, each with the position after it."""

    events: tuple[tuple[str, Event], ...] = ()
    position: str
    """Where to resume: after the last event or, after a gap, at the end of the journal."""
    complete: bool = True
    """No more events were available."""
    gap: GapReason | None = None


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """One event, and the position after it."""

    position: str
    event: Event


@dataclass(frozen=True, slots=True)
class Gap:
    """Events before this position are missing, and why. Later events continue after the gap."""

    position: str
    reason: GapReason
    detail: str


def _is_snapshot(text: str) -> bool:
    first, end, listed = text.split(":")
    low, high = int(first), int(end)
    running = [int(xid) for xid in listed.split(",")] if listed else []
    if not low <= high < _MOST or running != sorted(set(running)):
        return False
    if any(xid % 2**32 == 0 for xid in (low, high, *running)):
        return False  # PostgreSQL never assigns such an id, and rejects it
    return not running or (low <= running[0] and running[-1] < high)
