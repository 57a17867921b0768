"""The trace position of a lake (the trace is each event with the history of its message), and its directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHead:
    """Everything visible in `snapshot` has been traced, from batches up to `place` in the lake's chain."""

    lake: str
    place: int
    snapshot: str
    system_id: str
    run_id: int
    """The run that reached this position; it also names the directory of the versions that were open then."""


class PartKind(StrEnum):
    EVENTS = "events"
    FACTS = "facts"


@dataclass(frozen=True, slots=True, order=True)
class TracePart:
    """The output of one run for one day: its events, or the facts of the versions that ended on it."""

    kind: PartKind
    day: date
    run_id: int
    rows: int

    @property
    def directory(self) -> str:
        return f"trace/{self.kind}/run={self.run_id:08d}/date={self.day.isoformat()}"


class Tracing(Protocol):
    """Trace state. Every method is one short transaction."""

    def head(self, lake: str) -> TraceHead | None: ...
    def parts(self, lake: str, kind: PartKind) -> list[TracePart]: ...
    def advance(
        self, before: TraceHead | None, after: TraceHead, added: Sequence[TracePart], merged: Sequence[TracePart]
    ) -> None:
        """Move the head and replace parts in one transaction. Raises if another run has moved the head."""
        ...

    def seen(self, lake: str, job: str) -> int:
        """The last trace run that this job has processed; 0 if none."""
        ...

    def see(self, lake: str, job: str, run_id: int) -> None: ...
