"""Queues: the list, and the search box that leads to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import RedirectResponse, Response

from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands, message_path, path
from tarry.edges.dashboard.listing import Column, Listing
from tarry.edges.dashboard.narrower import one_queue
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.dashboard.screens.queue_lists import queue_listing
from tarry.edges.dashboard.screens.schedules import page_path
from tarry.services.overview import queue_rows
from tarry.wire.ids import MessageId

screen = Screen("queues", "Queues", "/queues", shortcut="q", icon="queues")
_MOST_MATCHES = 20


@screen.page("/search")
async def search(view: View) -> Page | Response:
    """The search box of the frame: a queue or a schedule of this name, the message of this id of the API, queues whose names
    have it, or else messages. As JSON, the queues and schedules whose names have it."""
    text = view.query.get("q", "").strip()
    names = await view.queues()
    if view.format != "html":
        schedules = [state.name for state in await view.app.schedules.list() if view.sees(state.spec.queue)]
        return view.page("queues/queues.html", "Search", listing=_matches(text.lower(), names, schedules))
    if text in names:
        return RedirectResponse(view.url(path("queues", text)), 303)
    if any(state.name == text and view.sees(state.spec.queue) for state in await view.app.schedules.list()):
        return RedirectResponse(view.url(page_path(text)), 303)
    id = MessageId.parse(text)
    if id is not None and id.queue in names:
        return RedirectResponse(view.url(message_path(id.queue, id.key)), 303)
    is_part = any(text.lower() in name.lower() for name in names)
    return RedirectResponse(view.url("/queues" if is_part or not text else "/messages", q=text), 303)


class NamedPage(NamedTuple):
    kind: str
    name: str
    path: str


def _matches(text: str, queues: Sequence[str], schedules: Sequence[str]) -> Listing:
    rows = [
        *(NamedPage("queue", name, path("queues", name)) for name in queues if text in name.lower()),
        *(NamedPage("schedule", name, page_path(name)) for name in schedules if text in name.lower()),
    ]
    columns = (Column("kind", "Kind"), Column("name", "Name"), Column("path", "Page"))
    return Listing(columns=columns, rows=rows[:_MOST_MATCHES], name="matches")


@screen.page("/queues", narrower=one_queue)
async def queues(view: View) -> Page:
    await view.dashboard.roll_ups.fresh()
    rows = await queue_rows(view.app.store, view.now, view.sees)
    after, sought = view.query.get("after", ""), view.query.get("q", "").strip().lower()
    matching = [row for row in rows if row.name > after and sought in row.name.lower()]
    page = matching[: view.limit]
    listing = queue_listing(page, page[-1].name if len(matching) > len(page) else None)
    return view.page(
        "queues/queues.html",
        "Queues",
        topics=("queues", "messages", "clock"),
        listing=listing,
        count=len(rows),
        commands=Commands(
            curl=commands.curl(view.api("queues")),
            cli=commands.cli("queue", "list"),
            python=commands.python("for queue in app.queues.list():", "    print(queue.name)"),
        ),
        create=Commands(
            curl=commands.curl(view.api("queues"), "POST", {"name": "orders"}),
            cli=commands.cli("queue", "create", "orders"),
            python=commands.python('app.queues.create("orders")'),
        ),
    )
