"""tarry pipeline replay: archived messages, offered again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer

from tarry.edges.cli.exits import ExitCode, Usage
from tarry.edges.cli.pipeline import Lake, Master, app
from tarry.edges.cli.pipeline_jobs import Job
from tarry.edges.cli.session import Session, command
from tarry.edges.times import delay, moment

OUTCOMES = ("offered", "acked", "nacked", "expired", "buried", "dropped")
FORMATS = ("json", "text", "binary")


@command(
    app,
    "replay",
    examples=(
        "tarry pipeline replay orders --outcome buried --dry-run",
        "tarry pipeline replay orders --since 2030-01-31T00:00:00Z --rate 50",
        "tarry pipeline replay orders --key order-17 --to orders-test",
    ),
)
def replay(
    cli: Session,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Whose messages.")],
    outcome: Annotated[
        str,
        typer.Option(
            "--outcome", metavar="O", help="Those that were offered, acked, nacked, expired, buried, dropped."
        ),
    ] = "offered",
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="It happened from here on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="It happened before this.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", metavar="KEY", help="These keys only.")] = None,
    key_prefix: Annotated[str | None, typer.Option("--key-prefix", metavar="P", help="Keys that begin so.")] = None,
    every_version: Annotated[
        bool, typer.Option("--every-version", help="Each version of a key, as key@version; else the last.")
    ] = False,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="P", help="Before each new key; else replay/. Empty: the same keys."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="QUEUE", help="Another queue; else the same.")] = None,
    after: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="Due so much later; else now.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="Due so many a second; else at once.")
    ] = None,
    payloads: Annotated[
        str | None, typer.Option("--payloads", metavar="F", help="json, text or binary, if the journal does not say.")
    ] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Leave out those whose payload was not archived.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="ID", help="A name of its own, to do the same replay once more.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Count what fits, and stop.")] = False,
    lake: Lake = None,
    master: Master = None,
) -> ExitCode:
    """Offer archived messages again.

    They get new keys, and a live message is left alone. The same replay said twice is done once. Payloads are archived only
    for queues with --journal payloads.
    """
    from tarry.edges.cli.pipeline_run import run_jobs

    given = {
        "lake": lake,
        "queue": queue,
        "outcome": _one_of(outcome, OUTCOMES, "--outcome"),
        "since": _instant(since, "--since"),
        "until": _instant(until, "--until"),
        "keys": tuple(key) if key else None,
        "key_prefix": key_prefix,
        "every_version": every_version,
        "prefix": prefix,
        "to_queue": to,
        "delay_for": None if after is None else delay(after, "--in"),
        "rate": rate,
        "payload_format": None if payloads is None else _one_of(payloads, FORMATS, "--payloads"),
        "skip_missing": skip_missing,
        "write_id": name,
        "dry_run": dry_run,
    }
    return run_jobs(cli, [Job("replay", given)], master=master, every=None)


def _one_of(given: str, known: tuple[str, ...], option: str) -> str:
    if given not in known:
        raise Usage(f"{option} is not {given!r:.40}", hint=f"one of {', '.join(known)}")
    return given


def _instant(text: str | None, name: str) -> datetime | None:
    """An instant that stays the same when the command is said again: what is replayed has a name that follows from it."""
    if text is None:
        return None
    found = moment(text, name)
    if isinstance(found, timedelta):
        raise Usage(f"{name} is an instant of the past", hint="write it like 2030-01-31T18:00:00Z")
    return found
