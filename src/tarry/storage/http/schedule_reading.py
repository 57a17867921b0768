"""Schedules, from what a broker answers to the values of the core."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from tarry.core.cron import Misfire, Overlap, Policy, Reason, ScheduleSpec, ScheduleState, TickRecord, Verdict
from tarry.core.schedules import stored_schedule
from tarry.storage.http.reading import Content


class Scheduled(Content, kw_only=True):
    prefix: str
    kind: str
    text: str
    zone: str | None
    hash: str
    by_code: bool
    source: str
    misfire: Misfire
    overlap: Overlap
    catch_up_for: float
    grace_for: float
    jitter_for: float
    in_advance_for: float
    start_at: datetime | None
    end_at: datetime | None
    paused_at: datetime | None
    paused_reason: str | None
    installed_at: datetime
    generation: int
    revision: int
    ruled_at: datetime
    cursor_at: datetime
    wake_at: datetime | None
    last_live: bool
    forgotten_until: datetime | None

    def state(self) -> ScheduleState:
        same = (
            "paused_at",
            "paused_reason",
            "installed_at",
            "generation",
            "revision",
            "ruled_at",
            "cursor_at",
            "wake_at",
            "last_live",
            "forgotten_until",
        )
        return ScheduleState(spec=self._spec(), **{name: getattr(self, name) for name in same})

    def _spec(self) -> ScheduleSpec:
        spans = ("catch_up_for", "grace_for", "jitter_for", "in_advance_for")
        return ScheduleSpec(
            prefix=self.prefix,
            schedule=stored_schedule(self.kind, self.text, self.zone, self.hash),
            queue=self.queue,
            payload=None if self.by_code else self.data,
            content_type=None if self.by_code else self.stored_type,
            priority=self.priority,
            type=self.type,
            policy=Policy(
                misfire=self.misfire,
                overlap=self.overlap,
                start_at=self.start_at,
                end_at=self.end_at,
                **{name: timedelta(seconds=getattr(self, name)) for name in spans},
            ),
            source=self.source,
        )


class Every(msgspec.Struct):
    schedules: list[Scheduled]


class Due(Every):
    wake_in: float | None


class Ticked(msgspec.Struct):
    prefix: str
    hash: str
    tick: datetime
    verdict: Verdict
    reason: Reason
    decided_at: datetime
    until: datetime | None
    count: int | None
    queue: str | None
    key: str | None
    version: int | None
    due_at: datetime | None
    live: bool

    def record(self) -> TickRecord:
        return TickRecord(**msgspec.structs.asdict(self))


class Ticks(msgspec.Struct):
    ticks: list[Ticked]
