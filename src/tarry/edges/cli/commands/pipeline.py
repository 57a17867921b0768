"""tarry pipeline run, replay and one command per job; tarry verify."""

from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Annotated, Any

from tarry.edges.cli.context import CommandSession, command
from tarry.edges.cli.exit_codes import ExitCode, Usage
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import DryRun, Lake, Master, Yes, instant_of, one_of, parsed
from tarry.edges.cli.output.printer import Cell
from tarry.edges.cli.pipeline.jobs import arguments, chosen, load, registry_of, run_jobs
from tarry.edges.cli.pipeline.spark import progress_bar, spark_for
from tarry.edges.formats import delay, duration
from tarry.wire.base import data_of

SHORTEST_EVERY = timedelta(seconds=1)
OUTCOMES = ("offered", "acked", "nacked", "expired", "buried", "dropped")
FORMATS = ("json", "text", "binary")
Detectors = Annotated[str | None, option("--detectors MODULE:NAME", "A registry, or one detector to add to ours.")]
Zone = Annotated[str | None, option("--zone NAME", "Time zone of the queues' load, such as Europe/Berlin.")]
Holidays = Annotated[list[str] | None, option("--holiday DATE", "Compared with Sundays; may be repeated.")]


@command(
    "pipeline run",
    "tarry pipeline run",
    "tarry pipeline run archive metrics --lake s3a://lake/tarry",
    "tarry pipeline run --every 1m --prune --detectors shop.watch:registry",
)
def run(
    cli: CommandSession,
    jobs: Annotated[list[str] | None, argument("[JOB]...", "Only these jobs.")] = None,
    every: Annotated[str | None, option("--every DURATION", "Repeat, starting this far apart.")] = None,
    prune: Annotated[bool, option("--prune", "Also delete archived days from the journal.")] = False,
    detectors: Detectors = None,
    zone: Zone = None,
    holiday: Holidays = None,
    lake: Lake = None,
    master: Master = None,
) -> ExitCode:
    """Run the jobs of the pipeline.

    Archive, facts, metrics, consumers, anomalies and forecast, in this order, and compact where eight batches of similar
    size have accumulated. With --every all rounds share one Spark session, and a failed job is reported and retried in the
    next round. The exit code is 6 if some jobs failed, 1 if all did.
    """
    more: dict[str, dict[str, Any]] = {} if jobs else {"compact": {"gradual": True}}
    names = chosen(jobs or (), prune=prune)
    if registry := registry_of(detectors, zone, holiday or ()):
        more["anomalies"] = {"registry": registry}
    period = parsed(duration, every, "--every")
    if period is not None and period < SHORTEST_EVERY:
        raise Usage(f"--every must be at least 1s, got {every}")
    return run_jobs(cli, {name: {"lake": lake, **more.get(name, {})} for name in names}, master, every=period)


def _command_of_job(name: str, help: str, *examples: str) -> None:
    """A command for a job without specific options."""

    def job(cli: CommandSession, lake: Lake = None, master: Master = None) -> ExitCode:
        return run_jobs(cli, {name: {"lake": lake}}, master)

    job.__doc__ = help
    command(f"pipeline {name}", *examples)(job)


_command_of_job(
    "archive",
    """Copy new events of the journal to the archive.

    Incremental, and safe to interrupt: the next run continues. Each batch is read back and compared with the journal
    before it counts.
    """,
    "tarry pipeline archive",
    "tarry pipeline archive --lake /srv/lake",
)
_command_of_job(
    "facts",
    """Compute the history of every message from the archive.

    One row per version: how long it waited, how often it was tried, how it ended. Later jobs use these rows.
    """,
    "tarry pipeline facts",
)


def _days(since: str | None, until: str | None) -> tuple[date, date] | None:
    if since is None and until is None:
        return None
    try:
        first, last = date.fromisoformat(since or until or ""), date.fromisoformat(until or since or "")
    except ValueError:
        raise Usage("--since and --until must be days", hint="write them like 2026-12-25") from None
    if last < first:
        raise Usage(f"--until {last} is before --since {first}")
    return first, last


