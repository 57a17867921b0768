"""Rulings on the wire: a change of a schedule as a program worked it out, and what the core makes of it.

What the broker knows itself is not taken from the wire: keys, headers and priorities of messages follow from the schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, FailFast, Field, model_validator

from tarry.core import limits, schedules
from tarry.core.cron import (
    MADE,
    PREFIX_LENGTH,
    Reason,
    Ruling,
    ScheduleSpec,
    ScheduleState,
    TickRuling,
    Verdict,
    check_hash,
    check_prefix,
    draft_of,
)
from tarry.core.errors import InvalidInput
from tarry.core.messages import Draft
from tarry.core.schedules import Schedule
from tarry.edges.http.answers import Answer
from tarry.edges.http.contracts import MOST, ContentType, Instant, Strict
from tarry.edges.http.schedule_shapes import ScheduleAnswer, ScheduleRequest
from tarry.handles.content import Content

MOST_TICKS = 20_000
"""Of a request: its rulings together."""
MOST_BYTES = 32 * 1024 * 1024
"""Payload bytes of the messages that a request makes. The payload of a schedule counts with each of its ticks."""
Prefix = Annotated[str, Field(min_length=1, max_length=PREFIX_LENGTH), AfterValidator(check_prefix)]
Hash = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
Why = Literal["on_time", "late", "misfire", "coalesced", "overlap", "paused", "by_hand", "replaced"]
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]


class TickRequest(Strict):
    """With a verdict that makes a message, its payload is the schedule's, or what is said here."""

    tick: Instant
    hash: Hash | None = Field(
        default=None, description="Of the configuration that had it, where that is replaced; it makes no message then."
    )
    verdict: Literal["planned", "skipped", "withdrawn", "triggered", "backfilled"] = "planned"
    reason: Why = "on_time"
    until: Instant | None = Field(default=None, description="The last of a run of ticks that are skipped together.")
    count: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    due_at: Instant | None = Field(default=None, description="Else as the schedule has it.")
    payload: Any = None
    payload_base64: str | None = None
    content_type: ContentType | None = None

    @model_validator(mode="after")
    def _consistent(self) -> TickRequest:
        if self.until is not None and (self.verdict != "skipped" or self.until < self.tick):
            raise InvalidInput("until ends a run of ticks that are skipped, and is not before tick")
        if self.hash is not None and Verdict(self.verdict) in MADE:
            raise InvalidInput("a tick of another configuration makes no message: it is skipped or withdrawn")
        if self.hash is None and self.verdict == "withdrawn":
            raise InvalidInput("only a tick of another configuration, with its hash, is entered as withdrawn")
        if "payload" in self.model_fields_set and self.payload_base64 is not None:
            raise InvalidInput("give a payload, or a payload_base64, and not both")
        if self.content_type is not None and self.payload_base64 is None:
            raise InvalidInput("content_type goes with payload_base64; a payload is JSON, or text if it is a string")
        return self

    def ruling(self, spec: ScheduleSpec, payload_limit: int) -> TickRuling:
        verdict = Verdict(self.verdict)
        return TickRuling(
            hash=spec.hash if self.hash is None else self.hash,
            tick=self.tick,
            verdict=verdict,
            reason=Reason(self.reason),
            until=self.until,
            count=self.count,
            queue=spec.queue if verdict in MADE else None,
            draft=self._draft(spec, payload_limit) if verdict in MADE else None,
        )

    def _draft(self, spec: ScheduleSpec, payload_limit: int) -> Draft:
        if self.payload_base64 is not None:
            content = Content.of_base64(self.payload_base64, self.content_type or "application/octet-stream")
        elif "payload" in self.model_fields_set:
            content = Content.of_value(self.payload)
        elif spec.payload is not None:
            content = Content(spec.payload, spec.content_type)
        else:
            raise InvalidInput("the tick needs a payload: its schedule has none, since a program makes them")
        limits.check_payload_size(content.data, payload_limit)
        try:
            return draft_of(spec, self.tick, content.data, content.content_type, due_at=self.due_at)
        except OverflowError:
            raise InvalidInput("the tick is due beyond the calendar, which ends with the year 9999") from None


