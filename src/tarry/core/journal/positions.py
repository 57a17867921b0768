"""Tailing the journal: resumable positions, and pages of the events committed after them.

A position is an edge between snapshots (`core.windows`), not a number: an event whose transaction commits late lies
after every position issued before, whatever its id. It is text, for HTTP headers and for clients that store it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tarry.core.events import Event
from tarry.core.windows import Edge, Mark, Point

LONGEST_POSITION = 16_000
"""Length of the text: snapshots list the transactions in progress, at most a few thousand."""
_NUMBER = "[0-9]{1,19}"
_SNAPSHOT = f"{_NUMBER}:{_NUMBER}:(?:{_NUMBER}(?:,{_NUMBER})*)?"
_POINT = "([0-9a-f]{1,16})[.]([0-9a-f]{1,16})"
_POSITION = re.compile(rf"([0-9a-f.]{{1,60}})(?:~{_POINT})?~({_SNAPSHOT})(?:~({_SNAPSHOT})~({_NUMBER})~({_NUMBER}))?")
_MOST = 2**63


class Gap(StrEnum):
    """Why events may be missing between a position and the next event."""

    UNKNOWN = "unknown"
    """Not a position of this journal: malformed, of another database, or of one restored to an earlier time."""
    FAILOVER = "failover"
    """A standby took over that had not received everything before it, or it cannot be shown that it had. Events before the
    position may be lost. What follows begins before the failover, so that nothing new is left out: events may repeat."""
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
    edge: Edge

    def __str__(self) -> str:
        edge = self.edge
        journal = self.journal if edge.point is None else f"{self.journal}~{edge.point.branch:x}.{edge.point.lsn:x}"
        if edge.mark is None:
            return f"{journal}~{edge.snapshot}"
        return f"{journal}~{edge.base}~{edge.snapshot}~{edge.mark.xid}~{edge.mark.id}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Parse a position; None for text that no store has issued. Strict, because it becomes part of a statement."""
        found = _POSITION.fullmatch(text) if len(text) <= LONGEST_POSITION else None
        if found is None:
            return None
        journal, branch, lsn, first, second, xid, id = found.groups()
        if not all(_is_snapshot(one) for one in (first, second) if one is not None):
            return None
        point = None if branch is None else Point(int(branch, 16), int(lsn, 16))
        if point is not None and (point.branch >= _MOST or point.lsn >= _MOST):
            return None
        if second is None:
            return cls(journal, Edge(first, point=point))
        if int(xid) >= _MOST or int(id) >= _MOST:
            return None
        return cls(journal, Edge(second, first, Mark(int(xid), int(id)), point))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events in the order of their transactions, each with the position after it."""

    events: tuple[tuple[str, Event], ...] = ()
    position: str
    """Where to resume: after the last event or, after a gap, at the end of the journal."""
    complete: bool = True
    """No more events were available."""
    gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """One event, and the position after it."""

    position: str
    event: Event


@dataclass(frozen=True, slots=True)
class Missed:
    """Events before this position are missing, and why. Later events continue after the gap."""

    position: str
    reason: Gap
    detail: str


class Following(Protocol):
    def follow(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> EventPage:
        """Events committed after a position, without payloads; None: no events, only the current position.

        `until`: an upper bound, a position that a complete page ended with. A position with more than `most` events
        after it is too far back.
        """
        ...


class AsyncFollowing(Protocol):
    async def follow(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> EventPage: ...


def _is_snapshot(text: str) -> bool:
    first, end, listed = text.split(":")
    low, high = int(first), int(end)
    running = [int(xid) for xid in listed.split(",")] if listed else []
    if not low <= high < _MOST or running != sorted(set(running)):
        return False
    if any(xid % 2**32 == 0 for xid in (low, high, *running)):
        return False  # PostgreSQL never assigns such an id, and rejects it
    return not running or (low <= running[0] and running[-1] < high)
