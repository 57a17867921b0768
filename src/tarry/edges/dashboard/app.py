"""The dashboard as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.app import AsyncApp
from tarry.core.journal.events import Event
from tarry.core.security.api_keys import Action
from tarry.edges.dashboard import access, screens
from tarry.edges.dashboard.access import Visitor
from tarry.edges.dashboard.assets import assets
from tarry.edges.dashboard.listing import Format
from tarry.edges.dashboard.pipeline_runs import PipelineRuns
from tarry.edges.dashboard.ranges import RANGES
from tarry.edges.dashboard.remembered import Badges, Remembered
from tarry.edges.dashboard.rendering import environment
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.dashboard.screens.anomalies import grouped
from tarry.edges.dashboard.settings import DashboardSettings
from tarry.edges.http.app import Broker
from tarry.edges.http.auth import is_program
from tarry.edges.http.problems import Problem, problem_of
from tarry.edges.http.settings import BrokerSettings
from tarry.edges.http.sse import EventStream
from tarry.services.bulk import BulkJobs
from tarry.services.live_events.topics import TopicHub
from tarry.services.overview import RollUps

PATH = "/dashboard"
"""Where a broker has it."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_THEMES = ("light", "dark")
_ZONES = ("utc", "browser")
_log = logging.getLogger("tarry.http")


class Dashboard:
    """What all pages share."""

    def __init__(self, broker: Broker, settings: DashboardSettings, *, is_part_of_broker: bool) -> None:
        self.broker = broker
        self.settings = settings
        self.roll_ups = RollUps(broker.store)
        self.bulk = BulkJobs(broker.store)
        self.pipeline_runs = PipelineRuns(broker.app.dsn)
        self.remembered = Remembered()
        self.badges = Badges(broker.store, grouped)
        self.topics = TopicHub(broker.live, _changed, settings.refresh_every)
        self.lake_turns = asyncio.Semaphore(1)
        """Queries on the archive take turns: each may use the memory of one."""
        self._is_part_of_broker = is_part_of_broker
        self._templates = environment()

    def prefix(self, request: Request) -> str:
        """Where the dashboard is mounted, without a slash at the end."""
        return request.scope.get("root_path", "").rstrip("/")

    def api_url(self, request: Request) -> str:
        """Where the HTTP API is, for commands to copy; a dashboard in another application does not know it."""
        if not self._is_part_of_broker:
            return "http://localhost:8080"
        return f"{request.url.scheme}://{request.url.netloc}{self.prefix(request).removesuffix(PATH)}"

    def render(self, view: View, page: Page, screen: Screen | None) -> Response:
        values = {
            **self._frame(view.request, page.title, screen),
            "view": view,
            "visitor": view.visitor,
            "now": view.now,
            "url": view.url,
            "may": view.may,
            "token": view.token,
            "topics": " ".join(page.topics),
            "badges": self.badges.counts(view.sees),
            "skewed": self.badges.skewed,
            "screens": [entry.screen for entry in screens.PARTS if _shows(view.visitor, entry.screen)],
            **page.values,
        }
        response = self._html(page.template, values, page.status)
        access.keep_form_token(view.request, response, view.token)
        if access.NOTICE in view.request.cookies:
            response.delete_cookie(access.NOTICE, **access.cookie_of(view.request))
        return response

    def respond_problem(self, request: Request, problem: Problem, format: Format, view: View | None = None) -> Response:
        if format != "html" or is_program(request):
            return problem.response(request.scope)
        if problem.status == 401 and request.method == "GET":
            to = request.url.path.removeprefix(self.prefix(request)) or "/"
            return self.sign_in_page(request, to=to, status=401)
        values = {
            **self._frame(request, "Not possible", None),
            "problem": problem,
            "request_id": request.scope.get("tarry.request_id"),
            "is_framed": view is not None,
        }
        if view is None:
            return self._html("problem.html", values, problem.status, problem.headers)
        page = Page("problem.html", "Not possible", values, status=problem.status)
        return self.render(view, page, None)

    def sign_in_page(self, request: Request, *, to: str, status: int = 200, refusal: str | None = None) -> Response:
        token = access.form_token(request)
        values = {**self._frame(request, "Sign in", None), "token": token, "to": to, "refusal": refusal}
        response = self._html("sign_in.html", values, status)
        access.keep_form_token(request, response, token)
        return response

    def _frame(self, request: Request, title: str, screen: Screen | None) -> dict[str, Any]:
        """What the layout needs, also on a page for a visitor that is not known."""
        theme, zone = request.cookies.get("tarry_theme", ""), request.cookies.get("tarry_zone", "")
        return {
            "prefix": self.prefix(request),
            "title": title,
            "screen": screen,
            "settings": self.settings,
            "ranges": RANGES,
            "theme": theme if theme in _THEMES else None,
            "zone": zone if zone in _ZONES else "utc",
            "notice": unquote(request.cookies.get(access.NOTICE, ""))[:500],
        }

    def _html(
        self, template: str, values: Mapping[str, Any], status: int = 200, headers: dict[str, str] | None = None
    ) -> Response:
        kept = {name: value for name, value in (headers or {}).items() if name != "www-authenticate"}
        return Response(self._templates.get_template(template).render(values), status, kept, "text/html")


