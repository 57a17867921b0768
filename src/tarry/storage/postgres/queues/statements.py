"""Queue statements."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from tarry.core.errors import UnknownQueue
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.postgres.messages.statements import retry_numbers, retry_of
from tarry.storage.postgres.statement import Row, Statement, bind, first, value, value_or_none
from tarry.wire.base import data_of

LEFTOVERS = 5_000
"""Messages of a deleted queue that one statement removes."""


def create(name: str, settings: QueueSettings, now: datetime | None) -> Statement[QueueInfo | None]:
    """Create a queue; None if it exists."""
    return bind("queues/create", first(info_of), name=name, now=now, **settings_params(settings))


def current_name(name: str) -> Statement[str | None]:
    """The current name of the queue that had this name last, if any."""
    return bind("queues/current_name", value_or_none, name=name)


def remove_leftovers(queue: int | None, now: datetime | None) -> Statement[int]:
    """Remove messages of one queue that was deleted by force, or of any such queue."""
    return bind("queues/remove_leftovers", value, queue=queue, limit=LEFTOVERS, now=now)


def info(name: str) -> Statement[QueueInfo]:
    return bind("queues/info", known_info(name), name=name)


def settings_params(settings: QueueSettings) -> dict[str, Any]:
    return data_of(settings) | {"retry": retry_numbers(settings.retry)}


def known_info(name: str) -> Callable[[list[Row]], QueueInfo]:
    """Decoder for a queue that must exist."""

    def decode(rows: list[Row]) -> QueueInfo:
        if not rows:
            raise UnknownQueue(name)
        return info_of(rows[0])

    return decode


def info_of(row: Row) -> QueueInfo:
    columns = row._asdict()
    return msgspec.convert({**columns, "settings": columns | {"retry": retry_of(row.retry)}}, QueueInfo)
