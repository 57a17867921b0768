"""Which problems a route may answer with, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from tarry.edges.http.answers import ProblemAnswer
from tarry.edges.http.problems import MEDIA_TYPE

_SAID = {
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


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": f"#/components/schemas/{ProblemAnswer.__name__}"}
    return {
        status: {"description": _SAID[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in (400, 401, 403, 408, 413, 415, 422, 429, 503, *statuses)
    }


READ_ERRORS = _problems(404)
WRITE_ERRORS = _problems(404)
SETTLE_ERRORS = _problems(404, 409)
ADMIN_ERRORS = _problems(404, 409)
