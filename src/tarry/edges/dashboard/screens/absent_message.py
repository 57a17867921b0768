"""The page of a message that does not exist, which shows how to offer it, and becomes its page when that was done."""

from __future__ import annotations

from dataclasses import replace

from tarry.core.settings import QueueInfo
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands
from tarry.edges.dashboard.screen import Page, View
from tarry.edges.http.auth import is_program
from tarry.edges.http.problems import Problem

_PAYLOAD = {"hi": "there"}


def absent(view: View, info: QueueInfo, key: str, hint: str) -> Page:
    """Raise a problem for a program, or for a visitor that may not offer it."""
    detail = f"queue {info.name} has no message {key!r:.100}, and no history of it"
    if is_program(view.request) or not view.may("produce", info.name):
        raise Problem(404, "not_found", detail, hint=hint)
    page = view.page(
        "messages/absent.html",
        key,
        topics=("messages",),
        queue=info.name,
        detail=detail,
        hint=hint,
        offer=Commands(
            curl=commands.curl(
                view.api("queues", info.name, "messages"),
                "POST",
                {"key": key, "payload": _PAYLOAD, "after": "10s"},
            ),
            cli=commands.cli("offer", info.name, '{"hi": "there"}', "--key", key, "--after", "10s"),
            python=commands.python(
                f"app.queue({info.name!r}).offer({key!r}, {_PAYLOAD!r}, after=timedelta(seconds=10))"
            ),
        ),
    )
    return replace(page, status=404)