class RuledSchedule(ScheduleRequest):
    """A configuration, also of the kinds that only a program can plan."""

    ticks: Hash | None = Field(
        default=None, description="The program chooses the ticks: the hash of its configuration."
    )
    by_code: bool = Field(default=False, description="The program makes the payloads.")
    source: Annotated[str, Field(min_length=1, max_length=200)] = "code"
    ways: ClassVar[tuple[str, ...]] = (*ScheduleRequest.ways, "ticks")

    @model_validator(mode="after")
    def _of_a_program(self) -> RuledSchedule:
        if self.by_code and ("payload" in self.model_fields_set or self.payload_base64 is not None):
            raise InvalidInput("what a program makes the payloads of has no payload")
        if self.ticks is not None and not self.by_code:
            raise InvalidInput("ticks that a program chooses have payloads that it makes: by_code must be true")
        return self

    def content(self) -> Content | None:
        return None if self.by_code else super().content()

    def installed_by(self) -> str:
        return limits.check_text(self.source, "source", 200)

    def schedule(self) -> Schedule:
        return super().schedule() if self.ticks is None else schedules.Ticks(check_hash(self.ticks))


class Moved(Strict):
    cursor_at: Instant = Field(description="Every tick up to this instant has been decided.")
    wake_at: Instant | None = Field(default=None, description="When it next needs a scheduler.")


class AfterRequest(Moved):
    """A schedule as it is to be. Without `schedule` its configuration, and whether it is paused, stay as they are."""

    schedule: RuledSchedule | None = None
    paused_at: Instant | None = None
    paused_reason: Annotated[str, Field(max_length=limits.ERROR_LENGTH)] | None = None

    @model_validator(mode="after")
    def _whole(self) -> AfterRequest:
        if self.schedule is None and (self.paused_at is not None or self.paused_reason is not None):
            raise InvalidInput("paused_at and paused_reason go with a schedule")
        return self


class Withdrawn(Strict):
    hash: Hash
    tick: Instant
    reason: Why = "replaced"


class Planned(Strict):
    prefix: Prefix
    ruled_at: Instant = Field(description="When it was worked out, by GET /v1/now.")
    ticks: Annotated[list[TickRequest], Field(max_length=MOST_TICKS), FailFast()] = Field(default=[])

    def made(self, spec: ScheduleSpec, payload_limit: int) -> tuple[TickRuling, ...]:
        found = tuple(one.ruling(spec, payload_limit) for one in self.ticks)
        single = [(one.hash, one.tick) for one in found if one.until is None]
        if len(set(single)) < len(single):
            raise InvalidInput("a tick is decided about once: one is there twice")
        return found


class MoveRequest(Planned, Moved):
    """What a scheduler does all day: ticks become messages, or are skipped, and planning has come so far."""

    expected: Number = Field(description="The `revision` that was read.")

    def ruling(self, state: ScheduleState, payload_limit: int) -> Ruling:
        if any(one.verdict not in ("planned", "skipped") or one.reason == "by_hand" for one in self.ticks):
            raise InvalidInput("what is planned is planned or skipped; what is done by hand is a ruling")
        if any(one.hash is not None for one in self.ticks):
            raise InvalidInput(
                "ticks of another configuration are no part of planning: leave hash out, or send a ruling"
            )
        return Ruling(
            prefix=self.prefix,
            expected=self.expected,
            after=replace(state, cursor_at=self.cursor_at, wake_at=self.wake_at, ruled_at=self.ruled_at),
            ruled_at=self.ruled_at,
            ticks=self.made(state.spec, payload_limit),
            moves_only=True,
        )


