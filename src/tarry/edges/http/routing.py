"""Routes with access rules: each declares the right that its caller needs, which is checked here after routing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
import pydantic_core
from fastapi import Body, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Send
from starlette.types import Scope as ScopeOfRequest

from tarry.api.queues import AsyncQueues
from tarry.api.schedules import AsyncSchedules
from tarry.core.cron.model import ScheduleState
from tarry.core.errors import TarryError, UnknownRedrive, UnknownSchedule
from tarry.core.limits import check_existing_queue_name
from tarry.core.operation import Operation
from tarry.core.ports import AsyncStore
from tarry.core.security.api_keys import Action
from tarry.core.security.audit import AuditEntry
from tarry.edges.http import audit_refusals
from tarry.edges.http.audited_bodies import audited_body, without_nul
from tarry.edges.http.auth import Caller, key_text
from tarry.edges.http.lean_routes import Handler, lean_handler, takes_little
from tarry.edges.http.openapi import problem_responses
from tarry.edges.http.problems import HANDLED, Problem, message_gone, problem_of
from tarry.wire.base import Response as WireResponse
from tarry.wire.ids import MessageId, parse_schedule_id

if TYPE_CHECKING:
    from tarry.edges.http.app import Broker

T = TypeVar("T")
Sent = Annotated[T, Body()]
"""The body of a request: a struct of `tarry.wire`."""
_JSON_TYPES = ("application/json", "application/x-www-form-urlencoded", "")
_log = logging.getLogger("tarry.http")
_AUDITED = "tarry.audited"
"""Scope entry of an audited request: details that are added to its audit row with the response."""


class Scope(StrEnum):
    """The object of a route. The caller needs the route's right on it."""

    QUEUE = "queue"
    """The queue in its path."""
    MESSAGE = "message"
    """The queue of the message in its path."""
    REDRIVE = "redrive"
    """The queue of the redrive job in its path."""
    SCHEDULE = "schedule"
    """The queue of the schedule in its path."""
    LEDGER = "ledger"
    """Like SCHEDULE. The ledger of a deleted schedule is for keys that may read all queues."""
    BODY = "body"
    """Queues named in its body; the route checks each of them."""
    LISTED = "listed"
    """Every object that the caller may see; the route filters out the others."""
    ALL = "all"
    """All queues."""


def access(action: Action, scope: Scope = Scope.QUEUE) -> dict[str, Any]:
    """The access rule of a route, for `openapi_extra`: the OpenAPI document shows it too."""
    return {"x-tarry-access": action.value, "x-tarry-scope": scope.value}


BY_COOKIE = {"x-tarry-cookie": True}
"""Also for `openapi_extra`: accept a browser session instead of a key. Only for routes that change nothing."""
AUDITED = {"x-tarry-audited": True}
"""Also for `openapi_extra`: audit each request, even if its method and right do not require it."""


def needs(
    action: Action,
    scope: Scope = Scope.QUEUE,
    extra: Mapping[str, Any] = {},
    *,
    conflicts: bool | None = None,
    responses: Mapping[Any, Any] = {},
) -> dict[str, Any]:
    """Route arguments: the right that the caller needs, and the problem responses.

    `conflicts`: the route may respond with 409, the default for admin routes.
    """
    may_conflict = action is Action.ADMIN if conflicts is None else conflicts
    return {
        "responses": {**responses, **problem_responses(404, *((409,) if may_conflict else ()))},
        "openapi_extra": {**access(action, scope), **extra},
    }


