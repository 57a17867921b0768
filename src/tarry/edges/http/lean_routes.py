"""Routes that are called without FastAPI: its parameter resolution, exit stacks and middleware cost more than an offer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, get_args

import msgspec
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from tarry.core.errors import InvalidInput
from tarry.wire.base import Request as WireRequest

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class HotRoutes:
    """Middleware that calls these routes directly: FastAPI's middleware and route search cost more than the routes."""

    def __init__(self, app: ASGIApp, routes: Sequence[APIRoute]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and scope["method"] == "POST":
            for route in self._routes:
                match, matched = route.matches(scope)
                if match is Match.FULL:
                    scope.update(matched)
                    app = route.app
                    break
        await app(scope, receive, send)


def hot_routes(router: APIRouter, *endpoints: Callable[..., Any]) -> list[APIRoute]:
    by_endpoint = {route.endpoint: route for route in router.routes if isinstance(route, APIRoute)}
    return [by_endpoint[endpoint] for endpoint in endpoints]


def takes_little(route: APIRoute) -> bool:
    takes = route.dependant
    others = (takes.query_params, takes.header_params, takes.cookie_params, takes.dependencies, takes.body_params[1:])
    special = (takes.response_param_name, takes.background_tasks_param_name, takes.http_connection_param_name)
    return (
        takes.request_param_name == "request"
        and not any(others)
        and not any(special)
        and all(param.field_info.annotation is str and not param.field_info.metadata for param in takes.path_params)
    )


def lean_handler(route: APIRoute) -> Handler:
    names = [param.name for param in route.dependant.path_params]
    endpoint, body = route.endpoint, route.body_field
    if body is None:
        return lambda request: endpoint(request, **{name: request.path_params[name] for name in names})
    kinds = (body.field_info.annotation, *get_args(body.field_info.annotation))
    struct = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, WireRequest)), None)
    parse = None if struct is None else struct.parse
    missing = {"type": "missing", "loc": ("body",), "msg": "Field required"}

    async def handle(request: Request) -> Response:
        value = None
        if await request.body():
            data = await request.json()
            try:
                value = None if parse is None else parse(data)
            except (InvalidInput, msgspec.ValidationError):
                data = await request.json()  # some of its fields have been replaced
            if value is None:
                value, errors = body.validate(data, {}, loc=("body",))
                if errors:
                    raise RequestValidationError(errors)
        elif body.field_info.is_required():
            raise RequestValidationError([missing])
        path = {name: request.path_params[name] for name in names}
        return await endpoint(request, **path, **{body.name: value})

    return handle
