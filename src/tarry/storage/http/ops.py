"""The verbs of a store as requests to a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from tarry.core.errors import InvalidPayload, Refused, UnknownQueue
from tarry.core.events import Event
from tarry.core.limits import clip_error
from tarry.core.messages import Counts, DeadLetter, Decode, Draft, Failure, Filter, Hold, Lease, StoredMessage
from tarry.core.outcomes import Outcome, Settled
from tarry.core.redriving import DeadFilter
from tarry.core.retry import Retry
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.core.states import State
from tarry.storage.http import reading, writing
from tarry.storage.http.call import Call, Op, ask, code_of

P = TypeVar("P")
R = TypeVar("R")

LARGEST_PAGE = 1_000
_VERSIONS = range(1, 2**63)


def in_queue(queue: str, make: Callable[[], Op[R]], *, create: bool) -> Op[R]:
    """As the library has it: a queue comes into being when it is first used, if this client's key may create it."""
    try:
        return (yield from make())
    except UnknownQueue:
        if not create:
            raise
        try:
            yield from create_queue(queue, QueueSettings(), exist_ok=True)
        except Refused:
            raise UnknownQueue(queue) from None
    return (yield from make())


def offer(queue: str, draft: Draft) -> Op[Outcome]:
    """One by one, so that the broker can put those of many clients into one commit."""
    answer = yield from ask(Call("POST", f"/v1/queues/{_named(queue)}/messages", writing.offer(draft), queue=queue))
    return Outcome.CREATED if answer.tries > 1 and draft.fresh else Outcome(answer.json()["outcome"])


def offer_many(queue: str, drafts: Sequence[Draft]) -> Op[list[Outcome]]:
    """All or nothing for each request: a thousand messages, or as many as fit into one."""
    outcomes: list[Outcome] = []
    for batch in writing.batches_of_drafts(drafts):
        body = {"messages": [writing.offer(draft) for draft in batch]}
        answer = yield from ask(Call("POST", f"/v1/queues/{_named(queue)}/messages:batch", body, queue=queue))
        said = [Outcome(one["outcome"]) for one in answer.json()["messages"]]
        # The key was drawn for this message: if it was there at the second try, the first had put it there.
        outcomes += [
            Outcome.CREATED if answer.tries > 1 and draft.fresh else outcome
            for draft, outcome in zip(batch, said, strict=True)
        ]
    return outcomes


def lease(
    queue: str,
    n: int,
    decode: Decode[P],
    *,
    type: str | None,
    lease_for: timedelta | None,
    consumer: str | None,
    max_attempts: int | None,
    lowest_first: bool,
    wait_for: timedelta = timedelta(0),
) -> Op[list[Lease[P]]]:
    """Up to n. What cannot be decoded is buried, and others take its place."""
    taken: list[Lease[P]] = []
    while (missing := min(n - len(taken), LARGEST_PAGE)) > 0:
        wait_s = 0.0 if taken else wait_for.total_seconds()
        wanted = {
            "lease_for": writing.seconds(lease_for),
            "type": type,
            "consumer": consumer,
            "max_attempts": max_attempts,
            "lowest_first": lowest_first or None,
        }
        asked = {"max": missing, "wait": wait_s, **{name: value for name, value in wanted.items() if value is not None}}
        path = f"/v1/queues/{_named(queue)}/messages:poll"
        answer = yield from ask(Call("POST", path, asked, queue=queue, wait_s=wait_s))
        if answer.status == 204:
            break
        rows = [one.lease() for one in msgspec.json.decode(answer.body, type=reading.Deliveries).messages]
        unfit = yield from _judged(queue, rows, decode, taken)
        if len(rows) < missing and not unfit:
            break
    return taken


