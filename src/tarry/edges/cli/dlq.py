"""tarry dlq: messages that failed for good."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.core.redriving import EVERY_LETTER
from tarry.edges.cli import views
from tarry.edges.cli.dead_views import GROUP_COLUMNS, dead_fields, filter_words, group_data, group_row
from tarry.edges.cli.dlq_filter import Group, KeyPrefix, Since, Type, Until, Versions, filtered
from tarry.edges.cli.exits import NotFound
from tarry.edges.cli.help import group
from tarry.edges.cli.message import QueueName
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural

app = group("dlq", "Look at dead letters, deliver them again, give them up.")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most this many.")]


@command(app, "groups", examples=("tarry dlq groups orders", "tarry dlq groups orders -o json"))
def groups(cli: Session, queue: QueueName, limit: Limit = 100) -> None:
    """Group dead letters by what they died of.

    One line for all whose errors read alike but for numbers, names in quotes and the like. The last to die come first.
    Redrive or discard a group with --group and the beginning of its name.
    """
    with cli.open() as opened:
        opened.queues.get(queue)
        found = opened.queue(queue).dead_letters.groups(limit=limit)
        now = opened.store.now()
    cli.printer.listing(
        "tarry.dead_group.list/1",
        {"groups": [group_data(one) for one in found]},
        GROUP_COLUMNS,
        [group_row(one, now) for one in found],
    )
    if not found:
        cli.note("there are no dead letters")


@command(
    app,
    "list",
    examples=(
        "tarry dlq list orders",
        "tarry dlq list orders --group 3f2a --since 2h",
        "tarry dlq list orders -o jsonl | jq -r .key",
    ),
)
def list_dead(
    cli: Session,
    queue: QueueName,
    group: Group = None,
    type_: Type = None,
    key_prefix: KeyPrefix = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
) -> None:
    """List dead letters, the newest first.

    Messages that ran out of attempts, could not be decoded, or were buried by a worker. They stay until they are
    redriven or discarded.
    """
    with cli.open() as opened:
        opened.queues.get(queue)
        where = filtered(
            opened, queue, versions=None, group=group, type_=type_, key_prefix=key_prefix, since=since, until=until
        )
        found = opened.store.dead_letters(queue, where=where, limit=limit)
        now = opened.store.now()
    cli.printer.listing(
        "tarry.dead_letter.list/1",
        {"dead_letters": [views.dead_data(dead) for dead in found]},
        views.DEAD_COLUMNS,
        [views.dead_row(dead, now) for dead in found],
    )
    if not found:
        cli.note("there are no dead letters" if where == EVERY_LETTER else "no dead letter fits")
    elif len(found) == limit:
        cli.note(f"the newest {limit:,}; there may be more: --limit")


@command(app, "show", examples=("tarry dlq show orders 4711", "tarry dlq show orders 4711 -o json"))
def show(
    cli: Session,
    queue: QueueName,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="See: tarry dlq list.", show_default=False)],
) -> None:
    """Show one dead letter in full.

    With its payload and the whole error. What happened to it before is in tarry message timeline.
    """
    with cli.open() as opened:
        opened.queues.get(queue)
        found = opened.queue(queue, bytes).dead_letters.get(version)
        now = opened.store.now()
    if found is None:
        raise NotFound(f"queue {queue} has no dead letter {version}", hint=f"see: tarry dlq list {queue}")
    cli.printer.record("tarry.dead_letter/1", views.dead_data(found), dead_fields(found, now))


@command(
    app,
    "discard",
    audited=True,
    examples=(
        "tarry dlq discard orders --group 3f2a",
        "tarry dlq discard orders --version 4711 --yes",
        "tarry dlq discard orders --dry-run",
    ),
)
def discard(
    cli: Session,
    queue: QueueName,
    version: Versions = None,
    group: Group = None,
    type_: Type = None,
    key_prefix: KeyPrefix = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Count what would be discarded, and stop.")] = False,
    yes: Yes = False,
) -> None:
    """Give dead letters up: those that fit, or all of a queue.

    It cannot be undone. Live messages stay: tarry queue purge.
    """
    with cli.open() as opened:
        opened.queues.get(queue)
        where = filtered(
            opened, queue, versions=version, group=group, type_=type_, key_prefix=key_prefix, since=since, until=until
        )
        matching = opened.store.count_dead(queue, where=where).letters
        if dry_run:
            cli.printer.record(
                "tarry.dlq.discard/1",
                {"queue": queue, "dry_run": True, "matching": views.counted_data(matching)},
                [("queue", queue), ("which", filter_words(where)), ("would be discarded", str(matching))],
            )
            return
        if matching.n:
            count = f"{matching} dead letters" if matching.capped else plural(matching.n, "dead letter")
            cli.confirm(f"Give up {count} of queue {queue} for good ({filter_words(where)})?", yes=yes)
        discarded = opened.store.purge_dead(queue, where=where)
    cli.printer.record(
        "tarry.dlq.discard/1",
        {"queue": queue, "dry_run": False, "discarded": discarded},
        [("queue", queue), ("discarded", f"{discarded:,}")],
    )