Since = Annotated[str | None, option("--since DAY", "Publish again what is known of this day and later ones.")]
Until = Annotated[str | None, option("--until DAY", "The last one; default: only the day of --since.")]


@command("pipeline metrics", "tarry pipeline metrics", "tarry pipeline metrics --since 2026-12-24 --until 2026-12-26")
def metrics(
    cli: CommandSession, since: Since = None, until: Until = None, lake: Lake = None, master: Master = None
) -> ExitCode:
    """Compute metrics per queue and minute from the archive.

    Counts, depth, and percentiles of lag, wait and processing time. Late events are added to their minute.
    """
    return run_jobs(cli, {"metrics": {"lake": lake, "days": _days(since, until)}}, master)


@command("pipeline consumers", "tarry pipeline consumers")
def consumers(
    cli: CommandSession, since: Since = None, until: Until = None, lake: Lake = None, master: Master = None
) -> ExitCode:
    """Compute metrics per consumer and hour from the archive.

    Leased, acked, failed, expired, success rate, share of the work and processing time.
    """
    return run_jobs(cli, {"consumers": {"lake": lake, "days": _days(since, until)}}, master)


@command(
    "pipeline anomalies",
    "tarry pipeline anomalies --zone Europe/Berlin --holiday 2026-12-25",
    "tarry pipeline anomalies --detectors shop.watch:registry",
)
def anomalies(
    cli: CommandSession,
    detectors: Detectors = None,
    zone: Zone = None,
    holiday: Holidays = None,
    lake: Lake = None,
    master: Master = None,
) -> ExitCode:
    """Detect anomalies, and explain them.

    Rules and statistical detectors run on new events of the archive. Acknowledged and muted anomalies are not raised.
    Hours of the week, for usual values, are local to --zone, else UTC.
    """
    registry = registry_of(detectors, zone, holiday or ())
    return run_jobs(cli, {"anomalies": {"lake": lake, "registry": registry}}, master)


_command_of_job(
    "forecast",
    """Forecast the load of the next seven days.

    What is due per minute, compared with the recent throughput of consumers.
    """,
    "tarry pipeline forecast",
)
_command_of_job(
    "compact",
    """Merge small files of the archive.

    The rows stay the same, and readers see each of them once.
    """,
    "tarry pipeline compact",
)


@command("pipeline prune", "tarry pipeline prune", "tarry pipeline prune --retention -o json")
def prune(
    cli: CommandSession,
    retention: Annotated[
        bool, option("--retention", "Also delete archived days beyond their queue's retention.")
    ] = False,
    lake: Lake = None,
    master: Master = None,
) -> ExitCode:
    """Delete archived days from the journal.

    Only whole days, never today, that every lake has in full and equal to the journal. With --retention, days that are
    older than the retention of their queue and no longer in the journal are deleted from the lake for good.
    """
    return run_jobs(cli, {"prune": {"lake": lake, "retention": retention}}, master)


@command(
    "pipeline forget",
    "tarry pipeline forget orders order-17",
    "tarry pipeline forget orders order-17 --yes",
    audited=True,
)
def forget(
    cli: CommandSession,
    queue: Annotated[str, argument("QUEUE", "The queue of the key, by its current or a former name.")],
    key: Annotated[str, argument("KEY", "The key to erase.")],
    yes: Yes = False,
    master: Master = None,
) -> None:
    """Erase the history of a key.

    From the journal, from every lake with all its tables and earlier versions, and from published anomalies. Counts and
    percentiles stay. Refused while the message is live or dead. After an interruption, run it again. The audit has a hash of
    the key.
    """
    module = load("forget")
    if cli.audited is not None:
        detail = {**(cli.audited.detail or {}), "key": f"sha256 {module.hash_of(key)}"}
        cli = replace(cli, audited=replace(cli.audited, detail=detail))
    cli.confirm(f"Erase the history of {key!r:.80} in {queue}, for good?", yes=yes)
    with cli.open() as app, spark_for(cli, app, master) as spark, progress_bar(cli, spark, "forget"):
        summary = module.run(spark, app, arguments(module, {"queue": queue, "key": key}))
        cli.audited_after.update(journal=str(summary.journal), archived=str(summary.archived))
    if cli.printer.for_people:
        cli.printer.lines([str(summary.line())])
    else:
        cli.printer.record("tarry.pipeline.forget/1", data_of(summary), ())


