"""Schedules on the wire: what a request says of one, and what answers show."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from tarry.core import limits, schedules
from tarry.core.cron import Policy, ScheduleSpec, ScheduleState, TickRecord
from tarry.core.cron_plan import Fire
from tarry.core.errors import InvalidInput
from tarry.core.schedules import Schedule
from tarry.edges.http.answers import Answer, At
from tarry.edges.http.contracts import ContentType, Duration, Instant, Priority, QueueName, Strict, TypeName
from tarry.edges.http.ids import show_prefix
from tarry.edges.schedules import state_data
from tarry.edges.times import exact
from tarry.handles.content import Content

SOURCE = "http"
Hour = Annotated[str, Field(max_length=8, examples=["02:00"])]
_POLICY = ("misfire", "overlap", "catch_up_for", "grace_for", "jitter_for", "in_advance_for", "start_at", "end_at")


class ScheduleRequest(Strict):
    """All of it: what is not said is as it is by default, and not as it was."""

    cron: Annotated[str, Field(max_length=200)] | None = Field(default=None, description="Five or six fields.")
    daily: Annotated[list[Hour], Field(min_length=1, max_length=schedules.MOST_HOURS)] | None = None
    every: Duration | None = Field(default=None, description="Elapsed time; has no zone.")
    zone: Annotated[str, Field(max_length=100, examples=["Europe/Berlin"])] | None = None
    queue: QueueName
    payload: Any = None
    payload_base64: str | None = None
    content_type: ContentType | None = None
    priority: Priority = 0
    type: TypeName | None = None
    misfire: Literal["skip", "once", "all"] = "once"
    catch_up_for: Duration = timedelta(days=1)
    grace_for: Duration = timedelta(minutes=1)
    overlap: Literal["allow", "skip"] = "allow"
    jitter_for: Duration = timedelta(0)
    in_advance_for: Duration = timedelta(0)
    start_at: Instant | None = None
    end_at: Instant | None = None
    ways: ClassVar[tuple[str, ...]] = ("cron", "daily", "every")

    @model_validator(mode="after")
    def _consistent(self) -> ScheduleRequest:
        said = [name for name in self.ways if getattr(self, name) is not None]
        if len(said) != 1:
            raise InvalidInput(f"say when: one of {', '.join(self.ways)}")
        if (self.zone is None) == (said[0] in ("cron", "daily")):
            raise InvalidInput("cron and daily need a zone, such as Europe/Berlin or UTC; a period has none")
        if "payload" in self.model_fields_set and self.payload_base64 is not None:
            raise InvalidInput("give a payload, or a payload_base64, and not both")
        if self.content_type is not None and self.payload_base64 is None:
            raise InvalidInput("content_type goes with payload_base64; a payload is JSON, or text if it is a string")
        return self

    def spec(self, prefix: str, payload_limit: int) -> ScheduleSpec:
        content = self.content()
        return ScheduleSpec(
            prefix=prefix,
            schedule=self.schedule(),
            queue=self.queue,
            payload=None if content is None else limits.check_payload_size(content.data, payload_limit),
            content_type=None if content is None else content.content_type,
            priority=self.priority,
            type=self.type,
            policy=Policy(**{name: getattr(self, name) for name in _POLICY}),
            source=self.installed_by(),
        )

    def content(self) -> Content | None:
        if self.payload_base64 is None:
            return Content.of_value(self.payload)
        return Content.of_base64(self.payload_base64, self.content_type or "application/octet-stream")

    def installed_by(self) -> str:
        return SOURCE

    def schedule(self) -> Schedule:
        if self.every is not None:
            return schedules.Periodic(self.every)
        if self.cron is not None:
            return schedules.Cron(self.cron, self.zone or "UTC")
        return schedules.Daily(self.daily or [], self.zone or "UTC")


class ScheduleAnswer(Answer):
    id: str = Field(description="Names it in a path.")
    prefix: str
    kind: str
    text: str = Field(description="Its times: the expression, the hours, or the period.")
    zone: str | None
    hash: str
    queue: str
    priority: int
    type: str | None
    by_code: bool = Field(description="A program makes its payloads.")
    source: str
    misfire: str
    catch_up_for: float
    grace_for: float
    overlap: str
    jitter_for: float
    in_advance_for: float
    start_at: At | None
    end_at: At | None
    next_at: At | None
    paused: bool
    paused_at: At | None
    paused_reason: str | None
    installed_at: At
    generation: int
    revision: int
    ruled_at: At
    cursor_at: At = Field(description="Every tick up to this instant has been decided.")
    wake_at: At | None = Field(description="When it next needs a scheduler.")
    last_live: bool = Field(description="Its last message is still live; only where overlaps are skipped.")
    forgotten_until: At | None = Field(description="Up to here the ledger has forgotten ticks.")
    content_type: str | None = None
    payload: Any = None
    payload_base64: str | None = None


class SchedulesAnswer(Answer):
    schedules: list[ScheduleAnswer]


class Tick(Answer):
    tick: At


class Ticks(Answer):
    ticks: list[At]


class FireAnswer(Answer):
    tick: At
    due_at: At
    verdict: str | None = Field(description="What is decided about it already.")


class Fires(Answer):
    fires: list[FireAnswer]


class Explanation(Answer):
    tick: At
    explanation: str


class TickAnswer(Answer):
    prefix: str
    hash: str
    tick: At
    until: At | None = Field(description="The last of a run of ticks that were skipped together.")
    count: int | None
    verdict: str
    reason: str
    decided_at: At
    queue: str | None
    key: str | None
    version: int | None
    due_at: At | None
    live: bool


class History(Answer):
    ticks: list[TickAnswer]


class BackfillRequest(Strict):
    since: Instant
    until: Instant
    dry_run: bool = Field(default=False, description="Only say which ticks it would fill in.")


def shown(state: ScheduleState, now: datetime) -> dict[str, Any]:
    spec = state.spec
    return {
        "id": show_prefix(spec.prefix),
        **state_data(state, now),
        "revision": state.revision,
        "ruled_at": exact(state.ruled_at),
        "cursor_at": exact(state.cursor_at),
        "wake_at": exact(state.wake_at),
        "last_live": state.last_live,
        "forgotten_until": exact(state.forgotten_until),
        **({} if spec.payload is None else Content(spec.payload, spec.content_type).shown()),
    }


def shown_fire(fire: Fire) -> dict[str, Any]:
    verdict = None if fire.verdict is None else fire.verdict.value
    return {"tick": exact(fire.tick), "due_at": exact(fire.due_at), "verdict": verdict}


def shown_tick(record: TickRecord) -> dict[str, Any]:
    return {
        "prefix": record.prefix,
        "hash": record.hash,
        "tick": exact(record.tick),
        "until": exact(record.until),
        "count": record.count,
        "verdict": record.verdict.value,
        "reason": record.reason.value,
        "decided_at": exact(record.decided_at),
        "queue": record.queue,
        "key": record.key,
        "version": record.version,
        "due_at": exact(record.due_at),
        "live": record.live,
    }


def without_message(record: TickRecord) -> TickRecord:
    return replace(record, queue=None, key=None, version=None)