class BrokerRequest(Request):
    """A request to a broker route. Its caller and the objects in its path are authorized before the route is called."""

    @cached_property
    def broker(self) -> Broker:
        return self.app.state.broker

    @property
    def store(self) -> AsyncStore:
        return self.broker.store

    @property
    def queues(self) -> AsyncQueues:
        return self.broker.app.queues

    @property
    def schedules(self) -> AsyncSchedules:
        return self.broker.app.schedules

    @property
    def caller(self) -> Caller:
        return self.scope["tarry.caller"]

    @property
    def message(self) -> MessageId:
        return self.scope["tarry.message"]

    @property
    def schedule(self) -> ScheduleState:
        return self.scope["tarry.schedule"]

    def run(self, operation: Operation[T], conn: Any = None) -> Awaitable[T]:
        return self.store.run(operation, conn)

    async def body(self) -> bytes:
        """The body, read once. The key is checked again afterwards: it may expire while the client sends the body."""
        if not hasattr(self, "_body"):
            # Read directly: Starlette's generator costs more than the rest of the request.
            parts, is_more = list[bytes](), True
            while is_more:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                is_more = message.get("more_body", False)
            self._body = b"".join(parts)
            if "tarry.caller" in self.scope:
                await self.broker.authenticator.require_valid(self.caller)
        return self._body

    async def json(self) -> Any:
        try:
            return pydantic_core.from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            problem = str(error).partition(" at line")[0][:200]
            # FastAPI replaces the text of any other kind of exception.
            raise HTTPException(400, f"the body is not JSON: {problem}") from None


class AccessRoute(APIRoute):
    """A route that checks the caller's right.

    It is lean if its endpoint takes only the request, path strings and a body. Lean routes are called without FastAPI,
    whose parameter resolution and exit stacks cost more than the offer itself.
    """

    is_lean = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.is_lean:
            handle = self.get_route_handler()

            async def respond_lean(scope: ScopeOfRequest, receive: Receive, send: Send) -> None:
                request = BrokerRequest(scope, receive, send)
                try:
                    response = await handle(request)
                except HANDLED as error:
                    response = problem_of(error).response(scope)
                await response(scope, receive, send)

            self.app = respond_lean

    def get_route_handler(self) -> Handler:
        extra = self.openapi_extra or {}
        if "x-tarry-access" not in extra:
            respond = super().get_route_handler()

            async def respond_to_all(request: Request) -> Response:
                return await respond(BrokerRequest(request.scope, request.receive))

            return respond_to_all
        self.is_lean = is_lean = takes_little(self)
        inner = lean_handler(self) if is_lean else super().get_route_handler()
        action, scope = Action(extra["x-tarry-access"]), Scope(extra["x-tarry-scope"])
        takes_body, by_cookie = self.body_field is not None, "x-tarry-cookie" in extra
        always_audited = "x-tarry-audited" in extra
        leases_by_get = action is Action.CONSUME and "GET" in (self.methods or ())

        async def handle(request: Request) -> Response:
            broker = request.app.state.broker
            try:
                caller: Caller = await broker.authenticator.identify(
                    request, by_cookie=by_cookie, changes_by_get=leases_by_get
                )
                request.scope["tarry.caller"] = caller
                queue = await _judge(broker.store, caller, action, scope, request)
                if takes_body:
                    _require_json(request)
                if not is_lean:
                    request = BrokerRequest(_with_json(request.scope) if takes_body else request.scope, request.receive)
                if takes_body:
                    await request.body()
                if not (always_audited or _is_audited(action, request)):
                    return await inner(request)
                return await _audited(cast("BrokerRequest", request), queue, lambda: inner(request))
            except Problem as problem:
                if problem.status in audit_refusals.STATUSES and _AUDITED not in request.scope:
                    named = f"{request.method} {self.path_format}"
                    await broker.refusals.note(request, named, problem, key_text(request))
                raise

        return handle


def _is_audited(action: Action, request: Request) -> bool:
    """Whether to audit a request: admin changes, and producers' deletions and edits that void a lease."""
    if action is Action.ADMIN:
        return request.method != "GET"
    if action is not Action.PRODUCE:
        return False
    return request.method == "DELETE" or (request.method == "PATCH" and "force" in request.query_params)


