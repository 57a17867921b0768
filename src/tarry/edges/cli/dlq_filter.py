"""Which dead letters a command means: the options that several commands share, and the filter they make."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.core.errors import InvalidInput
from tarry.core.fingerprints import LENGTH
from tarry.core.redriving import DeadFilter, Where
from tarry.edges.cli.exits import NotFound, Usage
from tarry.edges.times import duration, moment

if TYPE_CHECKING:
    from tarry.app import App

Versions = Annotated[
    list[int] | None, typer.Option("--version", metavar="V", help="This one (see: tarry dlq list); may be repeated.")
]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="F", help="What died of this (see: tarry dlq groups); its beginning will do."),
]
Type = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Messages of this type.")]
KeyPrefix = Annotated[str | None, typer.Option("--key-prefix", metavar="TEXT", help="Keys that begin with this.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Died from then on: a time, or 2h for two hours ago.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Died before then.")]


def filtered(
    app: App,
    queue: str,
    *,
    versions: list[int] | None,
    group: str | None,
    type_: str | None,
    key_prefix: str | None,
    since: str | None,
    until: str | None,
) -> DeadFilter:
    now = app.store.now()
    where: Where = {
        "type": type_,
        "key_prefix": key_prefix,
        "versions": sorted(set(versions)) if versions else None,
        "died_from": _past(since, "--since", now),
        "died_to": _past(until, "--until", now),
        "fingerprint": None if group is None else _fingerprint(app, queue, group),
    }
    return DeadFilter.of(where)


def _fingerprint(app: App, queue: str, text: str) -> str:
    """The one group whose fingerprint begins so."""
    if not text:
        # As a shell makes it of a variable that is not set: it must not mean whatever group is there.
        raise Usage("--group is empty", hint=f"see: tarry dlq groups {queue}")
    if len(text) == LENGTH:
        return text
    found = [group.fingerprint for group in app.queue(queue).dead_letters.groups(limit=1_000)]
    fitting = [fingerprint for fingerprint in found if fingerprint.startswith(text)]
    if not fitting:
        raise NotFound(
            f"queue {queue} has no group {text!r:.80} of dead letters", hint=f"see: tarry dlq groups {queue}"
        )
    if len(fitting) > 1:
        raise Usage(
            f"{text!r} is the beginning of {len(fitting)} groups: {', '.join(fitting[:5])}", hint="write more of it"
        )
    return fitting[0]


def _past(text: str | None, name: str, now: datetime) -> datetime | None:
    """An instant, or how long ago."""
    if text is None:
        return None
    try:
        return now - duration(text, name)
    except InvalidInput:
        found = moment(text, name)
    if isinstance(found, timedelta):
        raise InvalidInput(
            f"{name} is in the past: {text!r:.80}", hint="write 2h for two hours ago, or a time with its zone"
        )
    return found