def _judged(queue: str, rows: Sequence[Lease[bytes]], decode: Decode[P], taken: list[Lease[P]]) -> Op[int]:
    unfit: list[tuple[Hold, str]] = []
    for row in rows:
        try:
            payload = decode(row.payload, row.content_type)
        except InvalidPayload as error:
            unfit.append((row.hold, clip_error(str(error))))
        except Exception:
            # A decoder that breaks is not a payload that is broken: nothing was handed over, so nothing stays held.
            yield from settle(queue, "release", [one.hold for one in (*taken, *rows)])
            raise
        else:
            taken.append(Lease(row.key, payload, *row[2:]))
    for hold, error in unfit:
        yield from settle(queue, "bury", [hold], error=error, reason="undecodable")
    return len(unfit)


def settle(queue: str, verb: str, holds: Sequence[Hold], **more: Any) -> Op[list[Settled]]:
    return _settled(queue, verb, [writing.held(queue, hold) for hold in holds], more)


def nack(queue: str, failures: Sequence[Failure], retry: Retry | None) -> Op[list[Settled]]:
    policy = None if retry is None else {**writing.retry(retry), "max_attempts": retry.max_attempts}
    return _settled(queue, "nack", [writing.failed(queue, failure) for failure in failures], {"retry": policy})


def release(queue: str, holds: Sequence[Hold], due_at: datetime | None, delay: timedelta | None) -> Op[list[Settled]]:
    at = None if due_at is None else writing.instant(due_at)
    return settle(queue, "release", holds, at=at, delay=writing.seconds(delay))


def _settled(queue: str, verb: str, items: Sequence[dict[str, Any]], more: dict[str, Any]) -> Op[list[Settled]]:
    outcomes: list[Settled] = []
    for batch in writing.batches(items):
        answer = yield from ask(Call("POST", f"/v1/messages:{verb}", {"messages": list(batch), **more}, queue=queue))
        outcomes += [Settled(one["outcome"]) for one in answer.json()["messages"]]
    return outcomes


def read(queue: str, key: str) -> Op[StoredMessage[bytes] | None]:
    answer = yield from ask(Call("GET", _message(queue, key), queue=queue), expected=("gone",))
    return msgspec.json.decode(answer.body, type=reading.Live).stored() if answer.status == 200 else None


def messages(queue: str, state: State | None, limit: int, filter: Filter) -> Op[list[StoredMessage[bytes]]]:
    found: list[StoredMessage[bytes]] = []
    after = None if filter.after is None else writing.place(filter.after)
    while (missing := min(limit - len(found), LARGEST_PAGE)) > 0:
        params: dict[str, Any] = {
            "limit": missing,
            "state": state and state.value,
            "after": after,
            "type": filter.type,
            "priority": filter.priority,
        }
        params["key_prefix"] = filter.key_prefix
        given = {name: value for name, value in params.items() if value is not None}
        answer = yield from ask(Call("GET", f"/v1/queues/{_named(queue)}/messages", params=given, queue=queue))
        page = msgspec.json.decode(answer.body, type=reading.Page)
        found += [one.stored() for one in page.messages]
        after = page.next
        if after is None:
            break
    return found


def timeline(queue: str, key: str, limit: int) -> Op[list[Event]]:
    if limit <= 0:
        return []
    params = {"limit": min(limit, 10_000)}
    answer = yield from ask(Call("GET", _message(queue, key) + "/timeline", params=params, queue=queue))
    return [reading.event(one) for one in answer.json()["events"]]


def counts(queue: str, limit: int) -> Op[Counts]:
    params = {"count_to": max(0, min(limit, 1_000_000))}
    answer = yield from ask(Call("GET", f"/v1/queues/{_named(queue)}", params=params, queue=queue))
    return reading.counts(answer.json()["counts"])


def drop(queue: str, key: str, version: int | None) -> Op[bool]:
    if version is not None and version not in _VERSIONS:
        return False
    params = None if version is None else {"version": version}
    answer = yield from ask(Call("DELETE", _message(queue, key), params=params, queue=queue), expected=("gone",))
    return answer.status == 200


def drop_all(queue: str) -> Op[int]:
    call = Call("POST", f"/v1/queues/{_named(queue)}/purge", {"confirm": queue}, queue=queue)
    return (yield from ask(call)).json()["dropped"]