@dataclass(frozen=True)
class ReplayOptions:
    """Arguments of the job, by their names there."""

    queue: Annotated[str, argument("QUEUE", "The queue of the messages.")]
    outcome: Annotated[str, option("--outcome O", f"{', '.join(OUTCOMES)}.")] = "offered"
    since: Annotated[str | None, option("--since TIME", "The outcome was at this time or later.")] = None
    until: Annotated[str | None, option("--until TIME", "The outcome was before this time.")] = None
    keys: Annotated[list[str] | None, option("--key KEY", "Only this key; may be repeated.")] = None
    key_prefix: Annotated[str | None, option("--key-prefix P", "Keys that begin with this.")] = None
    every_version: Annotated[
        bool, option("--every-version", "Every version of a key, as key@version; default: the last.")
    ] = False
    prefix: Annotated[str | None, option("--prefix P", "Before each new key; default replay/; '': the same keys.")] = (
        None
    )
    to_queue: Annotated[str | None, option("--to QUEUE", "Another queue; default: the same.")] = None
    after: Annotated[str | None, option("--after DURATION", "Due after this long; default: now.")] = None
    rate: Annotated[float | None, option("--rate N", "Due N per second; default: all at once.")] = None
    payload_format: Annotated[
        str | None, option("--payloads F", "json, text or binary, if the journal has no type.")
    ] = None
    skip_missing: Annotated[bool, option("--skip-missing", "Skip messages without an archived payload.")] = False
    write_id: Annotated[str | None, option("--name ID", "Another name, to repeat the same replay.")] = None
    dry_run: DryRun = False
    lake: Lake = None


@command(
    "pipeline replay",
    "tarry pipeline replay orders --outcome buried --dry-run",
    "tarry pipeline replay orders --since 2030-01-31T00:00:00Z --rate 50",
    "tarry pipeline replay orders --key order-17 --to orders-test",
)
def replay(cli: CommandSession, options: ReplayOptions, master: Master = None) -> ExitCode:
    """Offer archived messages again.

    They get new keys, and live messages are not changed. Repeating a replay changes nothing. Payloads are archived only
    for queues with --journal payloads.
    """
    payload_format = options.payload_format
    given = vars(options) | {
        "outcome": one_of(options.outcome, OUTCOMES, "--outcome"),
        # Instants only: the identity of a replay is derived from its arguments.
        "since": parsed(instant_of, options.since, "--since"),
        "until": parsed(instant_of, options.until, "--until"),
        "keys": tuple(options.keys) if options.keys else None,
        "after": parsed(delay, options.after, "--after"),
        "payload_format": None if payload_format is None else one_of(payload_format, FORMATS, "--payloads"),
    }
    return run_jobs(cli, {"replay": given}, master)


@command("verify", "tarry verify", "tarry verify --full", "tarry verify --lake s3a://lake/tarry -o json")
def verify(
    cli: CommandSession,
    full: Annotated[bool, option("--full", "Also read the files of days that were verified before.")] = False,
    lake: Lake = None,
    master: Master = None,
) -> ExitCode | None:
    """Compare archive, journal and live messages.

    Archive and journal together determine which messages must be live. Changes nothing. The exit code is 7 if a message
    is missing, duplicated or different; samples are shown. Files of days before today are compared with the journal
    once; after that, only their existence and size.
    """
    module = load("verify")
    with cli.open() as app, spark_for(cli, app, master) as spark, progress_bar(cli, spark, "verify"):
        summary = module.run(spark, app, arguments(module, {"lake": lake, "full": full}))
    if cli.printer.for_people:
        cli.printer.lines([Cell(str(summary.line()), "green" if summary.ok else "red")])
        for problem in summary.problems:
            cli.printer.lines([f"  {problem.what}", *(f"    {sample}" for sample in problem.samples)])
    else:
        cli.printer.record("tarry.verify/1", data_of(summary), ())
    return None if summary.ok else ExitCode.CHECK_FAILED
