"""The verbs about dead letters and redrive jobs as requests to a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from tarry.core.errors import InvalidInput, UnknownRedrive
from tarry.core.messages import Counted, DeadLetter, Place
from tarry.core.redriving import EVERY_LETTER, DeadFilter, DeadGroup, DeadPlace, Matching, RedriveJob, RedriveState
from tarry.storage.http import reading, writing
from tarry.storage.http.call import Call, Op, ask, drawn, named
from tarry.storage.http.ops import VERSIONS

_VERBS = {RedriveState.PAUSED: "pause", RedriveState.RUNNING: "resume", RedriveState.CANCELLED: "cancel"}
_UNKNOWN = ("unknown_redrive",)


def dead_letters(
    queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 100, before: DeadPlace | None = None
) -> Op[list[DeadLetter[bytes]]]:
    if where.versions == ():
        return []
    found: list[DeadLetter[bytes]] = []
    params: dict[str, Any] = {"limit": 1, **writing.which(where)}
    if before is not None:
        params["after"] = writing.place(Place(before.died_at, before.version))
    while True:
        params["limit"] = max(1, min(limit - len(found), 10_000))
        answer = yield from ask(Call("GET", f"/v1/queues/{named(queue)}/dead", params=params, queue=queue))
        page = msgspec.json.decode(answer.body, type=reading.DeadPage)
        found += [one.letter() for one in page.dead_letters]
        params["after"] = page.next
        if page.next is None or len(found) >= limit:
            return found[: max(limit, 0)]


def redrive(queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000) -> Op[int]:
    picked = None if versions is None else [version for version in versions if version in VERSIONS]
    if limit <= 0 or picked == []:
        return 0
    moved = 0
    for batch in [None] if picked is None else writing.batches(picked):
        asked = {"limit": min(limit - moved, 10_000), "versions": None if batch is None else list(batch)}
        call = Call("POST", f"/v1/queues/{named(queue)}/dead:redrive_now", asked, queue=queue, key=drawn())
        moved += (yield from ask(call)).json()["redriven"]
        if moved >= limit:
            break
    return moved


def purge_dead(queue: str, *, where: DeadFilter = EVERY_LETTER) -> Op[int]:
    if where.versions == ():  # which a query would not say: it would mean all of them
        return 0
    call = Call("DELETE", f"/v1/queues/{named(queue)}/dead", params=writing.which(where), queue=queue)
    return (yield from ask(call)).json()["purged"]


def dead_groups(queue: str, *, limit: int = 100, cap: int = 10_000) -> Op[list[DeadGroup]]:
    if limit <= 0:
        return []
    params = {"limit": min(limit, 1_000), "count_to": max(1, min(cap, 1_000_000))}
    answer = yield from ask(Call("GET", f"/v1/queues/{named(queue)}/dead:groups", params=params, queue=queue))
    return [reading.dead_group(one) for one in answer.json()["groups"]]


def count_dead(queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000) -> Op[Matching]:
    if where.versions == ():
        return Matching(Counted(0), 0)
    params = {"count_to": max(0, min(limit, 1_000_000)), **writing.which(where)}
    answer = yield from ask(Call("GET", f"/v1/queues/{named(queue)}/dead:count", params=params, queue=queue))
    return reading.matching(answer.json())


def start_redrive(
    queue: str, *, where: DeadFilter, rate: float | None, canary: int, who: str | None, request: UUID
) -> Op[RedriveJob]:
    body = {**writing.chosen(where), "rate": rate, "canary": canary, "who": who, "request": str(request)}
    answer = yield from ask(Call("POST", f"/v1/queues/{named(queue)}/dead:redrive", body, queue=queue))
    return reading.redrive_job(answer.json())


def redrive_job(job: int) -> Op[RedriveJob | None]:
    answer = yield from ask(Call("GET", _job(job)), expected=_UNKNOWN)
    return reading.redrive_job(answer.json()) if answer.status == 200 else None


def redrive_jobs(queue: str | None = None, *, limit: int = 100) -> Op[list[RedriveJob]]:
    if limit <= 0:
        return []
    params = {"limit": min(limit, 1_000), **({} if queue is None else {"queue": queue})}
    answer = yield from ask(Call("GET", "/v1/redrives", params=params, queue=queue or ""))
    return [reading.redrive_job(one) for one in answer.json()["redrives"]]


def turn_redrive(job: int, state: RedriveState, *, reason: str | None = None) -> Op[RedriveJob]:
    if state not in _VERBS:
        raise InvalidInput(f"a redrive job can be paused, resumed and cancelled; {state.value} it becomes by itself")
    call = Call("POST", f"{_job(job)}/{_VERBS[state]}", None if state is RedriveState.RUNNING else {"reason": reason})
    answer = yield from ask(call, expected=_UNKNOWN)
    if answer.status != 200:
        raise UnknownRedrive(job)
    return reading.redrive_job(answer.json())


def advance_redrive(job: int | None = None) -> Op[RedriveJob | None]:
    if job is None:
        raise InvalidInput(
            "through a broker, name the job that is to be carried on: the others are a sweeper's business"
        )
    answer = yield from ask(Call("POST", f"{_job(job)}/advance"), expected=_UNKNOWN)
    return reading.redrive_job(answer.json()) if answer.status == 200 else None


def _job(job: int) -> str:
    return f"/v1/redrives/{job if job in VERSIONS else 0}"
