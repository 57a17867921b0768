"""tarry anomaly: list, ack, mute, unmute, mutes."""

import getpass
from dataclasses import replace
from typing import Annotated

from tarry.core.analytics.anomalies import Anomaly, Mute, Severity
from tarry.edges.cli.context import CommandSession, command, now_of
from tarry.edges.cli.exit_codes import NotFound, Usage
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import Limit, OnlyQueue, parsed
from tarry.edges.cli.output.printer import EntityView, TableColumn, entity_view
from tarry.edges.formats import duration, instant

_ANOMALIES: EntityView[Anomaly] = entity_view(
    "tarry.anomaly.list/1",
    "anomalies",
    TableColumn("id", right=True),
    TableColumn("at (UTC)", lambda anomaly: instant(anomaly.window_from)),
    TableColumn("severity", "severity.value", style={"critical": "red", "warning": "yellow", "info": "cyan"}),
    TableColumn("detector", style="bold"),
    TableColumn("queue"),
    TableColumn("explanation", "sentence"),
)
_MUTES: EntityView[Mute] = entity_view(
    "tarry.mute.list/1",
    "mutes",
    TableColumn("id", right=True),
    TableColumn("detector", lambda mute: mute.detector or "any"),
    TableColumn("queue", lambda mute: mute.queue or "any"),
    TableColumn("until", lambda mute: "unmuted" if mute.until is None else instant(mute.until)),
    TableColumn("reason"),
)


@command(
    "anomaly list",
    "tarry anomaly list",
    "tarry anomaly list --queue orders --severity critical",
    "tarry anomaly list --all -o jsonl",
)
def list_anomalies(
    cli: CommandSession,
    queue: OnlyQueue = None,
    detector: Annotated[str | None, option("--detector NAME", "Only this detector.")] = None,
    severity: Annotated[Severity | None, option("--severity S", "critical, warning or info.")] = None,
    last: Annotated[str, option("--last DURATION", "How far to look back.")] = "24h",
    everything: Annotated[bool, option("--all", "Also acknowledged ones.")] = False,
    limit: Limit = 50,
) -> None:
    """List anomalies, newest first.

    Each with a sentence that explains it; JSON also has the expected band, the score and a query for the evidence.
    """
    with cli.open() as app:
        anomalies = app.pipeline.anomalies.list(
            queue=queue,
            detector=detector,
            severity=severity,
            since=now_of(app) - duration(last, "--last"),
            acknowledged=None if everything else False,
            limit=limit,
        )
        has_run = anomalies or app.pipeline.manifest.last_runs(["anomalies"])
    empty = "no anomaly was found" if has_run else "the pipeline has not looked for anomalies yet: tarry pipeline run"
    cli.listing(_ANOMALIES, anomalies, empty=empty, limit=limit)


@command(
    "anomaly ack",
    "tarry anomaly ack 17 18",
    "tarry anomaly ack 17 --note 'deploy of 12:00'",
    "tarry anomaly ack 17 --false-positive",
    audited=True,
)
def ack(
    cli: CommandSession,
    ids: Annotated[list[int], argument("ID...", "See: tarry anomaly list.")],
    note: Annotated[str | None, option("--note TEXT", "Why it is no problem.")] = None,
    false_positive: Annotated[bool, option("--false-positive", "Do not raise similar ones for 90 days.")] = False,
) -> None:
    """Acknowledge anomalies.

    They are listed only with --all, and are not raised again. After a false positive, findings of the same detector, queue
    and consumer are not raised either, unless their score is higher.
    """
    with cli.open() as app:
        changed = app.pipeline.anomalies.acknowledge(ids, by=_user(), note=note, is_false_positive=false_positive)
    if not changed:
        raise NotFound("none of these anomalies exists and is open", hint="see: tarry anomaly list --all")
    cli.printer.record("tarry.anomaly.ack/1", {"acknowledged": changed})


@command(
    "anomaly mute",
    "tarry anomaly mute --detector large_payload --reason 'images'",
    "tarry anomaly mute --queue load-test --for 2h --reason 'load test'",
    audited=True,
)
def mute(
    cli: CommandSession,
    reason: Annotated[str, option("--reason TEXT", "Why; stored and shown.")],
    detector: Annotated[str | None, option("--detector NAME", "Only this detector.")] = None,
    queue: OnlyQueue = None,
    lasting: Annotated[str | None, option("--for DURATION", "Default: until unmuted.")] = None,
) -> None:
    """Stop raising anomalies of a detector or a queue.

    Applies from the next run on; raised anomalies stay. To list mutes: tarry anomaly mutes.
    """
    if detector is None and queue is None:
        raise Usage("neither a detector nor a queue was named", hint="give --detector, --queue or both")
    span = parsed(duration, lasting, "--for")
    with cli.open(queue) as app:
        until = None if span is None else now_of(app) + span
        mute = app.store.analytics.mute(detector=detector, queue=queue, until=until, reason=reason)
        muted = app.store.run(mute)
    cli.printer.view(replace(_MUTES, schema="tarry.anomaly.mute/1"), muted)


@command("anomaly unmute", "tarry anomaly unmute 3", audited=True)
def unmute(cli: CommandSession, id: Annotated[int, argument("ID", "See: tarry anomaly mutes.")]) -> None:
    """Remove a mute.

    Anomalies are raised again from the next run on.
    """
    with cli.open() as app:
        if not app.store.run(app.store.analytics.unmute(id)):
            raise NotFound(f"there is no mute {id}", hint="see: tarry anomaly mutes")
    cli.printer.record("tarry.anomaly.unmute/1", {"id": id})


@command("anomaly mutes", "tarry anomaly mutes")
def mutes(cli: CommandSession) -> None:
    """List active mutes and their reasons.

    The latest first.
    """
    with cli.open() as app:
        mutes = app.store.run(app.store.analytics.mutes())
    cli.listing(_MUTES, mutes, empty="nothing is muted")


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
