"""Visitors of the dashboard: sign-in, permissions, protection of forms, and the audit of actions."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from tarry.core.errors import InvalidInput
from tarry.core.security.api_keys import Action, role_of
from tarry.core.security.audit import AuditEntry
from tarry.core.security.browser_sessions import DASHBOARD, Session
from tarry.edges.http.auth import Caller, is_program, key_text
from tarry.edges.http.origins import hostname, is_loopback, refuse_other_sites
from tarry.edges.http.problems import Problem
from tarry.edges.http.routing import recorded
from tarry.wire.ids import storable

if TYPE_CHECKING:
    from tarry.edges.dashboard.app import Dashboard

SESSION = "tarry_session"
FORM = "tarry_form"
NOTICE = "tarry_notice"
_FORM_BYTES = 256 * 1024
_FORM_FIELDS = 2_000
_AUDITED_TEXT = 200
_AUDITED_FIELDS = 50
_log = logging.getLogger("tarry.http")


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request: its key, or what the host application's `authorize` permits."""

    id: str
    role: str
    caller: Caller
    permits: Callable[[Action, str | None], bool]
    is_signed_in: bool = False
    """By a cookie, so that signing out is possible."""

    def require(self, action: Action, queue: str | None) -> None:
        if not self.permits(action, queue):
            where = "all queues" if queue is None else f"queue {queue!r:.120}"
            raise Problem(403, "forbidden", f"your role, {self.role}, may not {action} on {where}", hint=_HINT)


_HINT = "sign in with a key that may: tarry key create NAME --action …"


async def visitor_of(dashboard: Dashboard, request: Request) -> Visitor:
    settings = dashboard.settings
    authorize = settings.authorize
    if authorize is not None:
        actions = [action for action in Action if authorize(request, action.value, None)]
        user = getattr(request.scope.get("user"), "display_name", "") or "dashboard"

        def permits(action: Action, queue: str | None) -> bool:
            return _is_open(dashboard, action) and authorize(request, action.value, queue)

        return Visitor(str(user)[:100], role_of(actions), Caller(None), permits)
    caller = await dashboard.broker.authenticator.identify_page(request, SESSION)
    actions = frozenset(Action) if caller.key is None else caller.key.actions
    role = "viewer" if settings.read_only else role_of(actions)
    return Visitor(
        caller.id,
        role,
        caller,
        lambda action, queue: _is_open(dashboard, action) and caller.allows(action, queue),
        is_signed_in=key_text(request) is None and caller.key is not None,
    )


def _is_open(dashboard: Dashboard, action: Action) -> bool:
    return action is Action.READ or not dashboard.settings.read_only


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. Of several fields of one name the last counts."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Problem(415, "not_a_form", "an action takes a form", hint="send it from a page of the dashboard")
    body = await request.body()
    if len(body) > _FORM_BYTES:
        raise Problem(413, "too_large", f"a form has at most {_FORM_BYTES:,} bytes")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=_FORM_FIELDS)
    except ValueError as error:
        raise InvalidInput(f"the form cannot be read: {error}") from None
    for name, value in pairs:
        storable(name, "a field's name")
        storable(value, f"{name:.40}")
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def check_form(request: Request, form: Mapping[str, str]) -> None:
    """Accept what a page of this dashboard has sent, and what a program has."""
    if is_program(request):
        return
    refuse_other_sites(request)
    expected, sent = request.cookies.get(FORM, ""), form.get("form", "")
    if not expected or not compare_digest(expected.encode(), sent.encode()):
        detail = "this form is outdated, or is not of this dashboard: nothing was changed"
        raise Problem(403, "forbidden", detail, hint="reload the page and try again")


def form_token(request: Request) -> str:
    """The value that forms of this browser contain; new where the browser has none yet."""
    token = request.cookies.get(FORM, "")
    return token if len(token) == 32 and token.isalnum() else secrets.token_hex(16)


def keep_form_token(request: Request, response: Response, token: str) -> None:
    if request.cookies.get(FORM) != token:
        response.set_cookie(FORM, token, **cookie_of(request))


async def sign_in(dashboard: Dashboard, text: str) -> tuple[str, int]:
    """The value of the session's cookie, and for how many seconds it is valid."""
    caller = await dashboard.broker.authenticator.sign_in(text)
    key, now = caller.key, await dashboard.broker.now()
    if key is None or Action.READ not in key.actions:
        raise Problem(403, "forbidden", "this key may not read, so it opens no page", hint=_HINT)
    until = min(now + dashboard.settings.session_for, key.expires_at or datetime.max.replace(tzinfo=now.tzinfo))
    return str(Session.of(key, until, DASHBOARD)), max(0, int((until - now).total_seconds()))


def cookie_of(request: Request) -> dict[str, Any]:
    """Not for scripts, not for other sites' forms, and beyond this machine not without TLS. A link from another site finds
    the session, so that a link in a chat opens the page."""
    host = hostname(request.headers.get("host", ""))
    path = f"{request.scope.get('root_path', '').rstrip('/')}/"
    return {"path": path, "secure": not is_loopback(host), "httponly": True, "samesite": "lax"}


async def audited(
    dashboard: Dashboard,
    request: Request,
    visitor: Visitor,
    name: str,
    form: Mapping[str, str],
    do: Callable[[], Awaitable[Response]],
    result: Mapping[str, Any],
) -> Response:
    """Run an action with a row in the audit, which exists before the action is tried. `result`: details known after it."""
    fields = [(field, value) for field, value in form.items() if field != "form"]
    shown = {field[:_AUDITED_TEXT]: value[:_AUDITED_TEXT] for field, value in fields[:_AUDITED_FIELDS]}
    detail = {"path": dict(request.path_params), "form": dashboard.settings.redaction.value(shown)}
    queue, request_id = request.path_params.get("queue"), request.scope.get("tarry.request_id")
    return await recorded(
        dashboard.broker.store, AuditEntry(visitor.id, f"dashboard: {name}", queue, detail, request_id), do, result
    )
