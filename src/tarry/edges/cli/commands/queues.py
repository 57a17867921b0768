"""tarry queue: list, show, create, edit, rename, pause, resume, purge, delete, export, import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal, cast

from tarry.core.errors import TarryError
from tarry.core.journal.events import JournalLevel
from tarry.core.settings import QueueSettings
from tarry.edges.cli.context import CommandSession, command
from tarry.edges.cli.exit_codes import Conflicting, ExitCode, Usage
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import Reason, RetryOptions, Yes, changed, one_of
from tarry.edges.cli.output.printer import Cell, Value
from tarry.edges.cli.output.text import safe_json
from tarry.edges.cli.output.views import QUEUES, CountedInfo
from tarry.edges.formats import plural

if TYPE_CHECKING:
    from tarry.api.transfer import BadLine, Imported
    from tarry.core.messages.model import Counts

_CHUNK = 64 * 1024
_SHOW_EVERY = 5_000
_SHOWN = 20
"""Bad lines reported on stderr; JSON output has all of them."""
Show = Callable[..., None]
_COUNTS = ("created", "updated", "ignored", "superseded", "fine", "refused", "not_stored", "blank")
_STYLES = {"created": "green", "refused": "red", "not_stored": "red"}
Name = Annotated[str, argument("NAME", "The queue.")]
_setting = partial(option, panel="Settings")


@dataclass(frozen=True)
class SettingOptions(RetryOptions):
    """Settings of a queue as options; None: not given."""

    lease_for: Annotated[str | None, _setting("--lease-for DURATION", "Length of a lease, 1s to 12h.")] = None
    max_attempts: Annotated[str | None, _setting("--max-attempts N|none", "Deliveries before it is dead.")] = None
    journal: Annotated[JournalLevel | None, _setting("--journal LEVEL", "off, events or payloads.")] = None
    retention: Annotated[str | None, _setting("--retention DURATION", "How long its events are kept.")] = None
    target_lag: Annotated[str | None, _setting("--target-lag DURATION", "Lateness that counts as slow.")] = None
    max_depth: Annotated[str | None, _setting("--max-depth N|none", "Live messages that refuse more.")] = None
    description: Annotated[str | None, _setting("--description TEXT|none", "What it is for.")] = None


@command("queue list", "tarry queue list", "tarry queue list -o json | jq -r '.queues[].name'")
def list_queues(cli: CommandSession) -> None:
    """List the queues with counts and settings.

    Counting stops at 10,000 per state and then shows 10,000+, which keeps it fast for queues of any length.
    """
    with cli.open() as app:
        queues = [CountedInfo(info, app.queues.counts(info.name)) for info in app.queues.list()]
    empty = 'there are no queues; the first message creates one: tarry offer hello \'{"hi": "there"}\''
    cli.listing(QUEUES, queues, empty=empty)


@command("queue show", "tarry queue show orders", "tarry queue show orders -o json")
def show(cli: CommandSession, name: Name) -> None:
    """Show one queue in full.

    Its settings, how many messages are in which state, and whether and why it is paused.
    """
    with cli.open() as app:
        queue = CountedInfo(app.queues.get(name), app.queues.counts(name))
    cli.printer.view(QUEUES, queue)


@command(
    "queue create",
    "tarry queue create orders",
    "tarry queue create mails --lease-for 2m --max-attempts 5 --retry-initial 10s",
    "tarry queue create orders --exist-ok   # in a script that may run twice",
    audited=True,
)
def create(
    cli: CommandSession,
    name: Name,
    options: SettingOptions,
    exist_ok: Annotated[bool, option("--exist-ok", "Leave an existing queue as it is.")] = False,
) -> None:
    """Create a queue.

    For settings other than the defaults: tarry offer creates a missing queue with the defaults.
    """
    settings = changed(QueueSettings(), options)
    with cli.open() as app:
        info = app.queues.create(name, settings, exist_ok=exist_ok)
    cli.printer.view(QUEUES, CountedInfo(info))


@command(
    "queue edit",
    "tarry queue edit orders --lease-for 2m",
    "tarry queue edit orders --max-attempts none --retry-cap 1h",
    "tarry queue edit orders --journal payloads",
    audited=True,
)
def edit(cli: CommandSession, name: Name, options: SettingOptions) -> None:
    """Change settings of a queue.

    Only the named settings change, for future deliveries; current leases keep their length.
    """
    if options == SettingOptions():
        raise Usage("no setting was named", hint="for example --lease-for 2m; see: tarry queue edit -h")
    with cli.open() as app:
        current = app.queues.get(name).settings
        settings = changed(current, options)
        changes = {field.name: getattr(settings, field.name) for field in fields(settings)}
        info = app.queues.edit(name, **{k: v for k, v in changes.items() if v != getattr(current, k)})
    cli.printer.view(QUEUES, CountedInfo(info))


@command("queue rename", "tarry queue rename orders orders-2029", audited=True)
def rename(cli: CommandSession, name: Name, new_name: Annotated[str, argument("NEW_NAME", "The new name.")]) -> None:
    """Rename a queue.

    Its messages and its history stay with it. Producers that use the old name create a new queue with that name.
    """
    with cli.open() as app:
        info = app.queues.rename(name, new_name)
    cli.printer.view(QUEUES, CountedInfo(info))


@command(
    "queue pause",
    "tarry queue pause orders",
    "tarry queue pause orders --reason 'the shop is being moved'",
    audited=True,
)
def pause(cli: CommandSession, name: Name, reason: Reason = None) -> None:
    """Stop deliveries; messages are still accepted.

    Leased messages can be settled. Pausing a paused queue changes nothing.
    """
    with cli.open() as app:
        info = app.queues.pause(name, reason=reason)
    cli.printer.view(QUEUES, CountedInfo(info))


@command("queue resume", "tarry queue resume orders", audited=True)
def resume(cli: CommandSession, name: Name) -> None:
    """Continue deliveries of a paused queue.

    Due messages are deliverable immediately. Resuming a running queue changes nothing.
    """
    with cli.open() as app:
        info = app.queues.resume(name)
    cli.printer.view(QUEUES, CountedInfo(info))


@command("queue purge", "tarry queue purge orders", "tarry queue purge orders --confirm orders", audited=True)
def purge(
    cli: CommandSession,
    name: Name,
    confirm: Annotated[str | None, option("--confirm NAME", "The name of the queue, to skip the question.")] = None,
) -> None:
    """Remove every live message of a queue.

    Delayed, ready and leased; it cannot be undone. Dead letters stay: tarry dlq discard.
    """
    with cli.open() as app:
        counts = app.queues.counts(name)
        typed = cli.confirm_name(f"This removes {_live(counts)} of queue {name} for good.", name, given=confirm)
        if typed != name:
            raise Conflicting(f"the confirmation {typed!r:.120} is not the name of the queue; nothing was removed")
        purged = app.store.run(app.store.messages.purge(name))
    cli.printer.record("tarry.queue.purge/1", {"queue": name, "purged": purged})


@command("queue delete", "tarry queue delete orders", "tarry queue delete orders --force --yes", audited=True)
def delete(
    cli: CommandSession,
    name: Name,
    force: Annotated[bool, option("--force", "Also if it has messages; they are lost.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a queue.

    Refused while it has messages or dead letters, unless forced. Its history stays in the journal.
    """
    with cli.open(name) as app:
        counts = app.queues.counts(name)
        dead = f"{counts.dead} dead letters" if counts.dead.capped else plural(counts.dead.n, "dead letter")
        cli.confirm(f"Delete queue {name}{f' with {_live(counts)} and {dead}' if force else ''}?", yes=yes)
        app.queues.delete(name, force=force)
    cli.printer.record("tarry.queue.delete/1", {"queue": name, "deleted": True})


