"""The verbs about schedules as requests to a broker: all that handles and schedulers ask of a store."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tarry.core.cron import Ruling, ScheduleState, TickRecord, check_prefix
from tarry.storage.http import schedule_writing, writing
from tarry.storage.http.call import Call, Op, ask, drawn
from tarry.storage.http.schedule_reading import Due, Every, Scheduled, Ticks

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_PAGE = 1_000
_US = timedelta(microseconds=1)
_GONE = ("unknown_schedule",)


def schedules(prefix: str | None = None) -> Op[list[ScheduleState]]:
    if prefix is None:
        answer = yield from ask(Call("GET", "/v1/schedules"))
        return [one.state() for one in msgspec.json.decode(answer.body, type=Every).schedules]
    answer = yield from ask(Call("GET", _path(prefix)), expected=_GONE)
    return [msgspec.json.decode(answer.body, type=Scheduled).state()] if answer.status == 200 else []


def due_schedules(owned: Sequence[str], *, limit: int = 1000) -> Op[list[ScheduleState]]:
    return [one.state() for one in (yield from _due(owned, limit)).schedules]


def next_wake_in(owned: Sequence[str]) -> Op[timedelta | None]:
    wake_s = (yield from _due(owned, 0)).wake_in
    return None if wake_s is None else timedelta(seconds=wake_s)


def _due(owned: Sequence[str], limit: int) -> Op[Due]:
    body = {"owned": list(owned), "limit": max(0, min(limit, 10_000))}
    return msgspec.json.decode((yield from ask(Call("POST", "/v1/schedules:due", body))).body, type=Due)


def rule(rulings: Sequence[Ruling], *, together: bool = True) -> Op[list[bool]]:
    """What a scheduler does all day needs no more than to produce; anything else is an administrator's, and audited."""
    if not rulings:
        return []
    if not together and all(one.moves_only and not one.withdraw for one in rulings):
        verb, body = "plan", {"rulings": [schedule_writing.moved(one) for one in rulings]}
    else:
        verb, body = "rule", {"rulings": [schedule_writing.ruled(one) for one in rulings], "together": together}
    named = next((queue for one in rulings for queue in queues_of(one)), "")
    answer = yield from ask(Call("POST", f"/v1/schedules:{verb}", body, queue=named, key=drawn()))
    return answer.json()["held"]


def queues_of(ruling: Ruling) -> list[str]:
    """Where it makes messages."""
    return sorted({one.queue for one in ruling.ticks if one.queue is not None})


def ticks(
    prefix: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
) -> Op[list[TickRecord]]:
    found: list[TickRecord] = []
    while (missing := min(limit - len(found), _PAGE)) > 0:
        params: dict[str, Any] = {"limit": missing}
        params |= {name: writing.instant(at) for name, at in (("since", since), ("until", until)) if at is not None}
        page = yield from _ledger(prefix, ":history", params)
        found += page
        if len(page) < missing:
            break
        # Of more configurations that decided about the same instant than fit on the rest of a page, the rest is left out.
        until = page[-1].tick - _US
    return found


def waiting_ticks(prefix: str) -> Op[list[TickRecord]]:
    return _ledger(prefix, ":waiting", None)


def _ledger(prefix: str, verb: str, params: dict[str, Any] | None) -> Op[list[TickRecord]]:
    answer = yield from ask(Call("GET", _path(prefix) + verb, params=params), expected=_GONE)
    if answer.status != 200:
        return []
    return [one.record() for one in msgspec.json.decode(answer.body, type=Ticks).ticks]


def forget_ticks(before: datetime) -> Op[int]:
    """Nothing: the ledger is looked after where the database is."""
    return 0
    yield  # an op, all the same


def _path(prefix: str) -> str:
    plain = set(check_prefix(prefix)) <= _PLAIN and prefix.strip(".")
    return "/v1/schedules/" + (prefix if plain else "~" + urlsafe_b64encode(prefix.encode()).rstrip(b"=").decode())
