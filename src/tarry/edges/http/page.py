"""The OpenAPI document, for programs as JSON and for people as one page without a script. Neither has a secret in it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from html import escape
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from tarry.edges.http.routing import AccessRoute

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "h2{margin-top:2.5rem;border-bottom:1px solid #ddd}h3{font:600 1rem ui-monospace,monospace;margin-bottom:0}"
    "p{margin:.2rem 0}small{color:#666}pre{background:#f5f5f5;padding:.5rem;overflow:auto}"
)
_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}

router = APIRouter(route_class=AccessRoute, include_in_schema=False)


class Made(NamedTuple):
    document: bytes
    page: bytes
    etag: str


class Description:
    """Document and page as bytes. Needs no key and takes more than a second: made once, in a thread, for all requests."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._made: Made | None = None
        self._making: asyncio.Task[Made] | None = None

    async def __call__(self) -> Made:
        if self._made is not None:
            return self._made
        if self._making is None:
            self._making = asyncio.create_task(self._make_once(), name="tarry-description")
        return await asyncio.shield(self._making)

    async def _make_once(self) -> Made:
        try:
            self._made = await asyncio.to_thread(self._both)
        finally:
            self._making = None
        return self._made

    def _both(self) -> Made:
        said = self._app.openapi()
        document = msgspec.json.encode(said)
        return Made(document, page(said).encode(), f'"{hashlib.sha256(document).hexdigest()[:32]}"')


@router.get("/docs")
async def docs(request: Request) -> Response:
    made = await request.app.state.description()
    return Response(made.page, headers=_HEADERS, media_type="text/html")


async def openapi(request: Request) -> Response:
    made: Made = await request.app.state.description()
    known = request.headers.get("if-none-match", "")
    if made.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers={"etag": made.etag})
    body, mounted_at = made.document, request.scope.get("root_path", "").rstrip("/")
    if mounted_at:
        body = b'{"servers":%b,%b' % (msgspec.json.encode([{"url": mounted_at}]), body[1:])
    return Response(body, headers={"etag": made.etag}, media_type="application/json")


router.add_route("/openapi.json", openapi, include_in_schema=False)


def page(document: dict[str, Any]) -> str:
    """Everything in it is text of ours; it is escaped all the same."""
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            told = _told(document, method.upper(), path, operation)
            by_tag.setdefault(operation.get("tags", [""])[0], []).append(told)
    parts = "".join(f"<h2>{escape(tag)}</h2>{''.join(told)}" for tag, told in by_tag.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Tarry</title><style>{_STYLE}</style>'
        f"<h1>Tarry</h1><p>{escape(document['info']['description'])}</p>"
        f'<p><small>The same for programs: <a href="openapi.json">openapi.json</a>, OpenAPI {document["openapi"]}.'
        f"</small></p>{parts}</html>"
    )


def _told(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    needs, answers = operation.get("x-tarry-access"), ", ".join(operation["responses"])
    query = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    facts = [f"needs a key that may {needs}" if needs else "open to all", f"answers {answers}"]
    facts += [f"query: {', '.join(query)}"] if query else []
    example = _example(document, operation)
    return (
        f"<h3>{method} {escape(path)}</h3><p>{escape(operation.get('description', ''))}</p>"
        f"<p><small>{escape('; '.join(facts))}</small></p>{f'<pre>{escape(example)}</pre>' if example else ''}"
    )


def _example(document: dict[str, Any], operation: dict[str, Any]) -> str | None:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for one in (schema, *schema.get("anyOf", ())):
        if "$ref" in one:
            examples = document["components"]["schemas"][one["$ref"].rpartition("/")[2]].get("examples")
            return json.dumps(examples[0]) if examples else None
    return None