def dead_letters(queue: str, where: DeadFilter, limit: int) -> Op[list[DeadLetter[bytes]]]:
    params = {"limit": max(1, min(limit, 10_000)), **writing.which(where)}
    answer = yield from ask(Call("GET", f"/v1/queues/{_named(queue)}/dead", params=params, queue=queue))
    return [
        one.letter() for one in msgspec.json.decode(answer.body, type=reading.DeadPage).dead_letters[: max(limit, 0)]
    ]


def redrive(queue: str, versions: Sequence[int] | None, limit: int) -> Op[int]:
    picked = None if versions is None else [version for version in versions if version in _VERSIONS]
    if limit <= 0 or picked == []:
        return 0
    moved = 0
    for batch in [None] if picked is None else writing.batches(picked):
        asked = {"limit": min(limit - moved, 10_000), "versions": None if batch is None else list(batch)}
        call = Call("POST", f"/v1/queues/{_named(queue)}/dead:redrive", asked, queue=queue)
        moved += (yield from ask(call)).json()["redriven"]
        if moved >= limit:
            break
    return moved


def purge_dead(queue: str, where: DeadFilter) -> Op[int]:
    call = Call("DELETE", f"/v1/queues/{_named(queue)}/dead", params=writing.which(where), queue=queue)
    return (yield from ask(call)).json()["purged"]


def create_queue(name: str, settings: QueueSettings, *, exist_ok: bool) -> Op[QueueInfo]:
    body = {"name": name, "exist_ok": exist_ok, **writing.settings(settings)}
    return reading.queue_info((yield from ask(Call("POST", "/v1/queues", body, queue=name))).json())


def edit_queue(name: str, settings: QueueSettings) -> Op[QueueInfo]:
    call = Call("PATCH", f"/v1/queues/{_named(name)}", writing.settings(settings), queue=name)
    return reading.queue_info((yield from ask(call)).json())


def rename_queue(name: str, new_name: str) -> Op[QueueInfo]:
    call = Call("POST", f"/v1/queues/{_named(name)}/rename", {"new_name": new_name}, queue=name)
    return reading.queue_info((yield from ask(call)).json())


def delete_queue(name: str, *, force: bool) -> Op[None]:
    params = {"force": "true"} if force else None
    answer = yield from ask(Call("DELETE", f"/v1/queues/{_named(name)}", params=params, queue=name), expected=_GONE)
    if code_of(answer) in _GONE and answer.tries == 1:
        raise UnknownQueue(name)


_GONE = ("unknown_queue",)
"""After a second try, a queue that is not there is one that the first has deleted."""


def queue_info(name: str) -> Op[QueueInfo]:
    call = Call("GET", f"/v1/queues/{_named(name)}", params={"count_to": 0}, queue=name)
    return reading.queue_info((yield from ask(call)).json())


def queue_infos() -> Op[list[QueueInfo]]:
    return [reading.queue_info(one) for one in (yield from ask(Call("GET", "/v1/queues"))).json()["queues"]]


def pause(name: str, reason: str | None) -> Op[QueueInfo]:
    call = Call("POST", f"/v1/queues/{_named(name)}/pause", {"reason": reason}, queue=name)
    return reading.queue_info((yield from ask(call)).json())


def resume(name: str) -> Op[QueueInfo]:
    call = Call("POST", f"/v1/queues/{_named(name)}/resume", queue=name)
    return reading.queue_info((yield from ask(call)).json())


def now() -> Op[datetime]:
    return datetime.fromisoformat((yield from ask(Call("GET", "/v1/now"))).json()["now"])


def _named(queue: str) -> str:
    """A queue in a path. One named `..` is only a queue, and no step up."""
    return queue if queue.strip(".") else queue.replace(".", "%2E")


def _message(queue: str, key: str) -> str:
    return f"/v1/messages/{writing.message_id(queue, key)}"
