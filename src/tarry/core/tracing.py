"""How far the archive has been traced (each event with the history of its message), and where the result lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHead:
    """Everything visible in `snapshot` has been traced, by batches up to `place` of the lake's chain."""

    lake: str
    place: int
    snapshot: str
    system_id: str
    run_id: int
    """The run that came this far, and the directory of the versions that were open then."""


class PartKind(StrEnum):
    EVENTS = "events"
    FACTS = "facts"


@dataclass(frozen=True, slots=True, order=True)
class TracePart:
    """What one run wrote about one day: its events, or the facts of the versions that ended on it."""

    kind: PartKind
    day: date
    run_id: int
    rows: int

    @property
    def directory(self) -> str:
        return f"trace/{self.kind}/run={self.run_id:08d}/date={self.day.isoformat()}"


class Tracing(Protocol):
    """Every method is one short transaction."""

    def head(self, lake: str) -> TraceHead | None: ...
    def parts(self, lake: str, kind: PartKind) -> list[TracePart]: ...
    def advance(
        self, before: TraceHead | None, after: TraceHead, added: Sequence[TracePart], merged: Sequence[TracePart]
    ) -> None:
        """Move the head and what there is to read, together. Refused when another run has moved it meanwhile."""
        ...

    def seen(self, lake: str, job: str) -> int:
        """The last run of the tracing that this job has worked up; 0 if none."""
        ...

    def see(self, lake: str, job: str, run_id: int) -> None: ...
