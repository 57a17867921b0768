"""Errors as RFC 9457 problems: a stable `code` for programs; a sentence and a hint for people."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tarry.core import errors

MEDIA_TYPE = "application/problem+json"
_ALLOWED = "see /openapi.json for what is allowed"
_ALLOWED_IN_RELAY = "see docs/howto/move-from-relay.md for what is allowed"
"""The OpenAPI document has /v1 alone."""


class Problem(Exception):
    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        hint: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.hint, self.headers, self.more = hint, headers, more

    def response(self, scope: Mapping[str, Any]) -> Response:
        request_id, path = scope.get("tarry.request_id"), scope["path"].removeprefix(scope.get("root_path", ""))
        is_relay = path.startswith("/api/")
        hint = _ALLOWED_IN_RELAY if is_relay and self.hint == _ALLOWED else self.hint
        body = {
            "type": f"urn:tarry:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **({"hint": hint} if hint else {}),
            **({"request_id": request_id} if request_id else {}),
            **({"message": self.detail} if is_relay else {}),
            **self.more,
        }
        return Response(msgspec.json.encode(body), self.status, self.headers, MEDIA_TYPE)


def message_gone() -> Problem:
    return Problem(404, "gone", "there is no live message of this id: it was finished, dropped, or never existed")


def lease_lost() -> Problem:
    hint = "stop working on it: it was offered again, leased by another consumer, or released"
    return Problem(409, "lease_lost", "this token is no longer the message's lease", hint=hint)


def busy() -> Problem:
    detail = "another transaction has locked this message: nothing was changed"
    hint = "wait for Retry-After and touch it again; no other consumer can lease it meanwhile"
    return Problem(409, "lock_timeout", detail, hint=hint, headers={"retry-after": "1"})


# The first match counts.
_STATUS: Sequence[tuple[type[errors.TarryError], int, str]] = (
    (errors.InvalidPayload, 422, "invalid_payload"),
    (errors.InvalidInput, 422, "invalid"),
    (errors.UnknownQueue, 404, "unknown_queue"),
    (errors.UnknownSchedule, 404, "unknown_schedule"),
    (errors.UnknownRedrive, 404, "unknown_redrive"),
    (errors.QueueFull, 429, "queue_full"),
    (errors.LockTimeout, 409, "lock_timeout"),
    (errors.InvalidState, 409, "invalid_state"),
    (errors.StoreUnavailable, 503, "unavailable"),
    (errors.CommitLost, 503, "unavailable"),
    (errors.SchemaMismatch, 503, "schema_mismatch"),
)
_HINTS = {
    "unknown_queue": "create it: POST /v1/queues",
    "unknown_schedule": "see: GET /v1/schedules",
    "unknown_redrive": "see: GET /v1/redrives",
}
_CODES = {
    400: "not_json",
    404: "no_route",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "not_json",
}


def of_error(error: errors.TarryError) -> Problem:
    status, code = next(((s, c) for kind, s, c in _STATUS if isinstance(error, kind)), (500, "internal"))
    if status == 500:
        return internal()
    again = {"retry-after": "1"} if code in ("unavailable", "schema_mismatch", "lock_timeout") else None
    if status == 503:
        return Problem(503, code, "the database cannot be used at the moment", hint="try again", headers=again)
    return Problem(status, code, error.message, hint=_HINTS.get(code, error.hint), headers=again)


def internal() -> Problem:
    return Problem(500, "internal", "the broker failed; its log has the error under this request id")


def of_validation(error: RequestValidationError) -> Problem:
    """List each invalid field by its path, never its value, which may be a secret."""
    wrong = [
        {"field": ".".join(map(str, item["loc"][1:])) or str(item["loc"][0]), "problem": _problem(item)}
        for item in error.errors()[:20]
    ]
    detail = "; ".join(f"{item['field']}: {item['problem']}" for item in wrong[:3])
    return Problem(422, "invalid", detail[:1000], hint=_ALLOWED, errors=wrong)


def _problem(item: Any) -> str:
    text = str(item.get("msg", "is not allowed")).removeprefix("Value error, ")
    return "this field is not known" if item.get("type") == "extra_forbidden" else text[:500]


HANDLED = (Problem, errors.TarryError, RequestValidationError, HTTPException)
"""Expected errors. Any other error is logged and gets the response `internal`."""


def problem_of(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.TarryError):
        return of_error(error)
    if isinstance(error, RequestValidationError):
        return of_validation(error)
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "invalid")
        return Problem(error.status_code, code, str(error.detail), headers=dict(error.headers or {}))
    return internal()


def install(app: FastAPI) -> None:
    async def handle(request: Request, error: Exception) -> Response:
        return problem_of(error).response(request.scope)

    for kind in (*HANDLED, Exception):
        app.add_exception_handler(kind, handle)
