"""tarry dlq: groups, list, show, discard, redrive; tarry redrive: list, show, watch, pause, resume, cancel of its jobs."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tarry.core.dead_letters.fingerprints import LENGTH
from tarry.core.dead_letters.redrive import EVERY_LETTER, DeadFilter, RedriveJob, RedrivePhase, RedriveState, Where
from tarry.core.messages.model import Counted, DeadLetter
from tarry.edges.cli.context import CommandSession, command, now_of
from tarry.edges.cli.exit_codes import Conflicting, ExitCode, Interrupted, NotFound, Usage
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import DryRun, Limit, QueueName, Reason, Type, Yes, parsed
from tarry.edges.cli.output import views
from tarry.edges.cli.output.views import filter_words
from tarry.edges.formats import delay, past, plural
from tarry.wire.base import data_of

if TYPE_CHECKING:
    from tarry.api._sync.redrives import Redrive
    from tarry.app import App

SEEN = 10_000
"""Dead letters that a dry run reads, the newest first."""
DEFAULT_LIMIT = 1_000
Group = Annotated[str | None, option("--group F", "Only this group (see: tarry dlq groups); a prefix is enough.")]


@dataclass(frozen=True)
class FilterOptions:
    """Which dead letters a command means; None: not given."""

    group: Group = None
    type: Type = None
    key_prefix: Annotated[str | None, option("--key-prefix TEXT", "Keys that begin with this.")] = None
    since: Annotated[str | None, option("--since TIME", "Died from then on: a time, or 2h for two hours ago.")] = None
    until: Annotated[str | None, option("--until TIME", "Died before then.")] = None

    def where(self, app: App, queue: str, versions: Sequence[int] | None = None) -> Where:
        now = now_of(app)
        return {
            "type": self.type,
            "key_prefix": self.key_prefix,
            "versions": sorted(set(versions)) if versions else None,
            "died_from": past(self.since, "--since", now),
            "died_to": past(self.until, "--until", now),
            "fingerprint": None if self.group is None else _fingerprint(app, queue, self.group),
        }


Versions = Annotated[list[int] | None, option("--version V", "This one (see: tarry dlq list); may be repeated.")]


@command("dlq groups", "tarry dlq groups orders", "tarry dlq groups orders -o json")
def groups(cli: CommandSession, queue: QueueName, limit: Limit = 100) -> None:
    """Group dead letters by their error.

    Errors that differ only in numbers, quoted names and the like are one group. The group with the latest death comes
    first. Redrive or discard a group with --group and a prefix of its name.
    """
    with cli.open(queue) as app:
        groups, now = app.queue(queue).dead_letters.groups(limit=limit), now_of(app)
    cli.listing(views.GROUPS, groups, now=now, empty="there are no dead letters")


@command(
    "dlq list",
    "tarry dlq list orders",
    "tarry dlq list orders --group 3f2a --since 2h",
    "tarry dlq list orders -o jsonl | jq -r .key",
)
def list_dead(cli: CommandSession, queue: QueueName, options: FilterOptions, limit: Limit = 100) -> None:
    """List dead letters, newest first.

    Messages that used up their attempts, could not be decoded, or were buried. They stay until they are redriven or
    discarded.
    """
    with cli.open(queue) as app:
        where = DeadFilter.of(options.where(app, queue))
        letters = app.store.run(app.store.dead_letters.list(queue, where=where, limit=limit))
        now = now_of(app)
    empty = "there are no dead letters" if where == EVERY_LETTER else "no dead letter matches"
    cli.listing(views.DEAD_LETTERS, letters, now=now, empty=empty, limit=limit)


@command("dlq show", "tarry dlq show orders 4711", "tarry dlq show orders 4711 -o json")
def show(
    cli: CommandSession, queue: QueueName, version: Annotated[int, argument("VERSION", "See: tarry dlq list.")]
) -> None:
    """Show one dead letter in full.

    With its payload and the whole error. For its history: tarry message timeline.
    """
    with cli.open(queue) as app:
        dead, now = app.queue(queue, bytes).dead_letters.get(version), now_of(app)
    if dead is None:
        raise NotFound(f"queue {queue} has no dead letter {version}", hint=f"see: tarry dlq list {queue}")
    cli.printer.view(views.DEAD_LETTERS, dead, now=now)


@command(
    "dlq discard",
    "tarry dlq discard orders --group 3f2a",
    "tarry dlq discard orders --version 4711 --yes",
    "tarry dlq discard orders --dry-run",
    audited=True,
)
def discard(
    cli: CommandSession,
    queue: QueueName,
    options: FilterOptions,
    version: Versions = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete the dead letters of a queue that match.

    All of them without an option; it cannot be undone. Live messages stay: tarry queue purge.
    """
    with cli.open(queue) as app:
        where = DeadFilter.of(options.where(app, queue, version))
        matching = app.store.run(app.store.dead_letters.count(queue, where=where)).letters
        if dry_run:
            plan = {"queue": queue, "dry_run": True, "which": filter_words(where), "matching": matching}
            cli.printer.record("tarry.dlq.discard/1", plan)
            return
        if matching.n:
            cli.confirm(f"Discard {_letters(matching)} of queue {queue} for good ({filter_words(where)})?", yes=yes)
        discarded = app.store.run(app.store.dead_letters.discard(queue, where=where))
    cli.printer.record("tarry.dlq.discard/1", {"queue": queue, "dry_run": False, "discarded": discarded})


