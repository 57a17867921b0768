"""Errors as RFC 9457 problems: a stable `code` for programs, a sentence and what to do for people."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tarry.core import errors

MEDIA_TYPE = "application/problem+json"


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
        self.status, self.code, self.detail, self.hint, self.headers, self.more = (
            status, code, detail, hint, headers, more,
        )  # fmt: skip

    def response(self, request_id: str | None) -> Response:
        body = {
            "type": f"urn:tarry:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **({"hint": self.hint} if self.hint else {}),
            **({"request_id": request_id} if request_id else {}),
            **self.more,
        }
        return Response(msgspec.json.encode(body), self.status, self.headers, MEDIA_TYPE)


def message_gone() -> Problem:
    return Problem(404, "gone", "there is no live message of this id: it was finished, dropped, or never was")


def lease_lost() -> Problem:
    return Problem(
        409,
        "lease_lost",
        "this lock_token is no longer the message's lease",
        hint="stop working on it: it was offered again, taken over or given back",
    )


def busy() -> Problem:
    return Problem(
        409,
        "held_up",
        "another transaction has locked this message: nothing was changed",
        hint="wait for Retry-After and touch it again; no other consumer can have it meanwhile",
        headers={"retry-after": "1"},
    )


# The first that fits.
_STATUS: Sequence[tuple[type[errors.TarryError], int, str]] = (
    (errors.InvalidPayload, 422, "invalid_payload"),
    (errors.InvalidInput, 422, "invalid"),
    (errors.UnknownQueue, 404, "unknown_queue"),
    (errors.UnknownSchedule, 404, "unknown_schedule"),
    (errors.UnknownRedrive, 404, "unknown_redrive"),
    (errors.HeldUp, 409, "held_up"),
    (errors.Refused, 409, "refused"),
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
    if status == 503:
        return Problem(
            503, code, "the database cannot be used at the moment", hint="try again", headers={"retry-after": "1"}
        )
    if code in _HINTS:
        return Problem(404, code, str(error), hint=_HINTS[code])
    if status == 500:
        return internal()
    again = {"retry-after": "1"} if isinstance(error, errors.HeldUp) else None
    return Problem(status, code, str(error), hint=error.hint, headers=again)


def internal() -> Problem:
    return Problem(500, "internal", "the broker failed to answer; its log says why under this request id")


def of_validation(error: RequestValidationError) -> Problem:
    """Each field that is wrong, by its place, and never the value: it may be a secret."""
    wrong = [
        {"field": ".".join(map(str, found["loc"][1:])) or str(found["loc"][0]), "problem": _said(found)}
        for found in error.errors()[:20]
    ]
    said = "; ".join(f"{item['field']}: {item['problem']}" for item in wrong[:3])
    return Problem(422, "invalid", said[:1000], hint="see /openapi.json for what is allowed", errors=wrong)


def _said(found: Any) -> str:
    text = str(found.get("msg", "is not allowed")).removeprefix("Value error, ")
    return "this field is not known" if found.get("type") == "extra_forbidden" else text[:500]


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
        return problem_of(error).response(request.scope.get("tarry.request_id"))

    for kind in (Problem, errors.TarryError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, handle)
