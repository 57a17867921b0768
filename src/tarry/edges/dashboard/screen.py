"""Screens: their pages and actions, and the view that a page is made of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tarry.app import AsyncApp
from tarry.core.operation import Operation
from tarry.core.security.api_keys import Action
from tarry.edges.dashboard import access
from tarry.edges.dashboard.access import Visitor
from tarry.edges.dashboard.commands import path as make_path
from tarry.edges.dashboard.listing import Format, Listing, whole
from tarry.edges.dashboard.narrower import Narrower, NarrowerFunction, nothing
from tarry.edges.dashboard.ranges import DEFAULT, TimeRange, time_range
from tarry.edges.dashboard.redaction import Redaction
from tarry.edges.http import audit_refusals
from tarry.edges.http.auth import key_text
from tarry.edges.http.problems import HANDLED, Problem, internal, problem_of
from tarry.wire.ids import storable

if TYPE_CHECKING:
    from tarry.edges.dashboard.app import Dashboard

R = TypeVar("R")

FORMATS: tuple[Format, ...] = ("json", "csv")
PAGE_ROWS = 50
MOST_ROWS = 1_000
"""Rows of one page of JSON or CSV."""
_ACTION_FOR_S = 5.0
"""How much longer than a page an action may take: to purge a queue is more than to show it."""
_log = logging.getLogger("tarry.http")


@dataclass(frozen=True, slots=True)
class Page:
    """What a page function returns: a template with its values. The values of `listing` are also JSON and CSV."""

    template: str
    title: str
    values: Mapping[str, Any]
    topics: tuple[str, ...] = ()
    """The page reloads itself when one of these changes: queues, messages, dead, schedules, consumers, clock."""
    status: int = 200


class View:
    """One request to the dashboard, for page functions and for templates."""

    def __init__(
        self, dashboard: Dashboard, request: Request, visitor: Visitor, now: datetime, timeout: asyncio.Timeout
    ) -> None:
        self.dashboard = dashboard
        self.request = request
        self.visitor = visitor
        self.now = now
        """The time of the database when the request began."""
        self.format: Format = "html"
        self.form: Mapping[str, str] = {}
        """The fields of an action's form."""
        self.result: dict[str, Any] = {}
        """What an action did, for its row in the audit."""
        self.token = access.form_token(request)
        self._timeout = timeout
        self.limit_s = dashboard.settings.page_for.total_seconds()

    def allow(self, seconds: float) -> None:
        """More time, for what may take longer than a page."""
        if (at := self._timeout.when()) is not None:
            self._timeout.reschedule(at + seconds)
            self.limit_s += seconds

    @property
    def app(self) -> AsyncApp:
        return self.dashboard.broker.app

    @property
    def has_pipeline(self) -> bool:
        return self.app.dsn is not None

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    @property
    def path(self) -> Mapping[str, str]:
        """The values of the path's parameters."""
        return cast("Mapping[str, str]", self.request.path_params)

    @property
    def limit(self) -> int:
        """Rows of this page: few on a screen, `limit` of the query otherwise."""
        chosen = whole(self.query.get("limit", ""), 5)
        most = PAGE_ROWS if self.format == "html" else MOST_ROWS
        return most if chosen is None else max(1, min(chosen, MOST_ROWS))

    @property
    def redaction(self) -> Redaction:
        return self.dashboard.settings.redaction

    async def queues(self, action: Action = Action.READ) -> list[str]:
        """The names of the queues on which the visitor has this right."""
        return [info.name for info in await self.app.queues.list() if self.visitor.permits(action, info.name)]

    @cached_property
    def range(self) -> TimeRange:
        return time_range(self.query.get("range"), self.now)

    async def run(self, operation: Operation[R]) -> R:
        return await self.dashboard.broker.store.run(operation)

    def sees(self, queue: str) -> bool:
        return self.visitor.permits(Action.READ, queue)

    def may(self, action: str, queue: str | None = None) -> bool:
        """For templates: whether to offer an action. The action checks it again."""
        return self.visitor.permits(Action(action), queue)

    def url(self, path: str, **query: Any) -> str:
        """A link within the dashboard, wherever it is mounted. It keeps the time range."""
        kept = self.range.name
        values = {name: value for name, value in query.items() if value not in (None, "")}
        if kept != DEFAULT:
            values.setdefault("range", kept)
        joint = "&" if "?" in path else "?"
        return f"{self.dashboard.prefix(self.request)}{path}{f'{joint}{urlencode(values)}' if values else ''}"

    def here(self, **query: Any) -> str:
        """This page with other values in its query; None takes one away."""
        path = self.request.url.path.removeprefix(self.dashboard.prefix(self.request))
        return self.url(quote(path), **{**self.query, **query})

    def absolute(self, link: str) -> str:
        """A link of `url` or `here` with the host, for commands that are copied."""
        return f"{self.request.url.scheme}://{self.request.url.netloc}{link}"

    def form_url(self, *parts: str) -> str:
        """The address of a form of the dashboard, for commands that are copied."""
        return self.absolute(f"{self.dashboard.prefix(self.request)}{make_path(*parts)}")

    def api(self, *parts: str) -> str:
        """An address of the HTTP API, for commands that are copied."""
        return f"{self.dashboard.api_url(self.request)}/v1{make_path(*parts)}"

    def page(self, template: str, title: str, *, topics: tuple[str, ...] = (), **values: Any) -> Page:
        return Page(template, title, values, topics)

    def done(self, sentence: str, to: str) -> Response:
        """The end of an action: the browser gets a page of the dashboard, which shows the sentence, and so does the audit."""
        self.result["result"] = self.redaction.text(sentence)[:500]
        response = RedirectResponse(self.url(to), 303)
        response.set_cookie(access.NOTICE, quote(sentence[:500]), max_age=60, **access.cookie_of(self.request))
        return response


