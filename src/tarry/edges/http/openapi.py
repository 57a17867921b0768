"""The OpenAPI document with its problems and examples, as JSON and as one HTML page without scripts. Neither has a secret."""

from __future__ import annotations

import asyncio
import hashlib
import json
from html import escape
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, FastAPI, Request
from pydantic import BaseModel
from starlette.responses import Response

from tarry.edges.http.problems import MEDIA_TYPE

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "h2{margin-top:2.5rem;border-bottom:1px solid #ddd}h3{font:600 1rem ui-monospace,monospace;margin-bottom:0}"
    "p{margin:.2rem 0}small{color:#666}pre{background:#f5f5f5;padding:.5rem;overflow:auto}"
)
_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}

router = APIRouter(include_in_schema=False)


class ProblemDetails(BaseModel):
    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str | None = None
    request_id: str | None = None


_ALWAYS = (400, 401, 403, 408, 413, 415, 422, 429, 503)
_DESCRIPTIONS = {
    400: "Not JSON",
    401: "No key, or not a valid one",
    403: "The key may not do this on this queue",
    404: "No such queue, or no such live message",
    408: "The request was not sent in time",
    409: "Not in this state, or the lease is lost",
    413: "Too large",
    415: "The body is not declared as JSON",
    422: "Something in the request is not allowed",
    429: "Too many requests, or too many at once",
    503: "The database cannot be used at the moment",
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}
    return {
        status: {"description": _DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in (*_ALWAYS, *statuses)
    }


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Add to the document of FastAPI what it does not know."""
    components = document["components"]
    components["schemas"].setdefault(ProblemDetails.__name__, ProblemDetails.model_json_schema())
    for name in EXAMPLES.keys() & components["schemas"].keys():
        components["schemas"][name]["examples"] = [EXAMPLES[name]]
    components.setdefault("securitySchemes", {"key": {"type": "http", "scheme": "bearer"}})
    document["security"] = [{"key": []}]
    return document


class Built(NamedTuple):
    document: bytes
    page: bytes
    etag: str


class Description:
    """Document and page as bytes. Building takes over a second and needs no key: done once, in a thread, for all requests."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._built: Built | None = None
        self._building: asyncio.Task[Built] | None = None

    async def __call__(self) -> Built:
        if self._built is not None:
            return self._built
        if self._building is None:
            self._building = asyncio.create_task(self._build_once(), name="tarry-description")
        return await asyncio.shield(self._building)

    async def _build_once(self) -> Built:
        try:
            self._built = await asyncio.to_thread(self._both)
        finally:
            self._building = None
        return self._built

    def _both(self) -> Built:
        openapi = self._app.openapi()
        document = msgspec.json.encode(openapi)
        return Built(document, page(openapi).encode(), f'"{hashlib.sha256(document).hexdigest()[:32]}"')


@router.get("/docs")
async def docs(request: Request) -> Response:
    built = await request.app.state.description()
    return Response(built.page, headers=_HEADERS, media_type="text/html")


async def document(request: Request) -> Response:
    built: Built = await request.app.state.description()
    known = request.headers.get("if-none-match", "")
    if built.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers={"etag": built.etag})
    body, mounted_at = built.document, request.scope.get("root_path", "").rstrip("/")
    if mounted_at:
        body = b'{"servers":%b,%b' % (msgspec.json.encode([{"url": mounted_at}]), body[1:])
    return Response(body, headers={"etag": built.etag}, media_type="application/json")


router.add_route("/openapi.json", document, include_in_schema=False)


def page(document: dict[str, Any]) -> str:
    """The HTML page. All its texts are ours, and escaped nevertheless."""
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            section = _section(document, method.upper(), path, operation)
            by_tag.setdefault(operation.get("tags", [""])[0], []).append(section)
    parts = "".join(f"<h2>{escape(tag)}</h2>{''.join(sections)}" for tag, sections in by_tag.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Tarry</title><style>{_STYLE}</style>'
        f"<h1>Tarry</h1><p>{escape(document['info']['description'])}</p>"
        f'<p><small>For programs: <a href="openapi.json">openapi.json</a>, OpenAPI {document["openapi"]}.'
        f"</small></p>{parts}</html>"
    )


