"""tarry queue: look at queues, and look after them."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.core.messages import Counts
from tarry.edges.cli import queue_settings as given
from tarry.edges.cli import views
from tarry.edges.cli.exits import Conflicting, Usage
from tarry.edges.cli.help import group
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural

app = group("queue", "List, create, change, pause and remove queues.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@command(app, "list", examples=("tarry queue list", "tarry queue list -o json | jq -r '.queues[].name'"))
def list_queues(cli: Session) -> None:
    """List the queues with counts and settings.

    Counting stops at 10,000 of a kind and says 10,000+, so looking is cheap however long a queue is.
    """
    with cli.open() as opened:
        found = [(info, opened.queues.counts(info.name)) for info in opened.queues.list()]
    cli.printer.listing(
        "tarry.queue.list/1",
        {"queues": [views.queue_data(info, counts) for info, counts in found]},
        views.QUEUE_COLUMNS,
        [views.queue_row(info, counts) for info, counts in found],
    )
    if not found:
        cli.note('there are no queues yet; the first message makes one: tarry send hello \'{"hi": "there"}\'')


@command(app, "show", examples=("tarry queue show orders", "tarry queue show orders -o json"))
def show(cli: Session, name: Name) -> None:
    """Show one queue in full.

    Its settings, how many messages are in which state, and whether it is paused and why.
    """
    with cli.open() as opened:
        info, counts = opened.queues.get(name), opened.queues.counts(name)
    cli.printer.record("tarry.queue/1", views.queue_data(info, counts), views.queue_fields(info, counts))


@command(
    app,
    "create",
    audited=True,
    examples=(
        "tarry queue create orders",
        "tarry queue create mails --lease 2m --max-attempts 5 --retry-initial 10s",
        "tarry queue create orders --exist-ok   # in a script that may run twice",
    ),
)
def create(
    cli: Session,
    name: Name,
    lease: given.Lease = None,
    max_attempts: given.MaxAttempts = None,
    retry_initial: given.RetryInitial = None,
    retry_factor: given.RetryFactor = None,
    retry_cap: given.RetryCap = None,
    retry_jitter: given.RetryJitter = None,
    journal: given.Journal = None,
    retention: given.Retention = None,
    target_lag: given.TargetLag = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Leave it as it is if it is there.")] = False,
) -> None:
    """Create a queue.

    Not needed for a first try, since sending creates the queue with the defaults. Use it to choose the settings.
    """
    chosen = given.Given(
        lease, max_attempts, retry_initial, retry_factor, retry_cap, retry_jitter, journal, retention, target_lag
    )
    settings = given.created(chosen)
    with cli.open() as opened:
        info = opened.queues.create(name, settings, exist_ok=exist_ok)
    cli.printer.record("tarry.queue/1", views.queue_data(info), views.queue_fields(info))


@command(
    app,
    "edit",
    audited=True,
    examples=(
        "tarry queue edit orders --lease 2m",
        "tarry queue edit orders --max-attempts none --retry-cap 1h",
        "tarry queue edit orders --journal payloads",
    ),
)
def edit(
    cli: Session,
    name: Name,
    lease: given.Lease = None,
    max_attempts: given.MaxAttempts = None,
    retry_initial: given.RetryInitial = None,
    retry_factor: given.RetryFactor = None,
    retry_cap: given.RetryCap = None,
    retry_jitter: given.RetryJitter = None,
    journal: given.Journal = None,
    retention: given.Retention = None,
    target_lag: given.TargetLag = None,
) -> None:
    """Change settings of a queue.

    Only what is named changes, for deliveries from now on; a lease that is out keeps its length.
    """
    chosen = given.Given(
        lease, max_attempts, retry_initial, retry_factor, retry_cap, retry_jitter, journal, retention, target_lag
    )
    if chosen == given.Given():
        raise Usage(
            "there is nothing to change", hint="name a setting, for example --lease 2m; see: tarry queue edit -h"
        )
    with cli.open() as opened:
        changes = given.changes(chosen, opened.queues.get(name).settings)
        info = opened.queues.edit(name, **changes)
    cli.printer.record("tarry.queue/1", views.queue_data(info), views.queue_fields(info))


@command(app, "rename", audited=True, examples=("tarry queue rename orders orders-2029",))
def rename(
    cli: Session,
    name: Name,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="Its new name.", show_default=False)],
) -> None:
    """Give a queue another name.

    Its messages and history go with it. Producers that still use the old name would create a new queue of that name.
    """
    with cli.open() as opened:
        info = opened.queues.rename(name, new_name)
    cli.printer.record("tarry.queue/1", views.queue_data(info), views.queue_fields(info))


@command(
    app,
    "pause",
    audited=True,
    examples=("tarry queue pause orders", "tarry queue pause orders --reason 'the shop is being moved'"),
)
def pause(
    cli: Session,
    name: Name,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for whoever looks next.")] = None,
) -> None:
    """Stop deliveries; messages are still accepted.

    What is leased may be finished. Pausing a paused queue changes nothing.
    """
    with cli.open() as opened:
        info = opened.queues.pause(name, reason=reason)
    cli.printer.record("tarry.queue/1", views.queue_data(info), views.queue_fields(info))


@command(app, "resume", audited=True, examples=("tarry queue resume orders",))
def resume(cli: Session, name: Name) -> None:
    """Go on with deliveries.

    What came due in the meantime is deliverable at once. Resuming a running queue changes nothing.
    """
    with cli.open() as opened:
        info = opened.queues.resume(name)
    cli.printer.record("tarry.queue/1", views.queue_data(info), views.queue_fields(info))


@command(app, "purge", audited=True, examples=("tarry queue purge orders", "tarry queue purge orders --confirm orders"))
def purge(
    cli: Session,
    name: Name,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="The name again, instead of being asked.")
    ] = None,
) -> None:
    """Remove every live message of a queue.

    Delayed, ready and leased ones; it cannot be undone. Dead letters stay: tarry dlq discard.
    """
    with cli.open() as opened:
        counts = opened.queues.counts(name)
        answer = cli.confirm_name(f"This removes {_live(counts)} of queue {name} for good.", name, given=confirm)
        if answer != name:
            raise Conflicting(f"the confirmation {answer!r:.120} is not the name of the queue; nothing was removed")
        dropped = opened.store.drop_all(name)
    cli.printer.record(
        "tarry.queue.purge/1", {"queue": name, "dropped": dropped}, [("queue", name), ("dropped", f"{dropped:,}")]
    )


@command(app, "delete", audited=True, examples=("tarry queue delete orders", "tarry queue delete orders --force --yes"))
def delete(
    cli: Session,
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Also if it has messages; they are lost.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a queue.

    Refused while it has messages, dead letters included, unless forced. Its history stays in the journal.
    """
    with cli.open() as opened:
        opened.queues.get(name)
        counts = opened.queues.counts(name)
        lost = f" with {_live(counts)} and {_dead(counts)}" if force else ""
        cli.confirm(f"Delete queue {name}{lost}?", yes=yes)
        opened.queues.delete(name, force=force)
    cli.printer.record("tarry.queue.delete/1", {"queue": name, "deleted": True}, [("queue", name), ("deleted", "yes")])


def _live(counts: Counts) -> str:
    return f"{counts.delayed} delayed, {counts.ready} ready and {counts.leased} leased messages"


def _dead(counts: Counts) -> str:
    return f"{counts.dead} dead letters" if counts.dead.capped else plural(counts.dead.n, "dead letter")