PageFunction = Callable[[View], Awaitable[Page | Response]]
ActionFunction = Callable[[View], Awaitable[Response]]


@dataclass(slots=True)
class Screen:
    """An entry of the navigation with its pages and actions."""

    name: str
    title: str
    path: str
    shortcut: str | None = None
    """Pressed after `g`."""
    icon: str = "dot"
    """The id of a symbol in static/icons.svg."""
    action: Action = Action.READ
    """The right that is needed to see the entry."""
    routes: list[BaseRoute] = field(default_factory=list[BaseRoute])

    def page(
        self,
        path: str,
        action: Action = Action.READ,
        *,
        all_queues: bool = False,
        narrower: NarrowerFunction = nothing,
    ) -> Callable[[PageFunction], PageFunction]:
        """Register a page. It also responds at `path.json` and `path.csv` if its path ends with a name. `narrower`: what it
        offers when it ran over its time."""

        def register(function: PageFunction) -> PageFunction:
            for format in ("html", *(() if path.endswith(("}", "/")) else FORMATS)):
                endpoint = self._page_endpoint(function, action, format, all_queues=all_queues, narrower=narrower)
                suffix = "" if format == "html" else f".{format}"
                self.routes.append(Route(f"{path}{suffix}", endpoint, methods=["GET"], name=f"{self.name}{suffix}"))
            return function

        return register

    def preview(self, path: str, action: Action = Action.READ) -> Callable[[PageFunction], PageFunction]:
        """Register a page that is made of a form while it is filled in. It changes nothing, so it is not audited."""

        def register(function: PageFunction) -> PageFunction:
            async def show(view: View) -> Response:
                view.form = await access.read_form(view.request)
                access.check_form(view.request, view.form)
                page = await function(view)
                return page if isinstance(page, Response) else view.dashboard.render(view, page, self)

            async def endpoint(request: Request) -> Response:
                return await respond(request, action, show, "html")

            self.routes.append(Route(path, endpoint, methods=["POST"], name=f"{self.name} preview"))
            return function

        return register

    def form(
        self, path: str, action: Action, name: str, *, all_queues: bool = False
    ) -> Callable[[ActionFunction], ActionFunction]:
        """Register what a form does: it is checked, audited under its name, and responds with `view.done(…)`."""

        def register(function: ActionFunction) -> ActionFunction:
            async def endpoint(request: Request) -> Response:
                async def act(view: View) -> Response:
                    view.allow(_ACTION_FOR_S)
                    view.form = await access.read_form(request)
                    access.check_form(request, view.form)
                    try:
                        return await access.audited(
                            view.dashboard, request, view.visitor, name, view.form, lambda: function(view), view.result
                        )
                    finally:
                        view.dashboard.remembered.forget()

                return await respond(request, action, act, "html", all_queues=all_queues)

            self.routes.append(Route(path, endpoint, methods=["POST"], name=name))
            return function

        return register

    def _page_endpoint(
        self,
        function: PageFunction,
        action: Action,
        format: Format,
        *,
        all_queues: bool,
        narrower: NarrowerFunction,
    ) -> Callable[[Request], Awaitable[Response]]:
        async def show(view: View) -> Response:
            page = await function(view)
            if isinstance(page, Response):
                return page
            if format != "html":
                listing = page.values.get("listing")
                if not isinstance(listing, Listing):
                    raise Problem(404, "no_route", "this page is no list, so it has no JSON or CSV")
                return listing.response(format)
            return view.dashboard.render(view, page, self)

        async def endpoint(request: Request) -> Response:
            return await respond(request, action, show, format, all_queues=all_queues, narrower=narrower)

        return endpoint


