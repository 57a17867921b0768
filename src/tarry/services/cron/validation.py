"""Validation and encoding of schedules before anything is stored."""

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from tarry.core import limits
from tarry.core.codecs import PLAIN
from tarry.core.cron.model import CronMessage, Misfire, Overlap, Policy, ScheduleSpec, TickChange, check_hash
from tarry.core.cron.schedule_changes import Encoded, PayloadOf, chosen_tick
from tarry.core.cron.schedule_types import Schedule, Ticks
from tarry.core.cron.timezones import zone_of
from tarry.core.errors import InvalidInput


class Options(TypedDict, total=False):
    """Schedule options apart from its times."""

    priority: int
    type: str | None
    misfire: Misfire | Literal["skip", "once", "all"]
    catch_up_for: timedelta
    grace_for: timedelta
    overlap: Overlap | Literal["allow", "skip"]
    jitter_for: timedelta
    in_advance_for: timedelta
    start_at: datetime | None
    end_at: datetime | None


def spec_of(
    name: str,
    schedule: Schedule,
    *,
    queue: str,
    payload: Any,
    options: Options,
    payload_limit: int,
) -> tuple[ScheduleSpec, PayloadOf | None]:
    """The configuration, and the payload function if the payload is a function of the tick."""
    values: dict[str, Any] = dict(options)
    if unknown := values.keys() - Options.__annotations__.keys():
        known = ", ".join(sorted(Options.__annotations__))
        raise InvalidInput(f"a schedule has no option {', '.join(sorted(unknown))}", hint=f"it has {known}")
    policy = Policy(**{field.name: values.pop(field.name) for field in fields(Policy) if field.name in values})
    is_function = callable(payload)
    data, content_type = (None, None) if is_function else encoded(payload, payload_limit)
    spec = ScheduleSpec(
        name=name,
        schedule=schedule,
        queue=queue,
        payload=data,
        content_type=content_type,
        policy=policy,
        **values,
    )
    if not is_function:
        return spec, None
    zone = zone_of(schedule.zone or "UTC")
    return spec, lambda tick: encoded(payload(tick.astimezone(zone)), payload_limit)


def ticks_spec(config_hash: str, name: str, queue: str) -> ScheduleSpec:
    return ScheduleSpec(name=name, schedule=Ticks(check_hash(config_hash)), queue=queue, payload=None)


def planned(spec: ScheduleSpec, messages: Iterable[object], payload_limit: int) -> list[TickChange]:
    ticks: list[TickChange] = []
    for message in messages:
        if not isinstance(message, CronMessage):
            kind = type(message).__name__
            raise InvalidInput(f"ticks are given as tarry.core.cron.model.CronMessage values, not {kind}")
        tick = limits.check_instant(message.at)
        due_at = tick if message.due_at is None else limits.check_instant(message.due_at, "due_at")
        ticks.append(chosen_tick(spec, tick, encoded(message.payload, payload_limit), due_at))
    return ticks


def encoded(payload: Any, payload_limit: int) -> Encoded:
    data, content_type = PLAIN.encode(payload)
    return limits.check_payload_size(data, payload_limit), content_type
