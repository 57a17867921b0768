"""tarry anomaly: what is unusual; say that you have seen it, or that you do not want to see it."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.edges.cli.exits import NotFound, Usage
from tarry.edges.cli.help import group
from tarry.edges.cli.output import Cell, Column
from tarry.edges.cli.session import Session, command
from tarry.edges.times import duration, exact, instant

if TYPE_CHECKING:
    from tarry.core.anomalies import Anomaly, Mute

app = group("anomaly", "Look at what is unusual, acknowledge it, mute it.")

_STYLES = {"critical": "red", "warning": "yellow", "info": "cyan"}
_COLUMNS = (
    Column("id", right=True),
    Column("at (UTC)"),
    Column("severity"),
    Column("detector", style="bold"),
    Column("queue"),
    Column("what"),
)
_MUTES = (Column("id", right=True), Column("detector"), Column("queue"), Column("until"), Column("reason"))


@command(
    app,
    "list",
    examples=(
        "tarry anomaly list",
        "tarry anomaly list --queue orders --severity critical",
        "tarry anomaly list --all -o jsonl",
    ),
)
def list_anomalies(
    cli: Session,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Of this queue.")] = None,
    detector: Annotated[str | None, typer.Option("--detector", metavar="NAME", help="Of this detector.")] = None,
    severity: Annotated[str | None, typer.Option("--severity", metavar="S", help="critical, warning or info.")] = None,
    last: Annotated[str, typer.Option("--last", metavar="DURATION", help="How far to look back.")] = "24h",
    everything: Annotated[bool, typer.Option("--all", help="Also what is acknowledged.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most this many.")] = 50,
) -> None:
    """List what the detectors found, the latest first.

    Each with a sentence that explains it; with JSON also the expected band, the score and a query that shows the evidence.
    """
    from tarry.core.anomalies import Severity

    if severity is not None and severity not in set(Severity):
        raise Usage(f"there is no severity {severity!r:.40}", hint="critical, warning or info")
    with cli.open() as opened:
        found = opened.pipeline.alerts.list(
            queue=queue,
            detector=detector,
            severity=None if severity is None else Severity(severity),
            since=opened.store.now() - duration(last, "--last"),
            acknowledged=None if everything else False,
            limit=limit,
        )
    cli.printer.listing("tarry.anomaly.list/1", {"anomalies": _data(found)}, _COLUMNS, [_row(one) for one in found])
    if not found:
        cli.note("nothing unusual was found")
    elif len(found) == limit:
        cli.note(f"the latest {limit:,}; there may be more: --limit")


@command(
    app, "ack", audited=True, examples=("tarry anomaly ack 17 18", "tarry anomaly ack 17 --note 'deploy of 12:00'")
)
def ack(
    cli: Session,
    ids: Annotated[list[int], typer.Argument(metavar="ID...", help="See: tarry anomaly list.")],
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Why it is all right.")] = None,
) -> None:
    """Say that somebody has seen an anomaly.

    It stays, and is no longer listed without --all. The same anomaly is not raised again.
    """
    with cli.open() as opened:
        changed = opened.pipeline.alerts.acknowledge(ids, by=_user(), note=note)
    if not changed:
        raise NotFound("none of these is there and open", hint="see: tarry anomaly list --all")
    cli.printer.record("tarry.anomaly.ack/1", {"acknowledged": changed}, [("acknowledged", str(changed))])


@command(
    app,
    "mute",
    audited=True,
    examples=(
        "tarry anomaly mute --detector large_payload --reason 'images'",
        "tarry anomaly mute --queue load-test --for 2h --reason 'load test'",
    ),
)
def mute(
    cli: Session,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; whoever wonders later will read it.")],
    detector: Annotated[str | None, typer.Option("--detector", metavar="NAME", help="This one; else any.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="This one; else any.")] = None,
    lasting: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="Else until unmuted.")] = None,
) -> None:
    """Do not raise anomalies of a detector or a queue.

    From the next run on. What has been raised already stays; see tarry anomaly mutes for what is muted.
    """
    if detector is None and queue is None:
        raise Usage("say what to mute", hint="--detector, --queue or both")
    span: timedelta | None = None if lasting is None else duration(lasting, "--for")
    with cli.open() as opened:
        if queue is not None:
            opened.queues.get(queue)
        until = None if span is None else opened.store.now() + span
        made = opened.pipeline.alerts.mute(detector=detector, queue=queue, until=until, reason=reason)
    cli.printer.record(
        "tarry.anomaly.mute/1", _mute_data(made), list(zip(_names(_MUTES), _mute_row(made), strict=True))
    )


@command(app, "unmute", audited=True, examples=("tarry anomaly unmute 3",))
def unmute(cli: Session, id: Annotated[int, typer.Argument(metavar="ID", help="See: tarry anomaly mutes.")]) -> None:
    """End a mute.

    The next run raises again what it finds.
    """
    with cli.open() as opened:
        if not opened.pipeline.alerts.unmute(id):
            raise NotFound(f"there is no mute {id}", hint="see: tarry anomaly mutes")
    cli.printer.record("tarry.anomaly.unmute/1", {"id": id}, [("unmuted", str(id))])


@command(app, "mutes", examples=("tarry anomaly mutes",))
def mutes(cli: Session) -> None:
    """List what is muted, and why.

    Those that are in force now, the latest first.
    """
    with cli.open() as opened:
        found = opened.pipeline.alerts.mutes()
    cli.printer.listing(
        "tarry.mute.list/1", {"mutes": [_mute_data(one) for one in found]}, _MUTES, [_mute_row(one) for one in found]
    )
    if not found:
        cli.note("nothing is muted")


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _data(found: Sequence[Anomaly]) -> list[dict[str, Any]]:
    from tarry.edges.plain import data_of

    return [data_of(one) for one in found]


def _row(one: Anomaly) -> list[str | Cell]:
    severity = Cell(one.severity.value, _STYLES[one.severity.value])
    return [str(one.id), instant(one.window_from), severity, one.detector, one.queue, one.sentence]


def _names(columns: Sequence[Column]) -> list[str]:
    return [column.title for column in columns]


def _mute_row(one: Mute) -> list[str | Cell]:
    until = "unmuted" if one.until is None else instant(one.until)
    return [str(one.id), one.detector or "any", one.queue or "any", until, one.reason]


def _mute_data(one: Mute) -> dict[str, Any]:
    return {
        "id": one.id,
        "detector": one.detector,
        "queue": one.queue,
        "until": exact(one.until),
        "reason": one.reason,
        "muted_at": exact(one.muted_at),
    }