def _shows(visitor: Visitor, screen: Screen) -> bool:
    key = visitor.caller.key
    return visitor.permits(screen.action, None) or (key is not None and screen.action in key.actions)


async def _sign_in_form(request: Request) -> Response:
    return request.app.state.dashboard.sign_in_page(request, to=request.query_params.get("to", "/"))


async def _sign_in(request: Request) -> Response:
    dashboard: Dashboard = request.app.state.dashboard
    form: Mapping[str, str] = {}
    to = "/"
    try:
        form = await access.read_form(request)
        to = form.get("to", "/")
        access.check_form(request, form)
        session, seconds = await access.sign_in(dashboard, form.get("key", "").strip())
    except Problem as problem:
        await dashboard.broker.refusals.note(request, "dashboard: sign in", problem, form.get("key"))
        return dashboard.sign_in_page(request, to=to, status=problem.status, refusal=problem.detail)
    # Only a path of this dashboard: `//host` would lead elsewhere.
    path = to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"
    response = RedirectResponse(f"{dashboard.prefix(request)}{path}", 303)
    response.set_cookie(access.SESSION, session, max_age=seconds, **access.cookie_of(request))
    return response


async def _sign_out(request: Request) -> Response:
    dashboard: Dashboard = request.app.state.dashboard
    try:
        access.check_form(request, await access.read_form(request))
    except Problem as problem:
        return dashboard.respond_problem(request, problem, "html")
    response = RedirectResponse(f"{dashboard.prefix(request)}/sign-in", 303)
    response.delete_cookie(access.SESSION, **access.cookie_of(request))
    return response


async def _live(request: Request) -> Response:
    """One stream per browser: names of what has changed. Pages fetch themselves again."""
    dashboard: Dashboard = request.app.state.dashboard
    try:
        visitor = await access.visitor_of(dashboard, request)
        if not visitor.permits(Action.READ, None) and visitor.caller.key is None:
            visitor.require(Action.READ, None)
    except Problem as problem:
        return problem.response(request.scope)

    def wants(event: Event) -> bool:
        return visitor.permits(Action.READ, event.queue)

    async def always() -> bool:
        return True

    allowed = None if dashboard.settings.authorize is None else always
    stream = EventStream(
        dashboard.broker, visitor.caller, wants, after=None, live=dashboard.topics, allowed=allowed
    )  # fmt: skip
    stream.headers["cache-control"] = "no-cache"
    return stream


def _changed(number: int, topics: Collection[str], queues: Collection[str]) -> bytes:
    data = msgspec.json.encode({"topics": topics, "queues": queues})
    return b"event: changed\nid: %d\ndata: %b\n\n" % (number, data)


async def _not_found(request: Request, error: Exception) -> Response:
    dashboard: Dashboard = request.app.state.dashboard
    problem = problem_of(error)
    if problem.status == 404:
        problem = Problem(404, "no_route", "there is no such page", hint="start at the overview")
    return dashboard.respond_problem(request, problem, "html")


class _Headers:
    """Headers of every response, and the id of a request that no broker has given one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("tarry.request_id", secrets.token_hex(8))
        started = time.monotonic()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message.get("headers", ())}
                took_ms = (time.monotonic() - started) * 1000
                added = {**_HEADERS, "server-timing": f"total;dur={took_ms:.1f}"}
                more = [(name.encode(), value.encode()) for name, value in added.items() if name.encode() not in own]
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        await self._app(scope, receive, sending)


async def _static(request: Request) -> Response:
    asset = assets().get(request.path_params["file"])
    if asset is None:
        return Problem(404, "no_route", "there is no such file").response(request.scope)
    is_versioned = request.query_params.get("v") == asset.version
    cached = "public, max-age=31536000, immutable" if is_versioned else "no-cache"
    headers = {"etag": f'"{asset.version}"', "cache-control": cached}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)


def dashboard_app(broker: Broker, settings: DashboardSettings, *, is_part_of_broker: bool = True) -> Starlette:
    """The dashboard on the state of a broker, whose keys, limits and live events it shares."""
    own: list[BaseRoute] = [
        Route("/static/{file:path}", _static),
        Route("/live", _live),
        Route("/sign-in", _sign_in_form, methods=["GET"]),
        Route("/sign-in", _sign_in, methods=["POST"]),
        Route("/sign-out", _sign_out, methods=["POST"]),
    ]
    pages = [route for part in screens.PARTS for route in part.screen.routes]
    app = Starlette(routes=[*own, *pages], exception_handlers={HTTPException: _not_found})
    app.router.redirect_slashes = False
    app.add_middleware(_Headers)
    app.state.dashboard = Dashboard(broker, settings, is_part_of_broker=is_part_of_broker)
    app.state.broker = broker
    return app


def create_dashboard(app: AsyncApp, settings: DashboardSettings | None = None, **changes: Any) -> Starlette:
    """The dashboard as an ASGI application, for `outer.mount("/ops/queue", tarry.dashboard.create_dashboard(app))`.

    `app` stays the caller's to close. Settings may be named one by one: `read_only=True`, `authorize=…`. With `authorize`,
    the host application decides about every action; without, visitors sign in with an API key, and where no key was ever
    created, visitors on this machine need none.
    """
    chosen = replace(settings or DashboardSettings(), **changes)
    return dashboard_app(Broker(app, BrokerSettings(anonymous=True)), chosen, is_part_of_broker=False)
