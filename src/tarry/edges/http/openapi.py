"""The OpenAPI document with problems and examples, as JSON and as an HTML page without scripts. Neither contains secrets."""

import asyncio
import hashlib
import json
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, FastAPI, Request
from jinja2 import Environment
from pydantic import BaseModel
from starlette.responses import Response

from tarry.edges.http.problems import MEDIA_TYPE
from tarry.services.shared_result import SharedResult

_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}

router = APIRouter(include_in_schema=False)


def _file(name: str) -> str:
    return files("tarry.edges.http").joinpath(name).read_text("utf-8")


EXAMPLES: dict[str, Any] = json.loads(_file("examples.json"))
"""By schema name; a test validates them."""


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
    """Add problems, examples and the security scheme to FastAPI's document."""
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


def description(app: FastAPI) -> SharedResult[Built]:
    """Document and page as bytes, built once in a thread: building takes over a second, and the request needs no key."""

    def build() -> Built:
        openapi = app.openapi()
        document = msgspec.json.encode(openapi)
        return Built(document, page(openapi).encode(), f'"{hashlib.sha256(document).hexdigest()[:32]}"')

    return SharedResult(lambda: asyncio.to_thread(build))


@router.get("/docs")
@router.get("/api/docs")  # Relay's paths
@router.get("/api/reference")
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


for _path in ("/openapi.json", "/api/doc"):
    router.add_route(_path, document, include_in_schema=False)


def page(document: dict[str, Any]) -> str:
    """The HTML page. Its texts contain no user input, and are escaped nevertheless."""
    operations = [
        {"method": method.upper(), "path": path, "example": _example(document, operation), **operation}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    template = Environment(autoescape=True, trim_blocks=True).from_string(_file("docs.html"))
    return template.render(document=document, operations=operations)


def _example(document: dict[str, Any], operation: dict[str, Any]) -> str | None:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for option in (schema, *schema.get("anyOf", ())):
        if "$ref" in option:
            examples = document["components"]["schemas"][option["$ref"].rpartition("/")[2]].get("examples")
            return json.dumps(examples[0]) if examples else None
    return None
