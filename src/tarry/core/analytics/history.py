"""The history of a lake (each event with the earlier events of its message): how far it reaches, and its directories."""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryHead:
    """The history has every event visible in `snapshot`, from batches up to `position` in the lake's chain."""

    lake: str
    position: int
    snapshot: str
    system_id: str
    run_id: int
    """The run that reached this position; it also names the directory of the versions that were open then."""


class PartKind(StrEnum):
    EVENTS = "events"
    FACTS = "facts"


@dataclass(frozen=True, slots=True, order=True)
class HistoryPart:
    """The output of one run for one day: its events, or the facts of the versions that ended on it."""

    kind: PartKind
    day: date
    run_id: int
    rows: int

    @property
    def directory(self) -> str:
        return f"trace/{self.kind}/run={self.run_id:08d}/date={self.day.isoformat()}"
