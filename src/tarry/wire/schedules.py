"""Schedules, their ticks, and schedule changes computed by a program.

A change carries no message keys, headers or priorities: the broker derives them from the schedule."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta, field

from tarry.core import limits
from tarry.core.cron import model, planner, schedule_types
from tarry.core.cron.schedule_types import stored_schedule
from tarry.core.errors import InvalidInput
from tarry.core.messages.model import Draft
from tarry.wire.base import (
    FAIL_FAST,
    MOST,
    At,
    Duration,
    Instant,
    Priority,
    QueueName,
    Request,
    Response,
    TypeName,
    data_of,
    read_line,
    same_fields,
)
from tarry.wire.ids import schedule_id
from tarry.wire.payload import Content, PayloadRequest, WithPayload

MOST_TICKS = 20_000
"""Maximum number of ticks in all changes of a request."""
MOST_BYTES = 32 * 1024 * 1024
"""Maximum payload bytes of the messages created by a request. A schedule's payload counts once per tick."""

TimeOfDay = Annotated[str, Meta(max_length=8, examples=["02:00"])]
ScheduleName = Annotated[str, Meta(min_length=1, max_length=model.NAME_LENGTH)]
Hash = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$"), read_line]
ReasonName = Literal["on_time", "late", "misfire", "coalesced", "overlap", "paused", "by_hand", "replaced"]
Revision = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ScheduleRequest(PayloadRequest, kw_only=True):
    """A complete configuration: an absent field has its default, not its previous value."""

    cron: Annotated[Annotated[str, Meta(max_length=200)] | None, Meta(description="Five or six fields.")] = None
    daily: Annotated[list[TimeOfDay], Meta(min_length=1, max_length=schedule_types.MOST_HOURS)] | None = None
    every: Annotated[Duration | None, Meta(description="Elapsed time; has no zone.")] = None
    zone: Annotated[str, Meta(max_length=100, examples=["Europe/Berlin"])] | None = None
    queue: QueueName
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
    by_code: ClassVar[bool] = False
    source: ClassVar[str] = "http"
    ways: ClassVar[tuple[str, ...]] = ("cron", "daily", "every")

    def __post_init__(self) -> None:
        given = [name for name in self.ways if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidInput(f"give one of {', '.join(self.ways)}, not {' and '.join(given) or 'none'}")
        if (self.zone is None) == (given[0] in ("cron", "daily")):
            raise InvalidInput("cron and daily need a zone, such as Europe/Berlin or UTC; a period has none")
        super().__post_init__()

    def core(self, name: str, payload_limit: int) -> model.ScheduleSpec:
        content = None if self.by_code else self.content()
        return model.ScheduleSpec(
            **same_fields(self, model.ScheduleSpec, "payload", "content_type", "source"),
            name=name,
            schedule=self._schedule(),
            payload=None if content is None else limits.check_payload_size(content.data, payload_limit),
            content_type=None if content is None else content.content_type,
            policy=model.Policy(**same_fields(self, model.Policy)),
            source=limits.check_text(self.source, "source", 200),
        )

    def _schedule(self) -> schedule_types.Schedule:
        if self.every is not None:
            return schedule_types.Periodic(self.every)
        if self.cron is not None:
            return schedule_types.Cron(self.cron, self.zone or "UTC")
        return schedule_types.Daily(self.daily or [], self.zone or "UTC")


class ChangedSchedule(ScheduleRequest, kw_only=True):
    """A configuration, including kinds that only a program can plan."""

    ticks: Annotated[Hash | None, Meta(description="The program chooses the ticks: its configuration's hash.")] = None
    by_code: Annotated[bool, Meta(description="The program makes the payloads.")] = False  # pyright: ignore[reportIncompatibleVariableOverride]
    source: Annotated[str, Meta(min_length=1, max_length=200)] = "code"  # pyright: ignore[reportIncompatibleVariableOverride]
    ways: ClassVar[tuple[str, ...]] = (*ScheduleRequest.ways, "ticks")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by_code and self.has_payload:
            raise InvalidInput("a schedule whose payloads a program makes has no payload: leave by_code or payload out")
        if self.ticks is not None and not self.by_code:
            raise InvalidInput("a program that chooses the ticks makes their payloads: by_code must be true")

    @classmethod
    def of(cls, spec: model.ScheduleSpec) -> Self:
        content = {} if spec.payload is None else Content(spec.payload, spec.content_type).sent()
        same = same_fields(spec, cls, "payload", "content_type") | same_fields(spec.policy, cls)
        return cls(**same, **content, **_times(spec))

    def _schedule(self) -> schedule_types.Schedule:
        return super()._schedule() if self.ticks is None else schedule_types.Ticks(model.check_hash(self.ticks))


def _times(spec: model.ScheduleSpec) -> dict[str, Any]:
    schedule = spec.schedule
    if isinstance(schedule, schedule_types.Periodic):
        return {"every": schedule.every}
    if isinstance(schedule, schedule_types.Daily):
        return {"daily": [hour.isoformat() for hour in schedule.hours], "zone": schedule.zone}
    if isinstance(schedule, schedule_types.Cron):
        return {"cron": schedule.text, "zone": schedule.zone}
    if isinstance(schedule, schedule_types.Ticks):
        return {"ticks": schedule.hash}
    raise InvalidInput(
        f"schedule {spec.name!r} cannot be sent, since this process cannot read it: {schedule.text!r:.80}",
        hint="update the zones of this machine (tzdata), or its Tarry",
    )


class TickRequest(PayloadRequest, kw_only=True):
    """A decision about a tick. If it creates a message, the payload is the schedule's, or the one given here."""

    tick: Instant
    hash: Annotated[Hash | None, Meta(description="Of a replaced configuration: the tick makes no message.")] = None
    verdict: Literal["planned", "skipped", "withdrawn", "triggered", "backfilled"] = "planned"
    reason: ReasonName = "on_time"
    until: Annotated[Instant | None, Meta(description="The last of a run of ticks that are skipped together.")] = None
    count: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    due_at: Annotated[Instant | None, Meta(description="Else as the schedule has it.")] = None

    def __post_init__(self) -> None:
        if self.until is not None and (self.verdict != "skipped" or self.until < self.tick):
            raise InvalidInput("until ends a run of ticks that are skipped, and is not before tick")
        if self.hash is not None and model.Verdict(self.verdict) in model.MADE:
            raise InvalidInput("a tick of another configuration makes no message: it is skipped or withdrawn")
        if self.hash is None and self.verdict == "withdrawn":
            raise InvalidInput("only a tick of another configuration, with its hash, is entered as withdrawn")
        super().__post_init__()

    @classmethod
    def of(cls, change: model.TickChange, spec: model.ScheduleSpec) -> Self:
        """Omits the fields that the broker derives from the schedule."""
        fields: dict[str, Any] = {"hash": None if change.hash == spec.hash else change.hash}
        fields |= {"verdict": change.verdict.value, "reason": change.reason.value}
        draft = change.draft
        if draft is not None:
            if draft.due_at != spec.due_at(change.tick):
                fields["due_at"] = draft.due_at
            if (draft.payload, draft.content_type) != (spec.payload, spec.content_type):
                fields |= Content(draft.payload, draft.content_type).sent()
        return cls.of_core(change, **fields)

    def core(self, spec: model.ScheduleSpec, payload_limit: int) -> model.TickChange:
        verdict = model.Verdict(self.verdict)
        return model.TickChange(
            **same_fields(self, model.TickChange, "hash", "verdict", "reason"),
            hash=spec.hash if self.hash is None else self.hash,
            verdict=verdict,
            reason=model.Reason(self.reason),
            queue=spec.queue if verdict in model.MADE else None,
            draft=self._draft(spec, payload_limit) if verdict in model.MADE else None,
        )

    def _draft(self, spec: model.ScheduleSpec, payload_limit: int) -> Draft:
        if self.has_payload:
            content = self.content()
        elif spec.payload is not None:
            content = Content(spec.payload, spec.content_type)
        else:
            raise InvalidInput("the tick needs a payload: its schedule has none, since a program makes them")
        limits.check_payload_size(content.data, payload_limit)
        try:
            return model.draft_of(spec, self.tick, content.data, content.content_type, due_at=self.due_at)
        except OverflowError:
            raise InvalidInput("the tick is due beyond the calendar, which ends with the year 9999") from None


TickRequests = Annotated[list[TickRequest], Meta(max_length=MOST_TICKS, extra=FAIL_FAST)]


class AfterRequest(Request):
    """A schedule after the change. Without `schedule`, its configuration and pause are unchanged."""

    cursor_at: Annotated[Instant, Meta(description="Every tick up to this instant has been decided.")]
    wake_at: Annotated[Instant | None, Meta(description="When it next needs a scheduler.")] = None
    schedule: ChangedSchedule | None = None
    paused_at: Instant | None = None
    paused_reason: Annotated[str, Meta(max_length=limits.ERROR_LENGTH)] | None = None

    def __post_init__(self) -> None:
        if self.schedule is None and (self.paused_at is not None or self.paused_reason is not None):
            raise InvalidInput("paused_at and paused_reason go with a schedule")

    @classmethod
    def of(cls, state: model.ScheduleState, *, moves_only: bool) -> Self:
        moved = cls(cursor_at=state.cursor_at, wake_at=state.wake_at)
        return moved if moves_only else cls.of_core(state, schedule=ChangedSchedule.of(state.spec))


class Withdrawn(Request):
    hash: Hash
    tick: Instant
    reason: ReasonName = "replaced"


class ScheduleChangeRequest(Request, kw_only=True):
    name: ScheduleName
    expected: Annotated[Revision | None, Meta(description="The `revision` that was read; null: it did not exist.")]
    after: Annotated[AfterRequest | None, Meta(description="null removes it. The ledger stays.")]
    decided_at: Annotated[Instant, Meta(description="When it was computed, by GET /v1/now.")]
    ticks: TickRequests = field(default_factory=list[TickRequest])
    withdraw: Annotated[
        list[Withdrawn],
        Meta(max_length=MOST_TICKS, extra=FAIL_FAST, description="Ticks whose undelivered messages are deleted."),
    ] = field(default_factory=list[Withdrawn])

    def __post_init__(self) -> None:
        model.check_schedule_name(self.name)
        if self.after is None and self.ticks:
            raise InvalidInput("a change that removes a schedule has no ticks")

    @classmethod
    def of(cls, change: model.ScheduleChange) -> Self:
        after = change.after
        return cls.of_core(
            change,
            after=after and AfterRequest.of(after, moves_only=change.moves_only),
            ticks=[] if after is None else [TickRequest.of(tick, after.spec) for tick in change.ticks],
            withdraw=[Withdrawn(hash, tick, reason.value) for hash, tick, reason in change.withdraw],
        )

    @property
    def installed(self) -> ChangedSchedule | None:
        """The configuration that the change installs."""
        return self.after and self.after.schedule

    def core(
        self, state: model.ScheduleState | None, payload_limit: int, *, is_plan: bool = False
    ) -> model.ScheduleChange | None:
        """None: the schedule does not exist. `is_plan`: reject everything but changes made by a scheduler."""
        if is_plan:
            self._check_plan()
        if self.installed is not None:
            spec = self.installed.core(self.name, payload_limit)
        elif state is not None:
            spec = state.spec
        else:
            return None
        ticks = tuple(tick.core(spec, payload_limit) for tick in self.ticks)
        single = [(tick.hash, tick.tick) for tick in ticks if tick.until is None]
        if len(set(single)) < len(single):
            raise InvalidInput("a tick is decided once, and one occurs twice")
        return model.ScheduleChange(
            **same_fields(self, model.ScheduleChange, "after", "withdraw", "ticks"),
            after=self._after(state, spec, is_plan=is_plan),
            withdraw=tuple((tick.hash, tick.tick, model.Reason(tick.reason)) for tick in self.withdraw),
            ticks=ticks,
            moves_only=self.after is not None and self.installed is None,
        )

    def _check_plan(self) -> None:
        hint = "send POST /v1/schedules:apply_changes"
        if self.expected is None or self.after is None or self.installed is not None or self.withdraw:
            raise InvalidInput("a plan moves a schedule; it installs, removes and withdraws nothing", hint=hint)
        if any(tick.verdict not in ("planned", "skipped") or tick.reason == "by_hand" for tick in self.ticks):
            raise InvalidInput("a plan has ticks that are planned or skipped, and not by hand", hint=hint)
        if any(tick.hash is not None for tick in self.ticks):
            raise InvalidInput("ticks of another configuration are no part of planning", hint=hint)

    def _after(
        self, state: model.ScheduleState | None, spec: model.ScheduleSpec, *, is_plan: bool
    ) -> model.ScheduleState | None:
        after = self.after
        if after is None:
            return None
        if state is not None and after.schedule is None:
            # Only a plan updates `decided_at`: a scheduler must still detect that the clock was set back.
            decided_at = self.decided_at if is_plan else state.decided_at
            return replace(state, cursor_at=after.cursor_at, wake_at=after.wake_at, decided_at=decided_at)
        reason = after.paused_reason
        return model.ScheduleState(
            **same_fields(after, model.ScheduleState, "paused_reason"),
            spec=spec,
            decided_at=self.decided_at,
            generation=1 if state is None else state.generation + (state.spec != spec),
            installed_at=self.decided_at if state is None else state.installed_at,
            paused_reason=None if reason is None else limits.clip_error(reason),
        )


class PlanRequest(Request):
    changes: Annotated[list[ScheduleChangeRequest], Meta(min_length=1, max_length=MOST)]

    def __post_init__(self) -> None:
        if (ticks := sum(len(change.ticks) for change in self.changes)) > MOST_TICKS:
            raise InvalidInput(
                f"the changes have {ticks:,} ticks; at most {MOST_TICKS:,} are allowed in one request",
                hint="send several requests with fewer changes each",
            )


class ScheduleChangesRequest(PlanRequest):
    together: Annotated[bool, Meta(description="All of them, or none.")] = True


def check_size(changes: Sequence[model.ScheduleChange | None]) -> Sequence[model.ScheduleChange | None]:
    ticks = [tick for change in changes if change is not None for tick in change.ticks]
    if (size := sum(len(tick.draft.payload) for tick in ticks if tick.draft is not None)) > MOST_BYTES:
        raise InvalidInput(
            f"the messages have {size:,} bytes of payload; at most {MOST_BYTES:,} are allowed in one request",
            hint="send several requests with fewer ticks each; a tick without a payload has that of its schedule",
        )
    return changes


class DueRequest(Request):
    owned: Annotated[
        list[ScheduleName],
        Meta(max_length=10_000, extra=FAIL_FAST, description="Schedules whose payloads the caller can make."),
    ] = field(default_factory=list[str])
    limit: Annotated[int, Meta(ge=0, le=10_000)] = 1_000

    def __post_init__(self) -> None:
        for name in self.owned:
            model.check_schedule_name(name)


class BackfillRequest(Request):
    since: Instant
    until: Instant
    dry_run: Annotated[bool, Meta(description="Only list the ticks that it would fill in.")] = False


class ScheduleConfig(WithPayload, kw_only=True):
    """The configuration of a schedule."""

    name: str
    kind: str
    text: Annotated[str, Meta(description="Its times: the expression, the hours, or the period.")]
    zone: str | None
    hash: str
    queue: str
    priority: int
    type: str | None
    by_code: Annotated[bool, Meta(description="A program makes its payloads.")]
    source: str
    misfire: str
    catch_up_for: float
    grace_for: float
    overlap: str
    jitter_for: float
    in_advance_for: float
    start_at: At | None
    end_at: At | None
    content_type: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride] - none with by_code

    @classmethod
    def fields_of(cls, spec: model.ScheduleSpec) -> dict[str, Any]:
        content = {} if spec.payload is None else Content(spec.payload, spec.content_type).shown()
        same = same_fields(spec.schedule, ScheduleConfig) | same_fields(spec, ScheduleConfig, "payload", "content_type")
        return {**same, **data_of(spec.policy), **content}

    @classmethod
    def of_spec(cls, spec: model.ScheduleSpec) -> Self:
        return cls(**cls.fields_of(spec))