async def respond(
    request: Request,
    action: Action,
    do: Callable[[View], Awaitable[Response]],
    format: Format,
    *,
    all_queues: bool = False,
    narrower: NarrowerFunction = nothing,
) -> Response:
    """Check the visitor, run the page or action within its time, and show what went wrong as a page or a problem."""
    dashboard: Dashboard = request.app.state.dashboard
    view: View | None = None
    try:
        visitor = await access.visitor_of(dashboard, request)
        request.scope["tarry.caller"] = visitor.caller
        _check(visitor, action, request, all_queues=all_queues)
        for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
            storable(value, f"{name:.40}")
        async with asyncio.timeout(dashboard.settings.page_for.total_seconds()) as timeout:
            view = View(dashboard, request, visitor, await dashboard.broker.now(), timeout)
            view.format = format
            return await do(view)
    except HANDLED as error:
        problem = problem_of(error)
    except TimeoutError:
        limit_s = dashboard.settings.page_for.total_seconds() if view is None else view.limit_s
        problem = _too_slow(limit_s, [] if view is None else narrower(view))
    except Exception:
        _log.exception("a page of the dashboard failed; request %s", request.scope.get("tarry.request_id"))
        problem = internal()
    if problem.status in audit_refusals.STATUSES and not _is_unknown(request, problem):
        named = f"dashboard: {request.method} {request.scope['route'].path_format}"
        await dashboard.broker.refusals.note(request, named, problem, key_text(request))
    return dashboard.respond_problem(request, problem, format, view)


def _too_slow(limit_s: float, narrower: Sequence[Narrower]) -> Problem:
    hint = (
        "choose one of these, which read less" if narrower else "the database is busy: the page System shows with what"
    )
    links = [link._asdict() for link in narrower]
    text = f"this took longer than {limit_s:g} seconds and was ended"
    return Problem(503, "too_slow", text, hint=hint, narrower=links)


def _is_unknown(request: Request, problem: Problem) -> bool:
    """A visitor that has not signed in yet is no event for the audit."""
    return problem.status == 401 and key_text(request) is None and access.SESSION not in request.cookies


def _check(visitor: Visitor, action: Action, request: Request, *, all_queues: bool) -> None:
    queue = request.path_params.get("queue")
    if queue is not None or all_queues:
        visitor.require(action, queue)
    elif not _may_somewhere(visitor, action):
        raise Problem(403, "forbidden", f"your role, {visitor.role}, may not {action}")


def _may_somewhere(visitor: Visitor, action: Action) -> bool:
    """Of a page about several queues: the page itself leaves out what the visitor must not see."""
    return visitor.permits(action, None) or (visitor.caller.key is not None and action in visitor.caller.key.actions)
