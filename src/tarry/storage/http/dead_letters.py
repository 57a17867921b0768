"""Requests about dead letters and redrive jobs."""

from collections.abc import Sequence
from typing import Any

from tarry.core.dead_letters.redrive import (
    EVERY_LETTER,
    DeadFilter,
    DeadGroup,
    DeadPosition,
    Matching,
    RedriveJob,
    RedriveOptions,
    RedriveState,
)
from tarry.core.errors import InvalidInput, UnknownRedrive
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Counted, DeadLetter, MessagePosition
from tarry.storage.http.call import Call, Op, fetch, fetch_pages, fetch_unless, new_key, operation, queue_call
from tarry.storage.http.messages import VERSIONS, batches
from tarry.wire import dead_letters as wire
from tarry.wire.base import data_of, same_fields
from tarry.wire.ids import position_text
from tarry.wire.queues import ReasonRequest

_VERBS = {RedriveState.PAUSED: "pause", RedriveState.RUNNING: "resume", RedriveState.CANCELLED: "cancel"}
Letters = list[DeadLetter[bytes]]
Groups = list[DeadGroup]
Jobs = list[RedriveJob]


class HttpDeadLetters:
    @operation
    def list(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 100, before: DeadPosition | None = None
    ) -> Op[Letters]:
        if where.versions == ():  # a query without versions means all of them
            return []
        after = before and position_text(MessagePosition(*before))
        call = queue_call("GET", queue, "/dead", params={"after": after, **_query(where)})
        return (yield from fetch_pages(wire.DeadLetters, "dead_letters", call, limit, 10_000))

    @operation
    def groups(self, queue: str, *, limit: int = 100, cap: int = 10_000) -> Op[Groups]:
        if limit <= 0:
            return []
        params = {"limit": min(limit, 1_000), "count_to": max(1, min(cap, 1_000_000))}
        page = yield from fetch(wire.DeadGroups, queue_call("GET", queue, "/dead:groups", params=params))
        return page.groups

    @operation
    def count(self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000) -> Op[Matching]:
        if where.versions == ():
            return Matching(Counted(0), 0)
        params = {"count_to": max(0, min(limit, 1_000_000)), **_query(where)}
        return (yield from fetch(Matching, queue_call("GET", queue, "/dead:count", params=params)))

    @operation
    def redrive(self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000) -> Op[int]:
        valid = None if versions is None else [version for version in versions if version in VERSIONS]
        if limit <= 0 or valid == []:
            return 0
        moved = 0
        for batch in [None] if valid is None else batches(valid):
            body = wire.RedriveRequest(None if batch is None else [*batch], min(limit - moved, 10_000))
            call = queue_call("POST", queue, "/dead:redrive", body, key=new_key())
            moved += (yield from fetch(wire.Redriven, call)).redriven
            if moved >= limit:
                break
        return moved

    @operation
    def discard(self, queue: str, *, where: DeadFilter = EVERY_LETTER) -> Op[int]:
        if where.versions == ():
            return 0
        return (yield from fetch(wire.Discarded, queue_call("DELETE", queue, "/dead", params=_query(where)))).discarded

    @operation
    def start_redrive(self, queue: str, options: RedriveOptions) -> Op[RedriveJob]:
        body = wire.StartRedriveRequest.of_core(options, **same_fields(options.where, wire.StartRedriveRequest))
        return (yield from fetch(RedriveJob, queue_call("POST", queue, "/dead:start_redrive", body)))

    @operation
    def redrive_job(self, job: int) -> Op[RedriveJob | None]:
        return _job("GET", job)

    @operation
    def redrive_jobs(self, queue: str | None = None, *, limit: int = 100) -> Op[Jobs]:
        if limit <= 0:
            return []
        params = {"limit": min(limit, 1_000), "queue": queue}
        call = Call("GET", "/v1/redrives", params=params, queue=queue or "")
        return (yield from fetch(wire.Redrives, call)).redrives

    @operation
    def turn_redrive(self, job: int, state: RedriveState, *, reason: str | None = None) -> Op[RedriveJob]:
        if state not in _VERBS:
            raise InvalidInput(f"a redrive job can be paused, resumed and cancelled by a user, not {state.value}")
        body = None if state is RedriveState.RUNNING else ReasonRequest(reason)
        turned = yield from _job("POST", job, f"/{_VERBS[state]}", body)
        if turned is None:
            raise UnknownRedrive(job)
        return turned

    @operation
    def advance_redrive(self, job: int | None = None, *, leadership: Leadership | None = None) -> Op[RedriveJob | None]:
        if job is None:
            raise InvalidInput("through a broker, give the number of the job: the sweeper advances the others")
        return _job("POST", job, "/advance")


def _job(method: str, job: int, path: str = "", body: Any = None) -> Op[RedriveJob | None]:
    """None: there is no such job, or no step of it is due."""
    call = Call(method, f"/v1/redrives/{job if job in VERSIONS else 0}{path}", body)
    return (yield from fetch_unless("unknown_redrive", RedriveJob, call))


def _query(where: DeadFilter) -> dict[str, Any]:
    """The filter as a query: `version` is repeated."""
    return {"version" if name == "versions" else name: value for name, value in data_of(where).items()}
