"""The OpenAPI document for people: one page without a script, which asks for nothing and has no secret in it."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tarry.edges.http.routing import AccessRoute

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "h2{margin-top:2.5rem;border-bottom:1px solid #ddd}h3{font:600 1rem ui-monospace,monospace;margin-bottom:0}"
    "p{margin:.2rem 0}small{color:#666}pre{background:#f5f5f5;padding:.5rem;overflow:auto}"
)
_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}

router = APIRouter(route_class=AccessRoute, include_in_schema=False)


@router.get("/docs")
async def docs(request: Request) -> Response:
    return Response(page(request.app.openapi()), headers=_HEADERS, media_type="text/html")


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