def _section(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    action, statuses = operation.get("x-tarry-access"), ", ".join(operation["responses"])
    query = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
    facts = [f"needs a key with the action {action}" if action else "needs no key", f"responses: {statuses}"]
    facts += [f"query: {', '.join(query)}"] if query else []
    example = _example(document, operation)
    return (
        f"<h3>{method} {escape(path)}</h3><p>{escape(operation.get('description', ''))}</p>"
        f"<p><small>{escape('; '.join(facts))}</small></p>{f'<pre>{escape(example)}</pre>' if example else ''}"
    )


def _example(document: dict[str, Any], operation: dict[str, Any]) -> str | None:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for option in (schema, *schema.get("anyOf", ())):
        if "$ref" in option:
            examples = document["components"]["schemas"][option["$ref"].rpartition("/")[2]].get("examples")
            return json.dumps(examples[0]) if examples else None
    return None


_ID = "b3JkZXJzL29yZGVyLTE3"
_TOKEN = "3f0c3f8e-9d5c-4a71-8a5e-0d6f0b3c2a19"  # noqa: S105 - not a token
_HELD = {"id": _ID, "token": _TOKEN}
_OFFER = {"key": "order-17", "payload": {"total": 40}, "after": "30m"}
_OFFERED = {"id": _ID, "key": "order-17", "outcome": "created"}
_DELIVERY = {
    "id": _ID,
    "queue": "orders",
    "key": "order-17",
    "version": 4,
    "token": _TOKEN,
    "attempt": 1,
    "redelivered": False,
    "priority": 0,
    "type": None,
    "headers": None,
    "due_at": "2030-01-31T18:00:00.000000Z",
    "leased_at": "2030-01-31T18:00:00.003000Z",
    "lease_until": "2030-01-31T18:00:30.003000Z",
    "payload": {"total": 40},
    "content_type": "application/json",
}

EXAMPLES: dict[str, Any] = {
    "AckRequest": {"note": "the nightly import"},
    "BackfillRequest": {"since": "2030-01-01T00:00:00Z", "until": "2030-01-02T00:00:00Z", "dry_run": True},
    "BuryBatch": {"messages": [_HELD], "error": "no such customer"},
    "BuryRequest": {"token": _TOKEN, "error": "no such customer"},
    "Deliveries": {"messages": [_DELIVERY]},
    "DueRequest": {"owned": ["reports"], "limit": 10},
    "EditRequest": {"priority": 9, "after": "5m"},
    "KeyRequest": {"name": "shop", "actions": ["produce"], "queues": ["orders", "mails-*"], "expires_for": "90d"},
    "MuteRequest": {"queue": "orders", "detector": "burst_dequeue", "mute_for": "2h", "reason": "a load test"},
    "NackBatch": {"messages": [{**_HELD, "error": "card declined", "after": "1m"}]},
    "NackRequest": {"token": _TOKEN, "error": "card declined", "after": "1m"},
    "OfferBatch": {"messages": [_OFFER, {"payload": "hello"}]},
    "OfferRequest": _OFFER,
    "Offered": _OFFERED,
    "OfferedBatch": {"messages": [_OFFERED]},
    "PlanRequest": {
        "changes": [
            {
                "name": "daily-report",
                "expected": 3,
                "decided_at": "2030-01-31T08:59:00Z",
                "cursor_at": "2030-01-31T09:00:00Z",
                "wake_at": "2030-02-01T08:59:00Z",
                "ticks": [{"tick": "2030-01-31T09:00:00Z"}],
            }
        ]
    },
    "PollRequest": {"max": 10, "wait": "20s", "lease_for": "1m", "consumer": "worker-1"},
    "ProblemDetails": {
        "type": "urn:tarry:problem:lease_lost",
        "title": "Conflict",
        "status": 409,
        "code": "lease_lost",
        "detail": "this token is no longer the message's lease",
        "hint": "stop working on it: it was offered again, taken over or given back",
        "request_id": "5f2b8c1d9e3a7046",
    },
    "PurgeRequest": {"confirm": "orders"},
    "QueueChanges": {"lease_for": "2m", "max_attempts": 5, "retry": {"initial_for": "10s", "cap_for": "10m"}},
    "QueueRequest": {"name": "orders", "lease_for": "2m"},
    "ReasonRequest": {"reason": "stock-taking"},
    "RedriveNowRequest": {"versions": [4, 17]},
    "RedriveRequest": {"fingerprint": "0123456789ab", "rate": 50, "canary": 5},
    "ReleaseBatch": {"messages": [_HELD], "after": "10s"},
    "ReleaseRequest": {"token": _TOKEN, "after": "10s"},
    "RenameRequest": {"new_name": "orders-2030"},
    "ScheduleChangesRequest": {
        "changes": [{"name": "daily-report", "expected": 3, "decided_at": "2030-01-31T08:59:00Z", "after": None}]
    },
    "ScheduleRequest": {
        "cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "queue": "reports", "payload": {"kind": "daily"},
    },
    "SettleBatch": {"messages": [_HELD]},
    "SettleRequest": {"token": _TOKEN},
    "SettledBatch": {"messages": [{"id": _ID, "outcome": "done"}]},
    "Settlement": {"outcome": "done"},
    "TouchBatch": {"messages": [_HELD], "lease_for": 60},
    "TouchRequest": {"token": _TOKEN, "lease_for": 60},
}  # fmt: skip
"""By the name of the schema; a test validates them."""
