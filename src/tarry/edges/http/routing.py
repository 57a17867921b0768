"""Every route says what its caller must be allowed to do, and that is decided here, on the route that matched."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from enum import StrEnum
from itertools import islice
from typing import Any, cast

import pydantic_core
from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.exceptions import HTTPException

from tarry.core.cron import ScheduleState
from tarry.core.errors import TarryError, UnknownRedrive, UnknownSchedule
from tarry.core.keys import Action
from tarry.core.ports import AsyncStore
from tarry.core.redriving import RedriveJob
from tarry.edges.http import refusals
from tarry.edges.http.gate import Caller, key_text
from tarry.edges.http.ids import MessageId, parse_prefix
from tarry.edges.http.problems import Problem, message_gone, problem_of

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
AUDITED_BYTES = 4_096
_AUDITED_ITEMS = 100
_AUDITED_TEXT = 100
"""Items of a list and characters of a text that the audit keeps of a body that is too long for it."""
_AUDITED_IDS = ("messageIds", "messages", "versions")
"""Fields that name what is deleted or moved: the audit has all of their items, which are 1,000 at most."""
_AUDITED_ID = 200
"""Characters of an id that the audit keeps whole; of a longer one it has the beginning and the hash."""
_log = logging.getLogger("tarry.http")
_AUDITED = "tarry.audited"
"""In the scope of a request that has a row: what is added to it with the answer."""


class Scope(StrEnum):
    """What a route is about, for the decision who may use it."""

    QUEUE = "queue"
    """The queue in its path."""
    MESSAGE = "message"
    """The queue of the message in its path."""
    REDRIVE = "redrive"
    """The queue of the redrive job in its path."""
    SCHEDULE = "schedule"
    """The queue of the schedule in its path."""
    LEDGER = "ledger"
    """The same; and of a schedule that is gone, what is left is for those who may see everything."""
    BODY = "body"
    """Queues that its body names; the route asks for each."""
    LISTED = "listed"
    """All that the caller may see; the route leaves out the rest."""
    ALL = "all"
    """Everything there is."""


def access(action: Action, scope: Scope = Scope.QUEUE) -> dict[str, Any]:
    """For `openapi_extra` of a route: the document then says it, too."""
    return {"x-tarry-access": action.value, "x-tarry-scope": scope.value}


BY_COOKIE = {"x-tarry-cookie": True}
"""For `openapi_extra`, too: the session of a browser is as good as the key it stands for. Only where nothing is changed."""


class StrictRequest(Request):
    async def body(self) -> bytes:
        """Read once, and checked then: a client may take long to send it, and its key may have ended meanwhile."""
        is_new = not hasattr(self, "_body")
        body = await super().body()
        if is_new and "tarry.caller" in self.scope:
            await self.app.state.broker.gate.require_valid(caller_of(self))
        return body

    async def json(self) -> Any:
        try:
            return pydantic_core.from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            said = str(error).partition(" at line")[0][:200]
            # FastAPI replaces every other kind of exception by one without these words.
            raise HTTPException(400, f"the body is not JSON: {said}") from None


class AccessRoute(APIRoute):
    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()
        said = self.openapi_extra or {}
        if "x-tarry-access" not in said:
            return _open(inner)
        action, scope = Action(said["x-tarry-access"]), Scope(said["x-tarry-scope"])
        takes_body, by_cookie = self.body_field is not None, "x-tarry-cookie" in said
        leases_by_get = action is Action.CONSUME and "GET" in (self.methods or ())

        async def handle(request: Request) -> Response:
            broker = request.app.state.broker
            try:
                caller: Caller = await broker.gate.identify(request, by_cookie=by_cookie, changes_by_get=leases_by_get)
                request.scope["tarry.caller"] = caller
                queue = await _judge(broker.store, caller, action, scope, request)
                request = StrictRequest(_with_json(request.scope, takes_body=takes_body), request.receive)
                if takes_body:
                    await request.body()
                if not _is_audited(action, request):
                    return await inner(request)
                return await audited(request, queue, lambda: inner(request))
            except Problem as problem:
                if problem.status in refusals.STATUSES and _AUDITED not in request.scope:
                    named = f"{request.method} {self.path_format}"
                    await broker.refusals.note(request, named, problem, key_text(request))
                raise

        return handle


def _is_audited(action: Action, request: Request) -> bool:
    """What an administrator changes, and what a producer takes away: messages, and leases of others by force."""
    if action is Action.ADMIN:
        return request.method != "GET"
    if action is not Action.PRODUCE:
        return False
    return request.method == "DELETE" or (request.method == "PATCH" and "force" in request.query_params)


def audit_also(request: Request, **detail: Any) -> None:
    """For what the audit shall have and is known only when it is done, such as the id of a new key."""
    request.scope.setdefault(_AUDITED, {}).update(detail)


def caller_of(request: Request) -> Caller:
    return request.scope["tarry.caller"]


def message_of(request: Request) -> MessageId:
    """The message in the path, which was judged before the route was called."""
    return request.scope["tarry.message"]


def redrive_of(request: Request) -> RedriveJob:
    return request.scope["tarry.redrive"]


def schedule_of(request: Request) -> ScheduleState:
    return request.scope["tarry.schedule"]


async def _judge(store: AsyncStore, caller: Caller, action: Action, scope: Scope, request: Request) -> str | None:
    """On which queue; by names alone, wherever the path has them. Of what has to be looked up, what is foreign is answered
    like what is not there."""
    queue: str | None = None
    if scope is Scope.QUEUE:
        queue = request.path_params["queue"]
        caller.require(action, queue)
    elif scope is Scope.MESSAGE:
        found = MessageId.parse(request.path_params["id"])
        if found is None:
            if not caller.may(action):
                raise Problem(403, "forbidden", f"this key may not {action}")
            raise message_gone()
        queue = found.queue
        caller.require(action, queue)
        request.scope["tarry.message"] = found
    elif scope is Scope.ALL:
        caller.require(action, None)
    elif not caller.may(action):
        raise Problem(403, "forbidden", f"this key may not {action}")
    elif scope is Scope.REDRIVE and (number := _number(request.path_params["job"])) is not None:
        job = await store.redrive_job(number)
        if job is None or not caller.allows(action, job.queue):
            raise UnknownRedrive(number)
        request.scope["tarry.redrive"], queue = job, job.queue
    elif scope in (Scope.SCHEDULE, Scope.LEDGER):
        prefix = parse_prefix(request.path_params["schedule"])
        found = [] if prefix is None else await store.schedules(prefix)
        if prefix is not None and not found and scope is Scope.LEDGER and caller.allows(action, None):
            return None
        if prefix is None or not found or not caller.allows(action, found[0].spec.queue):
            raise UnknownSchedule(prefix or request.path_params["schedule"])
        request.scope["tarry.schedule"], queue = found[0], found[0].spec.queue
    return queue


def _number(text: str) -> int | None:
    """None: what is no number of a job is refused as such, once it is clear that the caller may ask at all."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _open(inner: Handler) -> Handler:
    async def handle(request: Request) -> Response:
        return await inner(request)

    return handle


