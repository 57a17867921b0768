"""The list of queues, which two screens have."""

from __future__ import annotations

from collections.abc import Sequence

from tarry.edges.dashboard.commands import path
from tarry.edges.dashboard.listing import Column, Listing
from tarry.services.overview import QueueRow


def state_of(row: QueueRow) -> str:
    if row.health.info.paused:
        return "paused"
    return min((finding.severity.value for finding in row.health.findings), default="good")


COLUMNS = (
    Column("queue", "Queue", value=lambda row: row.name, href=lambda row: path("queues", row.name)),
    Column("state", "State", "state", value=state_of),
    Column("acked_per_s", "Acked", "number", value=lambda row: round(row.health.acked_per_s, 3)),
    Column("offered_per_s", "Offered", "number", value=lambda row: round(row.health.offered_per_s, 3)),
    Column("delayed", "Delayed", "number", value=lambda row: row.health.standing.counts.delayed.n),
    Column("ready", "Ready", "number", value=lambda row: row.health.standing.counts.ready.n),
    Column("leased", "Leased", "number", value=lambda row: row.health.standing.counts.leased.n),
    Column("dead", "Dead", "number", value=lambda row: row.health.standing.dead.n),
    Column("lag_for", "Oldest", "duration", value=lambda row: row.health.standing.counts.lag_for),
    Column("lag_p95_s", "Lag p95", "duration", value=lambda row: row.health.lag.p95),
    Column("target_lag_for", "Target", "duration", value=lambda row: row.health.info.settings.target_lag_for),
    Column("failed_share", "Failed", "number", value=lambda row: row.health.failed_share),
    Column("consumers", "Consumers", "number", value=lambda row: row.health.consumers),
    Column("drained_for", "Drained in", "duration", value=lambda row: row.health.drained_for),
)


def queue_listing(rows: Sequence[QueueRow], next: str | None = None) -> Listing:
    return Listing(columns=COLUMNS, rows=rows, next=next, name="queues")