@command(
    "queue export",
    "tarry queue export orders > orders.jsonl",
    "tarry queue export orders | gzip > orders.jsonl.gz",
    "tarry queue export orders | tarry queue import orders --dsn $OTHER",
)
def export(cli: CommandSession, name: Name) -> None:
    """Write the live messages of a queue as lines of JSON.

    In due order, leased ones included, without dead letters. Messages are read in pages, without a long transaction: one
    that changes during the export may be missing or duplicated. Read the lines with tarry queue import;
    GET /v1/queues/NAME/export returns the same.
    """
    out, count = sys.stdout.buffer, 0
    with cli.open() as app, cli.progress("exporting") as show:
        for count, line in enumerate(app.queues.export(name), start=1):
            # The same JSON value, escaped for a terminal.
            out.write(safe_json(line.decode()).encode())
            if count % _SHOW_EVERY == 0:
                show(text=f"{count:,}")
        out.flush()
    cli.note(f"{plural(count, 'message')} exported")


@command(
    "queue import",
    "tarry queue import orders orders.jsonl",
    "zcat orders.jsonl.gz | tarry queue import orders",
    "tarry queue import orders orders.jsonl --dry-run   # only report bad lines",
    "tarry queue import orders orders.jsonl --on-bad stop -o json",
)
def import_lines(
    cli: CommandSession,
    name: Name,
    file: Annotated[str, argument("[FILE]", "Lines of JSON; - for stdin.")] = "-",
    on_bad: Annotated[str, option("--on-bad RULE", "At a bad line: skip it, or stop.")] = "skip",
    dry_run: Annotated[bool, option("--dry-run", "Only report bad lines; store nothing.")] = False,
) -> ExitCode:
    """Offer every line of a file.

    Each line is an offer: payload, and optionally key, at or after, priority, type, headers and so on. Batches of 500
    are stored atomically, and batches stored before a failure stay. Importing a file again is safe for lines with a key
    and a time: they are ignored. The exit code is 6 if lines were refused, 7 if a dry run found bad lines.
    """
    rule = cast('Literal["skip", "stop"]', one_of(on_bad, ("skip", "stop"), "--on-bad"))
    with _opened(file) as stream, cli.open() as app, cli.progress("importing") as show:
        if not dry_run:
            cli.create_queue(app, name)
        try:
            imported = app.queues.import_lines(name, _lines(stream, show), on_bad=rule, dry_run=dry_run)
        except TarryError as error:
            for note in getattr(error, "__notes__", ()):
                cli.warn(note)
            raise
    return _report(cli, name, imported, dry_run=dry_run)


