"""The form of a schedule: read field by field, so that every error names its field; and filled from a schedule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tarry.core import limits
from tarry.core.codecs import TEXT
from tarry.core.cron import expressions
from tarry.core.cron.model import Misfire, Overlap, Policy, ScheduleSpec, check_schedule_name
from tarry.core.cron.schedule_types import Cron, Daily, Periodic, Schedule
from tarry.core.errors import InvalidInput
from tarry.edges.dashboard.listing import whole
from tarry.edges.dashboard.redaction import Redaction
from tarry.edges.formats import delay, duration, exact, length, moment
from tarry.wire.payload import Content

T = TypeVar("T")

WAYS = {
    "days": "On days of the week",
    "month": "On a day of the month",
    "daily": "Daily hours",
    "every": "Every …",
    "cron": "Cron expression",
}
DAYS = {
    "*": "every day",
    "1-5": "Monday to Friday",
    "0,6": "Saturday and Sunday",
    "1": "Monday",
    "2": "Tuesday",
    "3": "Wednesday",
    "4": "Thursday",
    "5": "Friday",
    "6": "Saturday",
    "0": "Sunday",
}
MONTH_DAYS = {
    "1 *": "the first day",
    "15 *": "the 15th",
    "L *": "the last day",
    "LW *": "the last business day",
    "* 1#1": "the first Monday",
    "* 5L": "the last Friday",
}
"""Day of the month and day of the week, as in a cron expression."""
POLICY_DURATIONS = {
    "grace_for": "Grace",
    "catch_up_for": "Catch up",
    "jitter_for": "Jitter",
    "in_advance_for": "Planned in advance",
}
LABELS = {
    "name": "Name", "queue": "Queue", "cron": "Cron expression", "hours": "Hours", "every": "Period", "days": "Days",
    "month": "Day", "at": "Time of day", "zone": "Zone", "payload": "Payload", "priority": "Priority", "type": "Type",
    "misfire": "Missed ticks", "overlap": "Overlap", "start_at": "Not before", "end_at": "Not after", **POLICY_DURATIONS,
}  # fmt: skip
_NAMES_OF_DAYS = {"MON-FRI": "1-5", "SAT,SUN": "0,6", "6,0": "0,6", "7": "0"}
EMPTY: Mapping[str, str] = {
    "way": "days", "days": "1-5", "month": "LW *", "at": "09:00", "hours": "02:00, 14:30", "every": "15m", "cron": "",
    "zone": "UTC", "payload": "null", "priority": "0", "misfire": Misfire.ONCE, "overlap": Overlap.ALLOW,
    "catch_up_for": "1d", "grace_for": "1m", "jitter_for": "0s", "in_advance_for": "0s",
}  # fmt: skip


@dataclass(slots=True)
class ScheduleForm:
    """What was typed, what is wrong with it by field, and the schedule if nothing is."""

    values: Mapping[str, str]
    now: datetime
    errors: dict[str, str] = field(default_factory=dict[str, str])
    hints: dict[str, str] = field(default_factory=dict[str, str])
    schedule: Schedule | None = None
    policy: Policy | None = None
    spec: ScheduleSpec | None = None

    def text(self, name: str) -> str:
        return self.values.get(name, "").strip()

    def read(self, name: str, parse: Callable[[], T]) -> T | None:
        """Run the parser of a field, and keep its error."""
        try:
            return parse()
        except InvalidInput as error:
            self.errors[name] = error.message
            if error.hint:
                self.hints[name] = error.hint
            return None


def read_form(
    values: Mapping[str, str], now: datetime, payload_limit: int, stored: ScheduleSpec | None = None
) -> ScheduleForm:
    """`stored`: the schedule that is edited."""
    form = ScheduleForm({**EMPTY, **values}, now)
    form.schedule, form.policy = _schedule(form), _policy(form)
    name = form.read("name", lambda: check_schedule_name(form.text("name")))
    queue = form.read("queue", lambda: limits.check_queue_name(form.text("queue")))
    priority = form.read("priority", lambda: _priority(form.text("priority")))
    type = form.read("type", lambda: limits.check_type(form.text("type") or None))
    content = form.read("payload", lambda: _payload(form, payload_limit, stored))
    if form.errors or not (name and queue and form.schedule and form.policy and content):
        return form
    schedule, policy = form.schedule, form.policy
    form.spec = form.read(
        "in_advance_for",
        lambda: ScheduleSpec(
            name=name,
            schedule=schedule,
            queue=queue,
            payload=content.data,
            content_type=content.content_type,
            priority=priority or 0,
            type=type,
            policy=policy,
            source="dashboard" if stored is None else stored.source,
        ),
    )
    return form


def _schedule(form: ScheduleForm) -> Schedule | None:
    way, zone = form.text("way"), form.text("zone")
    if way not in WAYS:
        form.errors["way"] = f"there is no such way: {way!r:.40}"
        return None
    if way == "every":
        return form.read("every", lambda: Periodic(duration(form.text("every"), "the period")))
    if form.read("zone", lambda: Cron("@daily", zone)) is None:
        return None
    if way == "daily":
        hours = [hour.strip() for hour in form.text("hours").split(",")]
        return form.read("hours", lambda: Daily([hour for hour in hours if hour], zone))
    expression = form.text("cron") if way == "cron" else form.read("at", lambda: cron_text(form.values))
    return None if expression is None else form.read("cron", lambda: Cron(expression, zone))


def cron_text(values: Mapping[str, str]) -> str:
    """The simple form as a cron expression."""
    try:
        hour, minute = values["at"].strip().split(":")
        at = f"{int(minute)} {int(hour)}"
        valid = 0 <= int(hour) <= 23 and 0 <= int(minute) <= 59
    except ValueError:
        at, valid = "", False
    if not valid:
        raise InvalidInput(f"a time of day is written like 09:00, not {values['at']!r:.40}")
    if values["way"] == "days":
        days = values["days"] if values["days"] in DAYS else "*"
        return f"{at} * * {days}"
    day, week_day = (values["month"] if values["month"] in MONTH_DAYS else "1 *").split()
    return f"{at} {day} * {week_day}"


def simple_values(expression: str) -> dict[str, str] | None:
    """The simple form of a cron expression; None if it has none."""
    parts = expression.split()
    if len(parts) != 5 or not (parts[0].isdigit() and parts[1].isdigit() and parts[3] == "*"):
        return None
    minute, hour, day, _, week_day = parts
    at, days = f"{int(hour):02}:{int(minute):02}", _NAMES_OF_DAYS.get(week_day, week_day)
    if day == "*" and days in DAYS:
        return {"way": "days", "days": days, "at": at}
    if f"{day} {week_day}" in MONTH_DAYS:
        return {"way": "month", "month": f"{day} {week_day}", "at": at}
    return None


def simple_words(values: Mapping[str, str]) -> str:
    if values["way"] == "days":
        return f"{DAYS[values['days']]} at {values['at']}"
    return f"{MONTH_DAYS[values['month']]} of the month at {values['at']}"


def marked(expression: str) -> list[tuple[str, bool]]:
    """The fields of an expression, and whether each is wrong."""
    words = expression.split()
    if len(words) not in (5, 6) or len(expression) > expressions.LONGEST:
        return [(word, True) for word in words[:7]]

    def is_wrong(at: int) -> bool:
        alone = " ".join(word if at == other else "*" for other, word in enumerate(words))
        try:
            expressions.parse(alone)
        except InvalidInput:
            return True
        return False

    return [(word, is_wrong(at)) for at, word in enumerate(words)]


def _policy(form: ScheduleForm) -> Policy | None:
    lengths = {
        name: form.read(name, lambda name=name, label=label: delay(form.text(name) or "0s", label))
        for name, label in POLICY_DURATIONS.items()
    }
    ends = {
        name: form.read(name, lambda name=name: _instant(form.text(name), LABELS[name], form.now))
        for name in ("start_at", "end_at")
    }
    if form.errors.keys() & (lengths.keys() | ends.keys()):
        return None
    chosen: dict[str, Any] = {name: value for name, value in (lengths | ends).items() if value is not None}
    misfire, overlap = form.text("misfire"), form.text("overlap")
    if form.read("misfire", lambda: Policy(misfire=_any(misfire))) is None:
        return None
    if form.read("overlap", lambda: Policy(overlap=_any(overlap))) is None:
        return None
    return form.read("end_at", lambda: Policy(misfire=_any(misfire), overlap=_any(overlap), **chosen))


def _any(value: Any) -> Any:
    """A policy accepts texts, and checks them."""
    return value


def _instant(text: str, name: str, now: datetime) -> datetime | None:
    if not text:
        return None
    at = moment(text, name)
    return now + at if isinstance(at, timedelta) else at


def _priority(text: str) -> int:
    if (priority := whole(text, 3)) is None:
        raise InvalidInput(f"a priority is a number from 0 to 9, not {text!r:.40}")
    return limits.check_priority(priority)


def _payload(form: ScheduleForm, payload_limit: int, stored: ScheduleSpec | None) -> Content:
    if form.text("keep") and stored is not None and stored.payload is not None:
        return Content(stored.payload, stored.content_type)
    try:
        value = json.loads(form.text("payload") or "null", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"this is not JSON: {error}") from None
    content = Content.of_value(value)
    limits.check_payload_size(content.data, payload_limit)
    return content


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def values_of(spec: ScheduleSpec, redaction: Redaction) -> dict[str, str]:
    """The fields of a schedule. A payload with hidden values, or that is no text, is not shown, and is kept."""
    schedule, policy = spec.schedule, spec.policy
    values: dict[str, str] = {
        **EMPTY,
        "name": spec.name,
        "queue": spec.queue,
        "zone": schedule.zone or "UTC",
        "priority": str(spec.priority),
        "type": spec.type or "",
        "misfire": policy.misfire.value,
        "overlap": policy.overlap.value,
        **{name: length(getattr(policy, name)) for name in POLICY_DURATIONS},
        "start_at": exact(policy.start_at) or "",
        "end_at": exact(policy.end_at) or "",
    }
    if isinstance(schedule, Cron):
        values |= {"cron": schedule.text, **(simple_values(schedule.text) or {"way": "cron"})}
    elif isinstance(schedule, Daily):
        values |= {"way": "daily", "hours": schedule.text}
    elif isinstance(schedule, Periodic):
        values |= {"way": "every", "every": length(schedule.every)}
    payload = _payload_text(spec, redaction)
    return values | ({"payload": "", "keep": "1"} if payload is None else {"payload": payload})


def _payload_text(spec: ScheduleSpec, redaction: Redaction) -> str | None:
    """None if the payload cannot be edited as JSON without losing something."""
    if spec.payload is None:
        return None
    shown = redaction.payload(spec.payload, spec.content_type)
    if shown.hidden or shown.cut or spec.content_type not in (None, TEXT):
        return None
    return shown.text if spec.content_type is None else json.dumps(shown.text, ensure_ascii=False)