@command(
    "dlq redrive",
    "tarry dlq redrive orders --dry-run",
    "tarry dlq redrive orders --version 4711 --version 4712",
    "tarry dlq redrive orders --limit 10 --yes",
    "tarry dlq redrive orders --group 3f2a --canary 5 --rate 50/s",
    "tarry dlq redrive orders --since 2h --detach --yes",
    "tarry dlq redrive orders --target orders-again",
    "tarry dlq redrive orders --after 30m --detach --yes",
    audited=True,
)
def redrive(
    cli: CommandSession,
    queue: QueueName,
    options: FilterOptions,
    version: Versions = None,
    rate: Annotated[str | None, option("--rate N/s", "At most this many per second: 50/s.")] = None,
    canary: Annotated[
        int, option("--canary N", "Redrive N first, and the rest when these succeeded.", min=0, max=1000)
    ] = 0,
    jitter: Annotated[str | None, option("--jitter DURATION", "Each is due at a random time within this: 30s.")] = None,
    stop_above: Annotated[
        str | None, option("--stop-above PERCENT", "Pause the job if more than this share dies again: 20%.")
    ] = None,
    max_attempts: Annotated[
        int | None, option("--max-attempts N", "Of each, as a job: 1 for a single one; default: as before.", min=1)
    ] = None,
    job: Annotated[bool, option("--job", "All that match, as a job; implied by a filter, --rate, --canary.")] = False,
    target: Annotated[str | None, option("--target QUEUE", "To another queue, as a job.")] = None,
    after: Annotated[str | None, option("--after DURATION", "Begin this much later, as a job: 30m.")] = None,
    detach: Annotated[bool, option("--detach", "Start the job and leave it to a sweeper.")] = False,
    limit: Annotated[
        int | None, option("--limit N", "Without a job: the oldest N; default 1000.", min=1, max=10_000)
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> ExitCode | None:
    """Offer dead letters again.

    They start at the first attempt and are due immediately: fix the cause first. One whose key is live again stays dead.
    With a filter, --rate or --canary a job on the server redrives all that match, and pauses if a canary dies again.
    Ctrl-C stops the watching, not the job: tarry redrive.
    """
    how: dict[str, Any] = {
        "rate": None if rate is None else _rate(rate),
        "jitter": parsed(delay, jitter, "--jitter"),
        "stop_above": None if stop_above is None else _share(stop_above),
        "max_attempts": max_attempts,
        "target": target,
        "after": parsed(delay, after, "--after"),
    }
    is_tuned = canary > 0 or any(value is not None for value in how.values())
    as_job = job or detach or is_tuned or options != FilterOptions()
    if as_job and limit is not None:
        raise Usage("--limit cannot be used with a job", hint="remove --limit, or the filter")
    with cli.open(queue) as app:
        if not as_job:
            versions = sorted(set(version or ()))
            if dry_run:
                return _show_plan(cli, app, queue, versions, limit or DEFAULT_LIMIT)
            return _redrive(cli, app, queue, versions, limit or DEFAULT_LIMIT, yes=yes)
        chosen = options.where(app, queue, version)
        where = DeadFilter.of(chosen)
        matching = app.store.run(app.store.dead_letters.count(queue, where=where))
        if dry_run:
            plan = {"queue": queue, "dry_run": True, "which": filter_words(where), "where": data_of(where)}
            counts = {"matching": matching.letters, "blocked": matching.blocked}
            cli.printer.record("tarry.dlq.redrive.plan/1", {**plan, **counts})
            cli.note("nothing was changed" + ("; blocked: their keys are live again" if matching.blocked else ""))
            return None
        if not matching.letters.n:
            raise NotFound("no dead letter matches", hint=f"see: tarry dlq groups {queue}")
        to = f" to queue {target}" if target else ""
        cli.confirm(f"Redrive {_letters(matching.letters)} of queue {queue} ({filter_words(where)}){to}?", yes=yes)
        started = app.queue(queue).dead_letters.start_redrive(canary=canary, **how, **chosen)
        if detach:
            cli.note(f"job {started.id} waits for a sweeper (tarry sweeper), or: tarry redrive watch {started.id}")
            return print_job(cli, app, started.job)
        return watch_job(cli, app, started)


def _rate(text: str) -> float:
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:/\s*(s|sec|m|min|h))?\s*", text)
    seconds = {"m": 60, "min": 60, "h": 3600}
    rate = float(match[1]) / seconds.get(match[2] or "s", 1) if match else 0.0
    if rate <= 0:
        raise Usage(f"--rate is not a rate: {text!r:.80}", hint="write 50/s, 100/m, or a number of messages per second")
    return rate


def _share(text: str) -> float:
    match = re.fullmatch(r"\s*([0-9]{1,2}(?:\.[0-9]+)?)\s*%?\s*", text)
    if match is None:
        raise Usage(f"--stop-above is not a share: {text!r:.80}", hint="write percent, below 100: 20%")
    return float(match[1]) / 100


def _letters(count: Counted) -> str:
    return f"{count} dead letters" if count.capped else plural(count.n, "dead letter")


def _redrive(
    cli: CommandSession, app: App, queue: str, versions: Sequence[int], limit: int, *, yes: bool
) -> ExitCode | None:
    dead = app.queues.counts(queue).dead
    if versions or dead.n:
        count = plural(len(versions) or min(limit, dead.n), "dead letter")
        cli.confirm(f"Redrive {count} of queue {queue}?", yes=yes)
    redrive = app.store.dead_letters.redrive(queue, versions=versions or None, limit=len(versions) or limit)
    redriven = app.store.run(redrive)
    blocked = absent = 0
    if versions:
        where = DeadFilter(versions=tuple(versions))
        blocked = len(app.store.run(app.store.dead_letters.list(queue, where=where, limit=SEEN)))
        absent = len(versions) - redriven - blocked
    dead = app.queues.counts(queue).dead
    if versions and absent == len(versions):
        raise NotFound(f"queue {queue} has none of these dead letters", hint=f"see: tarry dlq list {queue}")
    if not redriven and dead.n:
        raise Conflicting("nothing was redriven: their keys are live again", hint=f"see: tarry message list {queue}")
    counts = {"queue": queue, "redriven": redriven, "not_found": absent, "still_dead": dead}
    cli.printer.record("tarry.dlq.redrive/1", counts)
    return ExitCode.PARTLY if blocked or absent else None


def _show_plan(cli: CommandSession, app: App, queue: str, versions: Sequence[int], limit: int) -> ExitCode | None:
    """Show the dead letters that a redrive would offer now: the oldest first, each key once, and no key that is live."""
    plan: dict[str, DeadLetter[bytes]] = {}
    where = DeadFilter(versions=tuple(versions) or None)
    for dead in reversed(app.store.run(app.store.dead_letters.list(queue, where=where, limit=SEEN))):
        if len(plan) == limit:
            break
        if dead.key not in plan and not app.store.run(app.store.messages.contains(queue, dead.key)):
            plan[dead.key] = dead
    cli.listing(views.DEAD_LETTERS, list(plan.values()), now=now_of(app), more={"dry_run": True})
    cli.note(f"{plural(len(plan), 'dead letter')} of queue {queue} would be redriven; nothing was changed")
    return ExitCode.PARTLY if versions and len(plan) < len(versions) else None


def _fingerprint(app: App, queue: str, text: str) -> str:
    """The fingerprint of the group that begins with this text."""
    see = f"see: tarry dlq groups {queue}"
    if not text:
        # An unset shell variable: it must not match every group.
        raise Usage("--group is empty", hint=see)
    if len(text) == LENGTH:
        return text
    known = [group.fingerprint for group in app.queue(queue).dead_letters.groups(limit=1_000)]
    matches = [fingerprint for fingerprint in known if fingerprint.startswith(text)]
    if not matches:
        raise NotFound(f"queue {queue} has no group {text!r:.80} of dead letters", hint=see)
    if len(matches) > 1:
        names = ", ".join(matches[:5])
        raise Usage(f"--group {text!r} matches {len(matches)} groups: {names}", hint="give more characters")
    return matches[0]


Job = Annotated[int, argument("JOB", "The number of the job.")]
_LONGEST_SLEEP_S = 0.5
"""Another process may pause or cancel the job, or advance it faster: refresh at least this often."""


@command("redrive list", "tarry redrive list", "tarry redrive list orders -o json")
def list_jobs(
    cli: CommandSession,
    queue: Annotated[str | None, argument("[QUEUE]", "Only of this queue.")] = None,
    limit: Limit = 100,
) -> None:
    """List redrive jobs, newest first.

    tarry dlq redrive starts them; a sweeper or tarry redrive watch advances them.
    """
    with cli.open(queue) as app:
        jobs, now = app.redrives.list(queue, limit=limit), now_of(app)
    cli.listing(views.JOBS, jobs, now=now, empty="there are no redrive jobs")


@command("redrive show", "tarry redrive show 7", "tarry redrive show 7 -o json")
def show_job(cli: CommandSession, job: Job) -> None:
    """Show the progress of a redrive job.

    Changes nothing. To advance it: tarry redrive watch.
    """
    with cli.open() as app:
        print_job(cli, app, app.redrives.get(job).job)


@command("redrive watch", "tarry redrive watch 7")
def watch(cli: CommandSession, job: Job) -> ExitCode | None:
    """Advance a redrive job, and show its progress to the end.

    Ctrl-C stops the watching, not the job. The exit code is 6 if dead letters were skipped, 7 if the job is paused; it
    pauses itself when a canary dies again.
    """
    with cli.open() as app:
        return watch_job(cli, app, app.redrives.get(job))


@command("redrive pause", 'tarry redrive pause 7 --reason "the database is busy"', audited=True)
def pause(cli: CommandSession, job: Job, reason: Reason = None) -> None:
    """Pause a redrive job.

    Messages that it redrove stay live. To continue: tarry redrive resume.
    """
    with cli.open() as app:
        redrive = app.redrives.get(job)
        redrive.pause(reason)
        cli.printer.view(views.JOBS, redrive.job, now=now_of(app))


@command("redrive resume", "tarry redrive resume 7", "tarry redrive resume 7 --watch", audited=True)
def resume(
    cli: CommandSession,
    job: Job,
    watching: Annotated[bool, option("--watch", "And advance it, as tarry redrive watch does.")] = False,
) -> ExitCode | None:
    """Continue a paused redrive job.

    If it paused because a canary died again, it continues with the rest: fix the cause first.
    """
    with cli.open() as app:
        redrive = app.redrives.get(job)
        redrive.resume()
        return watch_job(cli, app, redrive) if watching else print_job(cli, app, redrive.job)


@command("redrive cancel", "tarry redrive cancel 7", audited=True)
def cancel(cli: CommandSession, job: Job, reason: Reason = None) -> None:
    """Cancel a redrive job.

    Messages that it redrove stay live, the others stay dead. It cannot be resumed; start a new one.
    """
    with cli.open() as app:
        redrive = app.redrives.get(job)
        redrive.cancel(reason)
        cli.printer.view(views.JOBS, redrive.job, now=now_of(app))


def watch_job(cli: CommandSession, app: App, redrive: Redrive) -> ExitCode | None:
    """Advance the job until it finishes or pauses. After Ctrl-C a sweeper or a later watch continues it."""
    try:
        with cli.progress(f"job {redrive.id}") as show:
            noted = False
            while redrive.job.state is RedriveState.RUNNING:
                job = redrive.advance()
                done = job.redriven + job.skipped
                text = f"{done:,}/{job.total}: {views.job_state(job).text}"
                show(completed=done, total=job.total.n or None, text=text)
                if redrive.job.phase is RedrivePhase.VERDICT and not noted:
                    noted = True
                    canaries = plural(len(redrive.job.canaries), "canary", "canaries")
                    cli.note(f"{canaries} redriven first: waiting for the result")
                if redrive.job.state is RedriveState.RUNNING:
                    due_in_s = (redrive.job.next_at - now_of(app)).total_seconds()
                    time.sleep(max(0.0, min(due_in_s, _LONGEST_SLEEP_S)))
    except KeyboardInterrupt:
        cli.note(
            f"job {redrive.id} continues when a sweeper runs, or with: tarry redrive watch {redrive.id}   "
            f"(to end it: tarry redrive cancel {redrive.id})"
        )
        raise Interrupted from None
    return print_job(cli, app, redrive.job)


def print_job(cli: CommandSession, app: App, job: RedriveJob) -> ExitCode | None:
    """Print the job; its state decides the exit code."""
    dead = app.store.run(app.store.rollups.redrive_outcome(job.id)).died_again
    cli.printer.view(views.JOBS, job, now=now_of(app), more={"died_again": dead.n})
    if dead.n:
        cli.note(f"{dead} of {job.redriven:,} redriven messages died again: tarry dlq list {job.target or job.queue}")
    if job.state is RedriveState.PAUSED:
        cli.note(f"to continue: tarry redrive resume {job.id}   or to end it: tarry redrive cancel {job.id}")
        return ExitCode.CHECK_FAILED
    if job.state in (RedriveState.FAILED, RedriveState.CANCELLED):
        return ExitCode.FAILED
    return ExitCode.PARTLY if job.skipped else None