class RulingRequest(Planned):
    expected: Number | None = Field(description="The `revision` that was read; null: there was no such schedule.")
    after: AfterRequest | None = Field(description="null removes it. The ledger stays.")
    withdraw: Annotated[list[Withdrawn], Field(max_length=MOST_TICKS), FailFast()] = Field(
        default=[], description="Ticks whose messages are taken back, if nobody was given them yet."
    )

    def ruling(self, state: ScheduleState | None, payload_limit: int) -> Ruling | None:
        """None: it is about a schedule that is not there."""
        prefix, after = self.prefix, self.after
        if after is None or after.schedule is None:
            if state is None:
                return None
            spec = state.spec
        else:
            spec = after.schedule.spec(prefix, payload_limit)
        if after is None and self.ticks:
            raise InvalidInput("what is removed has no more ticks")
        return Ruling(
            prefix=prefix,
            expected=self.expected,
            after=self._after(state, spec),
            ruled_at=self.ruled_at,
            withdraw=tuple((one.hash, one.tick, Reason(one.reason)) for one in self.withdraw),
            ticks=self.made(spec, payload_limit),
            moves_only=after is not None and after.schedule is None,
        )

    def _after(self, state: ScheduleState | None, spec: ScheduleSpec) -> ScheduleState | None:
        after = self.after
        if after is None:
            return None
        if state is not None and after.schedule is None:
            # Not when it was last planned: a scheduler is still to see if the clock was set back.
            return replace(state, cursor_at=after.cursor_at, wake_at=after.wake_at)
        reason = after.paused_reason
        return ScheduleState(
            spec=spec,
            cursor_at=after.cursor_at,
            wake_at=after.wake_at,
            ruled_at=self.ruled_at,
            generation=1 if state is None else state.generation + (state.spec != spec),
            installed_at=self.ruled_at if state is None else state.installed_at,
            paused_at=after.paused_at,
            paused_reason=None if reason is None else limits.clip_error(reason),
        )


class PlanRequest(Strict):
    rulings: Annotated[list[MoveRequest], Field(min_length=1, max_length=MOST)]

    @model_validator(mode="after")
    def _bounded(self) -> PlanRequest:
        _check_ticks(self.rulings)
        return self


class RuleRequest(Strict):
    rulings: Annotated[list[RulingRequest], Field(min_length=1, max_length=MOST)]
    together: bool = Field(default=True, description="All of them, or none.")

    @model_validator(mode="after")
    def _bounded(self) -> RuleRequest:
        _check_ticks(self.rulings)
        return self


def _check_ticks(rulings: Sequence[Planned]) -> None:
    if (ticks := sum(len(one.ticks) for one in rulings)) > MOST_TICKS:
        raise InvalidInput(
            f"the rulings have {ticks:,} ticks, and {MOST_TICKS:,} are allowed in one request",
            hint="send several requests with fewer rulings each",
        )


def checked_size(made: Sequence[Ruling | None]) -> Sequence[Ruling | None]:
    drafts = [tick.draft for one in made if one is not None for tick in one.ticks if tick.draft is not None]
    if (size := sum(len(draft.payload) for draft in drafts)) > MOST_BYTES:
        raise InvalidInput(
            f"the messages have {size:,} bytes of payload, and {MOST_BYTES:,} are allowed in one request",
            hint="send several requests with fewer ticks each; a tick without a payload has that of its schedule",
        )
    return made


class DueRequest(Strict):
    owned: Annotated[list[Prefix], Field(max_length=10_000), FailFast()] = Field(
        default=[], description="Schedules whose payloads the caller can make."
    )
    limit: Annotated[int, Field(ge=0, le=10_000)] = 1_000


class Held(Answer):
    held: list[bool] = Field(
        description="false: its schedule has changed since it was read, and nothing was done about it."
    )


class Due(Answer):
    schedules: list[ScheduleAnswer]
    wake_in: float | None = Field(description="Seconds until one needs a scheduler; negative: one does already.")