def _with_json(scope: Any, *, takes_body: bool) -> Any:
    """`curl -d` says that it sends a form, and means JSON. What says it is something else is not taken for JSON."""
    if not takes_body:
        return scope
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    said = next((value for name, value in scope["headers"] if name == b"content-type"), b"application/json")
    media_type = said.split(b";")[0].strip().lower()
    if media_type not in (b"application/json", b"application/x-www-form-urlencoded", b""):
        raise Problem(415, "not_json", "the body must be JSON", hint="send Content-Type: application/json")
    return {**scope, "headers": [*headers, (b"content-type", b"application/json")]}


async def audited(request: Request, queue: str | None, do: Callable[[], Awaitable[Response]]) -> Response:
    """The row is there before the action is tried; the answer is added when there is one. Once for each request."""
    if _AUDITED in request.scope:
        return await do()
    request.scope[_AUDITED] = {}
    store: AsyncStore = request.app.state.broker.store
    route: Any = request.scope["route"]
    action, body = f"{request.method} {route.path_format}", await request.body()
    detail: dict[str, Any] = {"path": dict(request.path_params), "query": dict(request.query_params)}
    if body:
        field = getattr(route, "body_field", None)
        detail |= audited_body(body, None if field is None else field.field_info.annotation)
    row = await store.audit(
        caller_of(request).id,
        action,
        queue=_storable(queue),
        detail=_storable(detail),
        request_id=request.scope.get("tarry.request_id"),
    )
    status = 500
    try:
        response = await do()
        status = response.status_code
        return response
    except Exception as error:
        status = problem_of(error).status
        raise
    finally:
        try:
            await store.audited(row, status, detail=request.scope[_AUDITED] or None)
        except TarryError as error:
            # The row is there, without its answer. What was done is done, and its caller must hear of it: a new key is
            # shown once.
            _log.warning("what became of %s is not in the audit: %s", action, error)


