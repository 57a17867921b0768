"""tarry dlq: messages that failed for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.core.messages import DeadLetter
from tarry.edges.cli import views
from tarry.edges.cli.exits import Conflicting, ExitCode, NotFound
from tarry.edges.cli.help import group
from tarry.edges.cli.message import QueueName
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural

if TYPE_CHECKING:
    from tarry.app import App

app = group("dlq", "Look at dead letters, deliver them again, give them up.")

SEEN = 10_000
"""As many as are looked through, the newest first: more would be a burden."""

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@command(
    app, "list", examples=("tarry dlq list orders", "tarry dlq list orders -o jsonl | jq -r .error | sort | uniq -c")
)
def list_dead(
    cli: Session,
    queue: QueueName,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most this many.")] = 100,
) -> None:
    """List dead letters, the newest first.

    Messages that ran out of attempts, could not be decoded, or were buried by a worker. They stay until they are
    redriven or purged.
    """
    with cli.open() as opened:
        opened.queues.get(queue)
        found = opened.store.dead_letters(queue, limit=limit)
        now = opened.store.now()
    cli.printer.listing(
        "tarry.dead_letter.list/1",
        {"dead_letters": [views.dead_data(dead) for dead in found]},
        views.DEAD_COLUMNS,
        [views.dead_row(dead, now) for dead in found],
    )
    if not found:
        cli.note("there are no dead letters")
    elif len(found) == limit:
        cli.note(f"the newest {limit:,}; there may be more: --limit")


@command(
    app,
    "redrive",
    examples=(
        "tarry dlq redrive orders --dry-run",
        "tarry dlq redrive orders --version 4711 --version 4712",
        "tarry dlq redrive orders --limit 10 --yes",
    ),
)
def redrive(
    cli: Session,
    queue: QueueName,
    version: Annotated[
        list[int] | None, typer.Option("--version", metavar="V", help="These (see: tarry dlq list); else the oldest.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most this many.")] = 1000,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would be redriven, and stop.")] = False,
    yes: Yes = False,
) -> ExitCode | None:
    """Deliver dead letters again.

    From the first attempt, due at once: mend first what they failed of. One whose key is live again stays dead.
    """
    asked = sorted(set(version or ()))
    with cli.open() as opened:
        dead = opened.queues.counts(queue).dead
        if dry_run:
            return _show_plan(cli, opened, queue, asked, limit)
        wanted = plural(len(asked) or min(limit, dead.n), "dead letter")
        if asked or dead.n:
            cli.confirm(f"Redrive {wanted} of queue {queue}?", yes=yes)
        redriven = opened.store.redrive(queue, versions=asked or None, limit=len(asked) or limit)
        left = _still_dead(opened, queue, asked) if asked else 0
        dead = opened.queues.counts(queue).dead
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


@command(app, "purge", examples=("tarry dlq purge orders", "tarry dlq purge orders --yes"))
def purge(cli: Session, queue: QueueName, yes: Yes = False) -> None:
    """Give up every dead letter of a queue.

    It cannot be undone. Live messages stay: tarry queue purge.
    """
    with cli.open() as opened:
        counts = opened.queues.counts(queue)
        if counts.dead.n:
            cli.confirm(f"Give up {counts.dead} dead letters of queue {queue} for good?", yes=yes)
        purged = opened.queue(queue).dead_letters.purge()
    cli.printer.record(
        "tarry.dlq.purge/1", {"queue": queue, "purged": purged}, [("queue", queue), ("purged", f"{purged:,}")]
    )


def _still_dead(app: App, queue: str, versions: Sequence[int]) -> int:
    return len({dead.version for dead in app.store.dead_letters(queue, limit=SEEN)}.intersection(versions))


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
