"""tarry dlq redrive: dead letters live again, a few at once or all that fit, as a job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.core.messages import DeadLetter
from tarry.core.redriving import DeadFilter
from tarry.edges.cli import views
from tarry.edges.cli.dead_views import filter_data, filter_words
from tarry.edges.cli.dlq import Yes, app
from tarry.edges.cli.dlq_filter import Group, KeyPrefix, Since, Type, Until, Versions, filtered
from tarry.edges.cli.exits import Conflicting, ExitCode, NotFound, Usage
from tarry.edges.cli.message import QueueName
from tarry.edges.cli.redriving import carry_on, finish
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural

if TYPE_CHECKING:
    from tarry.app import App

SEEN = 10_000
"""As many as are looked through, the newest first: more would be a burden."""
DEFAULT_LIMIT = 1_000


@command(
    app,
    "redrive",
    audited=True,
    examples=(
        "tarry dlq redrive orders --dry-run",
        "tarry dlq redrive orders --version 4711 --version 4712",
        "tarry dlq redrive orders --limit 10 --yes",
        "tarry dlq redrive orders --group 3f2a --canary 5 --rate 50/s",
        "tarry dlq redrive orders --since 2h --detach --yes",
    ),
)
def redrive(
    cli: Session,
    queue: QueueName,
    version: Versions = None,
    group: Group = None,
    type_: Type = None,
    key_prefix: KeyPrefix = None,
    since: Since = None,
    until: Until = None,
    rate: Annotated[str | None, typer.Option("--rate", metavar="N/s", help="At most so many a second: 50/s.")] = None,
    canary: Annotated[
        int, typer.Option("--canary", metavar="N", min=0, max=1000, help="So many first; the rest when they went well.")
    ] = 0,
    job: Annotated[bool, typer.Option("--job", help="All that fit, as a job; implied by --group to --canary.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Start the job and leave it to a sweeper.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, max=10_000, help="The oldest, at most so many: no job. Else 1000."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be redriven, and stop.")] = False,
    yes: Yes = False,
) -> ExitCode | None:
    """Deliver dead letters again.

    From the first attempt, due at once: mend first what they failed of. One whose key is live again stays dead. A few
    are redriven at once; with a filter, --rate or --canary all that fit are, as a job on the server, which a canary that
    dies again pauses. Ctrl-C ends the watching, not the job: tarry redrive.
    """
    as_job = job or detach or canary or any(o is not None for o in (group, type_, key_prefix, since, until, rate))
    if as_job and limit is not None:
        raise Usage("--limit is for a redrive at once, and this is a job", hint="leave --limit away, or the filter")
    per_second = None if rate is None else _rate(rate)
    with cli.open() as opened:
        opened.queues.get(queue)
        if not as_job:
            return _at_once(
                cli, opened, queue, sorted(set(version or ())), limit or DEFAULT_LIMIT, dry_run=dry_run, yes=yes
            )
        where = filtered(
            opened, queue, versions=version, group=group, type_=type_, key_prefix=key_prefix, since=since, until=until
        )
        if dry_run:
            return _count(cli, opened, queue, where)
        matching = opened.store.count_dead(queue, where=where).letters
        if not matching.n:
            raise NotFound("no dead letter fits", hint=f"see: tarry dlq groups {queue}")
        count = f"{matching} dead letters" if matching.capped else plural(matching.n, "dead letter")
        cli.confirm(f"Redrive {count} of queue {queue} ({filter_words(where)})?", yes=yes)
        started = opened.queue(queue).dead_letters.start_redrive(
            rate=per_second,
            canary=canary,
            fingerprint=where.fingerprint,
            type=where.type,
            key_prefix=where.key_prefix,
            died_from=where.died_from,
            died_to=where.died_to,
            versions=where.versions,
        )
        if detach:
            cli.note(f"job {started.id} waits for a sweeper (tarry sweeper), or: tarry redrive watch {started.id}")
            return finish(cli, opened, started.job)
        return carry_on(cli, opened, started)


def _rate(text: str) -> float:
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:/\s*(s|sec|m|min|h))?\s*", text)
    seconds = {"m": 60, "min": 60, "h": 3600}
    number = float(found[1]) / seconds.get(found[2] or "s", 1) if found else 0.0
    if number <= 0:
        raise Usage(f"--rate is not a rate: {text!r:.80}", hint="write 50/s, 100/m, or a number of messages a second")
    return number


def _count(cli: Session, app: App, queue: str, where: DeadFilter) -> None:
    matching = app.store.count_dead(queue, where=where)
    cli.printer.record(
        "tarry.dlq.redrive.plan/1",
        {
            "queue": queue,
            "dry_run": True,
            "where": filter_data(where),
            "matching": views.counted_data(matching.letters),
            "blocked": matching.blocked,
        },
        [
            ("queue", queue),
            ("which", filter_words(where)),
            ("would be redriven", str(matching.letters)),
            ("of these blocked", f"{matching.blocked:,}"),
        ],
    )
    cli.note("nothing was done" + ("; blocked: their keys are live again" if matching.blocked else ""))


def _at_once(
    cli: Session, app: App, queue: str, asked: Sequence[int], limit: int, *, dry_run: bool, yes: bool
) -> ExitCode | None:
    dead = app.queues.counts(queue).dead
    if dry_run:
        return _show_plan(cli, app, queue, asked, limit)
    if asked or dead.n:
        wanted = plural(len(asked) or min(limit, dead.n), "dead letter")
        cli.confirm(f"Redrive {wanted} of queue {queue}?", yes=yes)
    redriven = app.store.redrive(queue, versions=asked or None, limit=len(asked) or limit)
    left = _still_dead(app, queue, asked) if asked else 0
    dead = app.queues.counts(queue).dead
    absent = len(asked) - redriven - left if asked else 0
    if asked and absent == len(asked):
        raise NotFound(f"queue {queue} has none of these dead letters", hint=f"see: tarry dlq list {queue}")
    if not redriven and dead.n:
        raise Conflicting("nothing was redriven: their keys are live again", hint=f"see: tarry message list {queue}")
    cli.printer.record(
        "tarry.dlq.redrive/1",
        {"queue": queue, "redriven": redriven, "not_found": absent, "still_dead": views.counted_data(dead)},
        [("queue", queue), ("redriven", f"{redriven:,}"), ("not found", f"{absent:,}"), ("still dead", str(dead))],
    )
    return ExitCode.PARTLY if left or absent else None


def _still_dead(app: App, queue: str, versions: Sequence[int]) -> int:
    return len(app.store.dead_letters(queue, where=DeadFilter(versions=tuple(versions)), limit=SEEN))


def _show_plan(cli: Session, app: App, queue: str, asked: Sequence[int], limit: int) -> ExitCode | None:
    """What a redrive would take now: the oldest first, each key once, and none whose key is live."""
    plan: dict[str, DeadLetter[bytes]] = {}
    candidates = app.store.dead_letters(queue, limit=SEEN)[::-1]
    for dead in candidates:
        if len(plan) == limit:
            break
        if (not asked or dead.version in asked) and dead.key not in plan and not app.store.contains(queue, dead.key):
            plan[dead.key] = dead
    now = app.store.now()
    cli.printer.listing(
        "tarry.dead_letter.list/1",
        {"dead_letters": [views.dead_data(dead) for dead in plan.values()]},
        views.DEAD_COLUMNS,
        [views.dead_row(dead, now) for dead in plan.values()],
        more={"dry_run": True},
    )
    cli.note(f"{plural(len(plan), 'dead letter')} of queue {queue} would be redriven; nothing was done")
    return ExitCode.PARTLY if asked and len(plan) < len(asked) else None
