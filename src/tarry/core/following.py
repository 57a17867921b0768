"""Following the journal: positions that can be gone on from, and pages of what was committed after them.

A position is an edge between snapshots (`core.windows`), not a number: an event whose transaction commits late lies after
every position that was given out before, whatever its id. It is text, for headers and for people who keep it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tarry.core.events import Event
from tarry.core.windows import Edge, Mark

LONGEST_POSITION = 16_000
"""Of its text: snapshots name the transactions that were under way, and these are at most a few thousand."""
_NUMBER = "[0-9]{1,19}"
_SNAPSHOT = f"{_NUMBER}:{_NUMBER}:(?:{_NUMBER}(?:,{_NUMBER})*)?"
_POSITION = re.compile(rf"([0-9a-f.]{{1,60}})~({_SNAPSHOT})(?:~({_SNAPSHOT})~({_NUMBER})~({_NUMBER}))?")
_MOST = 2**63


class Gap(StrEnum):
    """Why events may be missing between a position and what follows."""

    UNKNOWN = "unknown"
    """It is no position of this journal: malformed, of another database, or of one that was restored to an earlier time."""
    PRUNED = "pruned"
    """Events after it are gone from the journal."""
    TOO_FAR = "too_far"
    """More events came after it than are told again."""
    UNREADABLE = "unreadable"
    """An event could not be written down. What follows is complete."""


@dataclass(frozen=True, slots=True)
class Position:
    journal: str
    """Which journal: transaction numbers mean nothing in another one."""
    edge: Edge

    def __str__(self) -> str:
        edge = self.edge
        if edge.mark is None:
            return f"{self.journal}~{edge.snapshot}"
        return f"{self.journal}~{edge.base}~{edge.snapshot}~{edge.mark.xid}~{edge.mark.id}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """None for what no store has ever given out: it goes into a statement, so it is looked at closely."""
        found = _POSITION.fullmatch(text) if len(text) <= LONGEST_POSITION else None
        if found is None:
            return None
        journal, first, second, xid, id = found.groups()
        if not all(_is_snapshot(one) for one in (first, second) if one is not None):
            return None
        if second is None:
            return cls(journal, Edge(first))
        if int(xid) >= _MOST or int(id) >= _MOST:
            return None
        return cls(journal, Edge(second, first, Mark(int(xid), int(id))))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events in the order of their transactions, each with the position behind it."""

    events: tuple[tuple[str, Event], ...] = ()
    position: str
    """Where to go on: behind the last event, or, after a gap, behind everything there is."""
    complete: bool = True
    """Nothing more was there."""
    gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """One event as it happened, and where to go on behind it."""

    position: str
    event: Event


@dataclass(frozen=True, slots=True)
class Missed:
    """Events before this position are missing, and why. What follows goes on behind them."""

    position: str
    reason: Gap
    detail: str


class Following(Protocol):
    def follow(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> EventPage:
        """What was committed after a position, without payloads; None: nothing, and where the journal is now.

        `until`: not beyond this position, which is one that a complete page ended with. A position with more than `most`
        events after it is too far back.
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
        return False  # PostgreSQL gives no such number out, and takes none
    return not running or (low <= running[0] and running[-1] < high)
