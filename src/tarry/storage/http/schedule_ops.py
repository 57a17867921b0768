"""What may be done about schedules through a broker, under the names that `app.schedules` has."""

from __future__ import annotations

import builtins
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from tarry.core import limits, schedules
from tarry.core.cron import ScheduleSpec, ScheduleState, TickRecord, check_prefix
from tarry.core.cron_plan import Fire
from tarry.core.errors import InvalidInput
from tarry.storage.http import schedule_reading, writing
from tarry.storage.http.call import Answer, Call, Op, ask, drawn

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def list() -> Op[builtins.list[ScheduleState]]:
    answer = yield from ask(Call("GET", "/v1/schedules"))
    return [one.state() for one in msgspec.json.decode(answer.body, type=schedule_reading.Every).schedules]


def get(prefix: str) -> Op[ScheduleState]:
    return _state((yield from _asked("GET", prefix)))


def put(spec: ScheduleSpec) -> Op[ScheduleState]:
    return _state((yield from _asked("PUT", spec.prefix, body=_written(spec))))


def delete(prefix: str) -> Op[bool]:
    call = Call("DELETE", _path(prefix), queue=prefix)
    return (yield from ask(call, expected=("unknown_schedule",))).status == 200


def pause(prefix: str, *, reason: str | None = None) -> Op[ScheduleState]:
    said = None if reason is None else limits.clip_error(reason)
    return _state((yield from _asked("POST", prefix, ":pause", {"reason": said})))


def resume(prefix: str) -> Op[ScheduleState]:
    return _state((yield from _asked("POST", prefix, ":resume")))


def trigger(prefix: str) -> Op[datetime]:
    return datetime.fromisoformat((yield from _asked("POST", prefix, ":trigger", key=drawn())).json()["tick"])


def skip_next(prefix: str) -> Op[datetime]:
    return datetime.fromisoformat((yield from _asked("POST", prefix, ":skip", key=drawn())).json()["tick"])


def missing(prefix: str, since: datetime, until: datetime) -> Op[builtins.list[datetime]]:
    return _filled(prefix, since, until, dry_run=True)


def backfill(prefix: str, since: datetime, until: datetime) -> Op[builtins.list[datetime]]:
    return _filled(prefix, since, until, dry_run=False)


def _filled(prefix: str, since: datetime, until: datetime, *, dry_run: bool) -> Op[builtins.list[datetime]]:
    body = {"since": _instant(since, "since"), "until": _instant(until, "until"), "dry_run": dry_run}
    answer = yield from _asked("POST", prefix, ":backfill", body)
    return [datetime.fromisoformat(tick) for tick in answer.json()["ticks"]]


def preview(prefix: str, n: int = 10) -> Op[builtins.list[Fire]]:
    if limits.check_count(n) <= 0:
        return []
    answer = yield from _asked("GET", prefix, ":preview", params={"n": n})
    return [one.fire() for one in msgspec.json.decode(answer.body, type=schedule_reading.Fires).fires]


def explain(prefix: str, tick: datetime) -> Op[str]:
    answer = yield from _asked("GET", prefix, ":explain", params={"tick": _instant(tick, "tick")})
    return answer.json()["explanation"]


def history(
    prefix: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
) -> Op[builtins.list[TickRecord]]:
    """Through a broker the newest 1,000 at most, and only for as long as there is the schedule."""
    if limits.check_count(limit, "limit") <= 0:
        return []
    params: dict[str, Any] = {"limit": min(limit, 1_000)}
    for name, at in (("since", since), ("until", until)):
        if at is not None:
            params[name] = _instant(at, name)
    answer = yield from _asked("GET", prefix, ":history", params=params)
    return [one.record() for one in msgspec.json.decode(answer.body, type=schedule_reading.History).ticks]


VERBS: Mapping[str, Callable[..., Op[Any]]] = {
    verb.__name__: verb
    for verb in (
        list,
        get,
        put,
        delete,
        pause,
        resume,
        trigger,
        skip_next,
        missing,
        backfill,
        preview,
        explain,
        history,
    )
}


def _asked(
    method: str, prefix: str, verb: str = "", body: Any = None, *, params: Any = None, key: str | None = None
) -> Op[Answer]:
    return ask(Call(method, _path(prefix) + verb, body, params, queue=prefix, key=key))


def _path(prefix: str) -> str:
    plain = set(check_prefix(prefix)) <= _PLAIN and prefix.strip(".")
    return "/v1/schedules/" + (prefix if plain else "~" + urlsafe_b64encode(prefix.encode()).rstrip(b"=").decode())


def _state(answer: Answer) -> ScheduleState:
    return msgspec.json.decode(answer.body, type=schedule_reading.Scheduled).state()


def _instant(at: datetime, name: str) -> str:
    return writing.instant(limits.check_instant(at, name))


def _written(spec: ScheduleSpec) -> dict[str, Any]:
    policy, when = spec.policy, spec.schedule
    if isinstance(when, schedules.Periodic):
        times: dict[str, Any] = {"every": when.every.total_seconds()}
    elif isinstance(when, schedules.Daily):
        times = {"daily": [hour.isoformat() for hour in when.hours], "zone": when.zone}
    elif isinstance(when, schedules.Cron):
        times = {"cron": when.text, "zone": when.zone}
    else:
        times = {}
    if not times or spec.payload is None:
        raise InvalidInput(
            f"schedule {spec.prefix!r} has no payload: only the program that makes its payloads can install it",
            hint="connect to the database: with tarry.connect(dsn).cron() as cron: …",
        )
    return {
        **times,
        "queue": spec.queue,
        "priority": spec.priority,
        "type": spec.type,
        "misfire": policy.misfire.value,
        "overlap": policy.overlap.value,
        **{
            name: getattr(policy, name).total_seconds()
            for name in ("catch_up_for", "grace_for", "jitter_for", "in_advance_for")
        },
        "start_at": None if policy.start_at is None else writing.instant(policy.start_at),
        "end_at": None if policy.end_at is None else writing.instant(policy.end_at),
        **writing.content(spec.payload, spec.content_type),
    }