def audit_also(request: Request, **detail: Any) -> None:
    """Add details that are known only after the action, such as the id of a new key."""
    request.scope.setdefault(_AUDITED, {}).update(detail)


def respond(body: WireResponse | Mapping[str, Any] | Sequence[Any], status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


async def _judge(store: AsyncStore, caller: Caller, action: Action, scope: Scope, request: Request) -> str | None:
    """Require the caller's right, and return the queue that it applies to.

    Names in the path alone decide. A job or schedule of a queue that the caller may not use is treated as missing.
    """
    queue: str | None = None
    if scope is Scope.QUEUE:
        queue = request.path_params["queue"]
        caller.require(action, queue)
        check_existing_queue_name(queue)
    elif scope is Scope.MESSAGE:
        message = MessageId.parse(request.path_params["id"])
        if message is None:
            if not caller.may(action):
                raise Problem(403, "forbidden", f"this key may not {action}")
            raise message_gone()
        queue = message.queue
        caller.require(action, queue)
        request.scope["tarry.message"] = message
    elif scope is Scope.ALL:
        caller.require(action, None)
    elif not caller.may(action):
        raise Problem(403, "forbidden", f"this key may not {action}")
    elif scope is Scope.REDRIVE:
        text = request.path_params["job"]
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            return None  # not a job number: the route rejects it
        number = int(text)
        job = await store.run(store.dead_letters.redrive_job(number))
        if job is None or not caller.allows(action, job.queue):
            raise UnknownRedrive(number)
        request.scope["tarry.redrive"], queue = job, job.queue
    elif scope in (Scope.SCHEDULE, Scope.LEDGER):
        name = parse_schedule_id(request.path_params["schedule"])
        states = [] if name is None else await store.run(store.cron.schedules(name))
        if name is not None and not states and scope is Scope.LEDGER and caller.allows(action, None):
            return None
        if name is None or not states or not caller.allows(action, states[0].spec.queue):
            raise UnknownSchedule(name or request.path_params["schedule"])
        request.scope["tarry.schedule"], queue = states[0], states[0].spec.queue
    return queue


def _require_json(request: Request) -> None:
    """Accept JSON that is declared as a form, as `curl -d` does. A body of any other declared type is rejected."""
    declared = request.headers.get("content-type", "")
    if declared != "application/json" and declared.split(";")[0].strip().lower() not in _JSON_TYPES:
        raise Problem(415, "not_json", "the body must be JSON", hint="send Content-Type: application/json")


def _with_json(scope: Any) -> Any:
    """The scope with a JSON content type: FastAPI parses no other body."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*headers, (b"content-type", b"application/json")]}


async def _audited(request: BrokerRequest, queue: str | None, do: Callable[[], Awaitable[Response]]) -> Response:
    """Write the audit row before the action, and add the response status afterwards."""
    request.scope[_AUDITED] = {}
    store, route = request.store, request.scope["route"]
    action, body = f"{request.method} {route.path_format}", await request.body()
    detail: dict[str, Any] = {"path": dict(request.path_params), "query": dict(request.query_params)}
    if body:
        field = getattr(route, "body_field", None)
        detail |= audited_body(body, None if field is None else field.field_info.annotation)
    request_id = request.scope.get("tarry.request_id")
    entry = AuditEntry(request.caller.id, action, without_nul(queue), without_nul(detail), request_id)
    return await recorded(store, entry, do, request.scope[_AUDITED])


async def recorded(
    store: AsyncStore, entry: AuditEntry, do: Callable[[], Awaitable[Response]], more: Mapping[str, Any] = {}
) -> Response:
    """Run an action between the two writes of its audit row. `more`: details known after the action."""
    row = await store.run(store.security.audit(entry))
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
            await store.run(store.security.audited(row, status, detail=more or None))
        except TarryError as error:
            # The row exists, without its status. The caller must get the response nevertheless: a new key is shown
            # once.
            _log.warning("the audit has no status for %s: %s", entry.action, error)
