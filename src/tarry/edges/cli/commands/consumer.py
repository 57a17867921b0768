"""tarry consumer: list, drain."""

from datetime import datetime
from typing import Annotated

from tarry.core.workers.model import REPORT_EVERY, RunningWorker
from tarry.edges.cli.context import CommandSession, command, now_of
from tarry.edges.cli.exit_codes import NotFound
from tarry.edges.cli.help import argument
from tarry.edges.cli.options import OnlyQueue
from tarry.edges.cli.output.printer import Ago, EntityView, TableColumn, entity_view


def _state(worker: RunningWorker, now: datetime) -> str:
    if worker.is_late(now):
        return "probably gone"
    return "draining" if worker.drain_at or worker.is_stopping else "running"


def _view(now: datetime) -> EntityView[RunningWorker]:
    return entity_view(
        "tarry.consumer.list/1",
        "workers",
        TableColumn("consumer", style="bold"),
        TableColumn("host"),
        TableColumn("pid", right=True),
        TableColumn("state", lambda worker: _state(worker, now)),
        TableColumn("queues", lambda worker: ", ".join(worker.queues)),
        TableColumn("running", lambda worker: f"{worker.running} of {worker.concurrency}", right=True),
        TableColumn("extended", "extensions", right=True),
        TableColumn("skew", lambda worker: f"{worker.skew.total_seconds():+.1f}s", right=True),
        TableColumn("version"),
        TableColumn("release"),
        TableColumn("reported", lambda worker: Ago(worker.seen_at)),
    )


@command("consumer list", "tarry consumer list", "tarry consumer list --queue orders -o json")
def list_workers(cli: CommandSession, queue: OnlyQueue = None) -> None:
    """List running workers, with their hosts, versions and clocks.

    A worker reports every 15 seconds, and is listed until it stops, or for 15 minutes after its last report.
    """
    with cli.open() as app:
        workers, now = app.store.run(app.store.workers.list()), now_of(app)
    shown = [worker for worker in workers if queue is None or queue in worker.queues]
    cli.listing(_view(now), shown, now=now, empty="no worker reports; to start one: tarry worker MODULE:WORKER")


@command("consumer drain", "tarry consumer drain host-1:4711", audited=True)
def drain(cli: CommandSession, consumer: Annotated[str, argument("CONSUMER", "See: tarry consumer list.")]) -> None:
    """Let workers of this name finish their messages and stop.

    Like SIGTERM, but from any machine; it takes effect with their next report. A service manager may start new processes.
    """
    with cli.open() as app:
        drained = app.store.run(app.store.workers.drain(consumer))
    if not drained:
        raise NotFound(f"no worker is named {consumer!r:.100}", hint="see: tarry consumer list")
    cli.printer.record("tarry.consumer.drain/1", {"consumer": consumer, "workers": drained})
    cli.note(f"within {REPORT_EVERY.total_seconds():g} s")