def audited_body(body: bytes, model: Any = None) -> dict[str, Any]:
    """The body for the audit: as it came if it is short, else without its padding, with its size and hash.

    White space, long texts and members that `model` (the type of the route's body) ignores must not push the fields behind
    them out of the audit.
    """
    if len(body) <= AUDITED_BYTES:
        return {"body": body.decode(errors="replace")}
    ids: dict[str, Any] = {}
    try:
        parsed = pydantic_core.from_json(body)
        known = _known_fields(parsed, model)
        if known is not None:
            ids = _audited_ids(known)
            # Lists last: short fields are not behind a long one.
            parsed = dict(sorted(known.items(), key=lambda field: isinstance(field[1], list | dict)))
        shown = pydantic_core.to_json(_shortened(parsed))
    except ValueError:
        shown = body.strip()
    return {
        "body": shown[:AUDITED_BYTES].decode(errors="replace"),
        "body_bytes": len(body),
        "body_sha256": hashlib.sha256(body).hexdigest(),
        **ids,
    }


def _known_fields(parsed: Any, model: Any) -> dict[str, Any] | None:
    """What the model has taken from the body. None where it is no valid one: the request is refused."""
    if model is None:
        return None
    try:
        valid = TypeAdapter[Any](model).validate_python(parsed)
        return (
            valid.model_dump(mode="json", by_alias=True, exclude_unset=True) if isinstance(valid, BaseModel) else None
        )
    except (ValueError, TarryError):
        return None


def _audited_ids(known: dict[str, Any]) -> dict[str, Any]:
    """Take the ids out of the fields. Long ones are shortened and none is left out, or they could hide the others."""
    found = [item for name in _AUDITED_IDS if isinstance(known.get(name), list) for item in known.pop(name)]
    ids = [cast("dict[str, Any]", item).get("id") if isinstance(item, dict) else item for item in found]
    return {"ids": [_audited_id(id) for id in ids]} if ids else {}


def _audited_id(id: Any) -> Any:
    if not isinstance(id, str) or len(id) <= _AUDITED_ID:
        return _storable(id)
    return f"{_storable(id[:_AUDITED_TEXT])}… (sha256 {hashlib.sha256(id.encode()).hexdigest()})"


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value).items()
        return {_shortened(name): _shortened(inner) for name, inner in islice(fields, _AUDITED_ITEMS)}
    if isinstance(value, list):
        return [_shortened(inner) for inner in cast("list[Any]", value)[:_AUDITED_ITEMS]]
    if isinstance(value, str) and len(value) > _AUDITED_TEXT:
        return f"{value[:_AUDITED_TEXT]}… ({len(value):,} characters)"
    return value


def _storable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_storable(name): _storable(inner) for name, inner in cast("dict[str, Any]", value).items()}
    return value.replace("\x00", "") if isinstance(value, str) else value