def _lines(stream: IO[bytes], show: Show) -> Iterator[bytes | BadLine]:
    from tarry.api.transfer import lines_of

    for count, line in enumerate(lines_of(iter(lambda: stream.read(_CHUNK), b"")), start=1):
        if count % _SHOW_EVERY == 0:
            show(text=f"{count:,}")
        yield line


def _opened(file: str) -> AbstractContextManager[IO[bytes]]:
    try:
        return nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb")
    except OSError as error:
        raise Usage(f"the file cannot be read: {error}") from None


def _report(cli: CommandSession, name: str, imported: Imported, *, dry_run: bool) -> ExitCode:
    if cli.printer.for_people:
        for number, problem in list(imported.problems.items())[:_SHOWN]:
            cli.warn(f"line {number:,}: {problem}")
        if imported.refused > _SHOWN:
            cli.warn(f"and {imported.refused - _SHOWN:,} more")
    counts = {name: getattr(imported, name) for name in _COUNTS if name != "fine" or dry_run}
    fields: list[tuple[str, Value]] = [("queue", name), ("lines", f"{imported.lines:,}")]
    fields += [(name.replace("_", " "), Cell(f"{n:,}", _STYLES.get(name, ""))) for name, n in counts.items() if n]
    problems = [{"line": number, "problem": problem} for number, problem in imported.problems.items()]
    cli.printer.record(
        "tarry.queue.import/1",
        {"queue": name, "dry_run": dry_run, "lines": imported.lines, **counts, "problems": problems},
        fields,
    )
    if not imported.refused:
        return ExitCode.OK
    return ExitCode.CHECK_FAILED if dry_run else ExitCode.PARTLY


def _live(counts: Counts) -> str:
    return f"{counts.delayed} delayed, {counts.ready} ready and {counts.leased} leased messages"