class Schedule(ScheduleConfig, kw_only=True):
    id: Annotated[str, Meta(description="Names it in a path.")]
    next_at: At | None
    paused: bool
    paused_at: At | None
    paused_reason: str | None
    installed_at: At
    generation: int
    revision: int
    decided_at: At
    cursor_at: Annotated[At, Meta(description="Every tick up to this instant has been decided.")]
    wake_at: Annotated[At | None, Meta(description="When it next needs a scheduler.")]
    last_live: Annotated[bool, Meta(description="Its last message is still live; only where overlaps are skipped.")]
    forgotten_until: Annotated[At | None, Meta(description="The ledger was pruned of ticks up to here.")]

    @classmethod
    def of(cls, state: model.ScheduleState, now: datetime) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        shown = {"next_at": next_at(state, now), **same_fields(state, cls, "name")}
        return cls(id=schedule_id(state.name), **data_of(shown), **cls.fields_of(state.spec))

    def core(self) -> model.ScheduleState:
        content = None if self.by_code else self.content()
        spec = model.ScheduleSpec(
            **same_fields(self, model.ScheduleSpec, "payload", "content_type"),
            schedule=stored_schedule(self.kind, self.text, self.zone, self.hash),
            payload=None if content is None else content.data,
            content_type=None if content is None else content.content_type,
            policy=self.as_core(model.Policy),
        )
        return self.as_core(model.ScheduleState, spec=spec)


def next_at(state: model.ScheduleState, now: datetime) -> datetime | None:
    return None if state.paused else state.spec.timetable.next_after(now)


class Schedules(Response):
    schedules: list[Schedule]


class Due(Schedules):
    wake_in: Annotated[float | None, Meta(description="Seconds until one needs a scheduler; negative: overdue.")]


class Applied(Response):
    applied: Annotated[list[bool], Meta(description="false: the schedule has changed since it was read.")]


class Tick(Response):
    tick: At


class Ticks(Response):
    ticks: list[At]


class Fires(Response):
    fires: list[planner.Fire]


class Explanation(Response):
    tick: At
    explanation: str


class History(Response):
    ticks: list[model.TickRecord]
