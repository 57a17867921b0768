"""tarry pipeline: the data pipeline, one job or all of them, once or again and again."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from tarry.edges.cli.exits import ExitCode, Usage
from tarry.edges.cli.help import group
from tarry.edges.cli.pipeline_jobs import WORTH_MERGING, Job, chosen, registry_of
from tarry.edges.cli.session import Session, command
from tarry.edges.times import duration

app = group("pipeline", "Archive, measure and watch queues in bulk, with Spark.")

SHORTEST_EVERY = timedelta(seconds=1)

Lake = Annotated[
    str | None,
    typer.Option(
        "--lake", metavar="URI", help="A path or any URI that Spark can write; else beside the embedded data."
    ),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="M", help="Else SPARK_MASTER, else all cores of this machine.")
]

Detectors = Annotated[
    str | None,
    typer.Option("--detectors", metavar="MODULE:NAME", help="A registry of your own, or one detector beside ours."),
]


@command(
    app,
    "run",
    examples=(
        "tarry pipeline run",
        "tarry pipeline run archive metrics --lake s3a://lake/tarry",
        "tarry pipeline run --every 1m --prune --detectors shop.watch:registry",
    ),
)
def run(
    cli: Session,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="These only; else all.")] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="DURATION", help="Again and again, this far apart.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also drop from the journal what is safe in the archive.")
    ] = False,
    detectors: Detectors = None,
    lake: Lake = None,
    master: Master = None,
) -> ExitCode:
    """Run the jobs of the pipeline, each on the last.

    Archive, facts, metrics, consumers, anomalies, forecast, in this order, and compact once 60 small batches have come
    together. With --every one Spark session serves all rounds, and a job that fails is reported and tried again in the
    next. Ends with 6 if some jobs failed, 1 if all did.
    """
    from tarry.edges.cli.pipeline_run import run_jobs

    more = {"compact": {"at_least": WORTH_MERGING}} if not jobs else {}
    names = chosen(jobs or (), prune=prune)
    if detectors is not None:
        more["anomalies"] = {"registry": registry_of(detectors)}
    given = [Job(name, {"lake": lake, **more.get(name, {})}) for name in names]
    return run_jobs(cli, given, master=master, every=_every(every))


def _every(text: str | None) -> timedelta | None:
    if text is None:
        return None
    found = duration(text, "--every")
    if found < SHORTEST_EVERY:
        raise Usage("--every is at least a second")
    return found


def _single(name: str, doc: str, examples: tuple[str, ...]) -> None:
    def one(cli: Session, lake: Lake = None, master: Master = None) -> ExitCode:
        from tarry.edges.cli.pipeline_run import run_jobs

        return run_jobs(cli, [Job(name, {"lake": lake})], master=master, every=None)

    one.__doc__ = doc
    command(app, name, examples=examples)(one)


@command(
    app,
    "archive",
    examples=(
        "tarry pipeline archive",
        "tarry pipeline archive --lake /srv/lake",
        "tarry pipeline archive --delta",
    ),
)
def archive(
    cli: Session,
    delta: Annotated[
        bool, typer.Option("--delta", help="Begin a Delta log beside the files; it is kept from then on.")
    ] = False,
    lake: Lake = None,
    master: Master = None,
) -> ExitCode:
    """Move new events of the journal into the archive.

    Incremental, and safe to interrupt at any point: the next run goes on where this one stopped. Each batch is read back
    and compared with the journal before it counts.
    """
    from tarry.edges.cli.pipeline_run import run_jobs

    return run_jobs(cli, [Job("archive", {"lake": lake, "delta": delta})], master=master, every=None)


_single(
    "facts",
    """Work out the life of every message, from the archive.

    One row per version: how long it waited, how often it was tried, how it ended. The jobs after it build on these rows.
    """,
    ("tarry pipeline facts",),
)
_single(
    "metrics",
    """Work out what happened per queue and minute.

    Counts, depth, and percentiles of lag, wait and processing time, from the archive. Days that late events touch are
    worked out again.
    """,
    ("tarry pipeline metrics", "tarry pipeline metrics --master 'local[2]'"),
)
_single(
    "consumers",
    """Work out what each consumer did per hour.

    Leased, acked, failed, expired, success rate, share of the work and processing time, from the archive.
    """,
    ("tarry pipeline consumers",),
)


@command(
    app, "anomalies", examples=("tarry pipeline anomalies", "tarry pipeline anomalies --detectors shop.watch:registry")
)
def anomalies(cli: Session, detectors: Detectors = None, lake: Lake = None, master: Master = None) -> ExitCode:
    """Look for what is unusual, and explain it.

    The rules and the statistical detectors, over what is new in the archive. What you acknowledged or muted stays quiet.
    """
    from tarry.edges.cli.pipeline_run import run_jobs

    registry = None if detectors is None else registry_of(detectors)
    return run_jobs(cli, [Job("anomalies", {"lake": lake, "registry": registry})], master=master, every=None)


_single(
    "forecast",
    """Tell the load of the next seven days.

    A delayed queue knows its future: what comes due per minute, against what consumers lately managed.
    """,
    ("tarry pipeline forecast",),
)
_single(
    "compact",
    """Merge small files of the archive.

    The rows stay the same, and readers never see them twice or not at all.
    """,
    ("tarry pipeline compact",),
)


@command(app, "prune", examples=("tarry pipeline prune", "tarry pipeline prune --retention -o json"))
def prune(
    cli: Session,
    retention: Annotated[
        bool, typer.Option("--retention", help="Also delete from the lake what its queue no longer wants kept.")
    ] = False,
    lake: Lake = None,
    master: Master = None,
) -> ExitCode:
    """Drop from the journal what is safe in the archive.

    Only whole days, never today, that every lake has in full and equal to the journal. With --retention the lake lets go of
    days, too, that are older than the retention of their queue and have left the journal: these events are gone for good.
    """
    from tarry.edges.cli.pipeline_run import run_jobs

    return run_jobs(cli, [Job("prune", {"lake": lake, "retention": retention})], master=master, every=None)
