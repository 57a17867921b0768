"""The verbs about messages as requests to a broker, with the arguments that a store has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from tarry.core.editing import Edit
from tarry.core.errors import InvalidPayload
from tarry.core.events import Event
from tarry.core.failures import decoder_error
from tarry.core.limits import clip_error
from tarry.core.messages import (
    EVERYTHING,
    BuryReason,
    Counts,
    Decode,
    Draft,
    Failure,
    Filter,
    Hold,
    Lease,
    StoredMessage,
)
from tarry.core.outcomes import Edited, Outcome, Settled
from tarry.core.retry import Retry
from tarry.core.states import State
from tarry.storage.http import reading, writing
from tarry.storage.http.call import Call, Op, ask, code_of, drawn, named

P = TypeVar("P")

LARGEST_PAGE = 1_000
VERSIONS = range(1, 2**63)
"""Those that there can be."""


def offer(queue: str, draft: Draft) -> Op[Outcome]:
    """One by one, so that the broker can put those of many clients into one commit."""
    path = f"/v1/queues/{named(queue)}/messages"
    answer = yield from ask(Call("POST", path, writing.offer(draft), queue=queue, key=drawn()))
    return Outcome(answer.json()["outcome"])


def offer_many(queue: str, drafts: Sequence[Draft]) -> Op[list[Outcome]]:
    """All or nothing for each request: a thousand messages, or as many as fit into one."""
    outcomes: list[Outcome] = []
    path = f"/v1/queues/{named(queue)}/messages:batch"
    for batch in writing.batches_of_drafts(drafts):
        body = {"messages": [writing.offer(draft) for draft in batch]}
        answer = yield from ask(Call("POST", path, body, queue=queue, key=drawn()))
        outcomes += [Outcome(one["outcome"]) for one in answer.json()["messages"]]
    return outcomes


def lease(
    queue: str,
    n: int,
    decode: Decode[P],
    *,
    type: str | None = None,
    lease_for: timedelta | None = None,
    consumer: str | None = None,
    max_attempts: int | None = None,
    lowest_first: bool = False,
    wait_for: timedelta = timedelta(0),
) -> Op[list[Lease[P]]]:
    """Up to n. What cannot be decoded is buried, and others take its place. The broker waits for a first one, at most a
    minute. A message whose decoder raised has failed and is nacked; no further request follows, so that a bug of a decoder
    costs one call at most n attempts."""
    taken: list[Lease[P]] = []
    broken: list[Failure] = []
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
        path = f"/v1/queues/{named(queue)}/messages:poll"
        answer = yield from ask(Call("POST", path, asked, queue=queue, wait_s=wait_s))
        if answer.status == 204:
            break
        rows = [one.lease() for one in msgspec.json.decode(answer.body, type=reading.Deliveries).messages]
        taken_before = len(taken)
        yield from _judged(queue, rows, decode, taken, broken)
        if broken or len(taken) - taken_before == len(rows) < missing:
            break
    if broken:
        yield from nack(queue, broken)
    return taken


def _judged(
    queue: str, rows: Sequence[Lease[bytes]], decode: Decode[P], taken: list[Lease[P]], broken: list[Failure]
) -> Op[None]:
    unfit: list[tuple[Hold, str]] = []
    for row in rows:
        try:
            payload = decode(row.payload, row.content_type)
        except InvalidPayload as error:
            unfit.append((row.hold, clip_error(str(error))))
        except Exception as error:
            broken.append(Failure(row.hold, decoder_error(row.key, error)))
        else:
            taken.append(Lease(row.key, payload, *row[2:]))
    for hold, error in unfit:
        yield from _settle(queue, "bury", [hold], error=error, reason="undecodable")


def ack(queue: str, holds: Sequence[Hold]) -> Op[list[Settled]]:
    return _settle(queue, "ack", holds)


def touch(queue: str, holds: Sequence[Hold], *, lease_for: timedelta | None = None) -> Op[list[Settled]]:
    return _settle(queue, "touch", holds, extend_seconds=writing.seconds(lease_for))


def bury(
    queue: str, holds: Sequence[Hold], *, error: str | None = None, reason: BuryReason = "buried"
) -> Op[list[Settled]]:
    return _settle(queue, "bury", holds, error=error, reason=reason)


def _settle(queue: str, verb: str, holds: Sequence[Hold], **more: Any) -> Op[list[Settled]]:
    return _settled(queue, verb, [writing.held(queue, hold) for hold in holds], more)


def nack(queue: str, failures: Sequence[Failure], *, retry: Retry | None = None) -> Op[list[Settled]]:
    policy = None if retry is None else {**retry.as_data(), "max_attempts": retry.max_attempts}
    return _settled(queue, "nack", [writing.failed(queue, failure) for failure in failures], {"retry": policy})


def release(
    queue: str, holds: Sequence[Hold], *, due_at: datetime | None = None, delay: timedelta | None = None
) -> Op[list[Settled]]:
    at = None if due_at is None else writing.instant(due_at)
    return _settle(queue, "release", holds, at=at, delay=writing.seconds(delay))


def _settled(queue: str, verb: str, items: Sequence[dict[str, Any]], more: dict[str, Any]) -> Op[list[Settled]]:
    outcomes: list[Settled] = []
    for batch in writing.batches(items):
        answer = yield from ask(Call("POST", f"/v1/messages:{verb}", {"messages": list(batch), **more}, queue=queue))
        outcomes += [Settled(one["outcome"]) for one in answer.json()["messages"]]
    return outcomes


def read(queue: str, key: str) -> Op[StoredMessage[bytes] | None]:
    answer = yield from ask(Call("GET", _message(queue, key), queue=queue), expected=("gone",))
    return msgspec.json.decode(answer.body, type=reading.Live).stored() if answer.status == 200 else None


def contains(queue: str, key: str) -> Op[bool]:
    return (yield from read(queue, key)) is not None


def messages(
    queue: str, *, state: State | None = None, limit: int = 100, filter: Filter = EVERYTHING
) -> Op[list[StoredMessage[bytes]]]:
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
        answer = yield from ask(Call("GET", f"/v1/queues/{named(queue)}/messages", params=given, queue=queue))
        page = msgspec.json.decode(answer.body, type=reading.Page)
        found += [one.stored() for one in page.messages]
        after = page.next
        if after is None:
            break
    return found


def timeline(queue: str, key: str, *, limit: int = 1000, before: int | None = None) -> Op[list[Event]]:
    found: list[Event] = []
    while (missing := limit - len(found)) > 0:
        params = {"limit": min(missing, 10_000)} | ({} if before is None else {"before": before})
        answer = yield from ask(Call("GET", _message(queue, key) + "/timeline", params=params, queue=queue))
        page = answer.json()
        found = [*map(reading.event, page["events"]), *found]
        before = page.get("next")
        if before is None:
            break
    return found


def counts(queue: str, *, limit: int = 10_000) -> Op[Counts]:
    params = {"count_to": max(0, min(limit, 1_000_000))}
    answer = yield from ask(Call("GET", f"/v1/queues/{named(queue)}", params=params, queue=queue))
    return reading.counts(answer.json()["counts"])


def edit(queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False) -> Op[Edited]:
    body, params = writing.edit(edit), _if(version, force=force)
    call = Call("PATCH", _message(queue, key), body, params=params, queue=queue)
    answer = yield from ask(call, expected=("gone", "leased", "changed"))
    return Edited(answer.json()["outcome"] if answer.status == 200 else code_of(answer))


def drop(queue: str, key: str, *, version: int | None = None, unless_leased: bool = False) -> Op[bool]:
    call = Call("DELETE", _message(queue, key), params=_if(version, force=not unless_leased), queue=queue)
    return (yield from ask(call, expected=("gone", "leased", "changed"))).status == 200


def _if(version: int | None, *, force: bool) -> dict[str, Any]:
    # What cannot be a version is one that no message ever has.
    seen = {} if version is None else {"version": version if version in VERSIONS else VERSIONS[-1]}
    return {**seen, "force": "true"} if force else seen


def drop_all(queue: str) -> Op[int]:
    call = Call("POST", f"/v1/queues/{named(queue)}/purge", {"confirm": queue}, queue=queue, key=drawn())
    return (yield from ask(call)).json()["dropped"]


def now() -> Op[datetime]:
    return datetime.fromisoformat((yield from ask(Call("GET", "/v1/now"))).json()["now"])


def _message(queue: str, key: str) -> str:
    return f"/v1/messages/{writing.message_id(queue, key)}"
