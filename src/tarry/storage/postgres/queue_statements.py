"""The verbs of queues, one statement each."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tarry.core.events import JournalLevel
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.postgres.statement import Op, Row, Statement, sql
from tarry.storage.postgres.statements import by_bitmaps, retry_numbers, retry_of


def create(name: str, settings: QueueSettings, now: datetime | None) -> Statement[QueueInfo | None]:
    return Statement(sql("queue_create"), {"name": name, "now": now, **_settings(settings)}, _maybe_info)


def edit(name: str, settings: QueueSettings, only: frozenset[str], now: datetime | None) -> Statement[QueueInfo | None]:
    params = {"name": name, "only": sorted(only), "now": now, **_settings(settings)}
    return Statement(sql("queue_edit"), params, _maybe_info)


def renamed(name: str) -> Statement[str | None]:
    """The present name of the queue that was last called so, if any."""
    return Statement(sql("queue_renamed"), {"name": name}, lambda rows: rows[0][0] if rows else None)


def rename(name: str, new_name: str, now: datetime | None) -> Statement[QueueInfo | None]:
    return Statement(sql("queue_rename"), {"name": name, "new_name": new_name, "now": now}, _maybe_info)


def pause(name: str, *, paused: bool, reason: str | None, now: datetime | None) -> Statement[QueueInfo | None]:
    params = {"name": name, "paused": paused, "reason": reason, "now": now}
    return Statement(sql("queue_pause"), params, _maybe_info)


def info(name: str) -> Statement[QueueInfo | None]:
    return Statement(sql("queue_info"), {"name": name}, _maybe_info)


def infos() -> Statement[list[QueueInfo]]:
    return Statement(sql("queue_info"), {"name": None}, lambda rows: [_info(row) for row in rows])


def bounded_wait() -> Statement[None]:
    return Statement(sql("queue_patience"), {}, lambda rows: None)


def lock_writers() -> Statement[None]:
    return Statement(sql("queue_lock"), {}, lambda rows: None)


def is_empty(name: str) -> Statement[bool | None]:
    return Statement(sql("queue_is_empty"), {"name": name}, lambda rows: rows[0][0] if rows else None)


def delete(name: str, now: datetime | None) -> Statement[bool]:
    return Statement(sql("queue_delete"), {"name": name, "now": now}, bool)


def now(pinned: datetime | None) -> Statement[datetime]:
    return Statement(sql("now"), {"now": pinned}, lambda rows: rows[0][0])


def journal_is_foreign() -> Op[bool]:
    """In a transaction of its own: whether the journal came with a dump and was not adopted."""
    yield from by_bitmaps().run()
    return (yield from Statement(sql("journal_is_foreign"), {}, lambda rows: bool(rows[0][0])).run())


def journal_first_is_foreign() -> Statement[bool]:
    """The same of the first event only."""
    return Statement(sql("journal_first_is_foreign"), {}, lambda rows: bool(rows[0][0]))


def adopt_journal() -> Op[int]:
    """In a transaction of its own: give a journal that came with a dump to this server. How many events it has adopted."""
    yield from by_bitmaps().run()
    return (yield from Statement(sql("journal_adopt"), {}, lambda rows: rows[0][0]).run())


def journal_partitions(days: int) -> Statement[int]:
    return Statement(sql("journal_partitions"), {"days": days}, lambda rows: rows[0][0])


def _settings(settings: QueueSettings) -> dict[str, Any]:
    return {
        "lease_for": settings.lease_for.total_seconds(),
        "max_attempts": settings.max_attempts,
        "retry": retry_numbers(settings.retry),
        "journal": settings.journal.value,
        "retention_for": settings.retention_for.total_seconds(),
        "target_lag_for": settings.target_lag_for.total_seconds(),
    }


def _maybe_info(rows: list[Row]) -> QueueInfo | None:
    return _info(rows[0][:10]) if rows else None


def _info(row: Row) -> QueueInfo:
    name, lease_for, max_attempts, retry, journal, retention_for, target_lag_for, created_at, paused_at, reason = row
    return QueueInfo(
        name=name,
        settings=QueueSettings(
            lease_for=timedelta(seconds=lease_for),
            max_attempts=max_attempts,
            retry=retry_of(retry),
            journal=JournalLevel(journal),
            retention_for=timedelta(seconds=retention_for),
            target_lag_for=timedelta(seconds=target_lag_for),
        ),
        created_at=created_at,
        paused_at=paused_at,
        paused_reason=reason,
    )
