"""Records the attempt limits of handlers with their queues, for `tarry queue list`."""

import logging
from collections.abc import Sequence
from contextlib import suppress

from tarry.core.errors import InvalidState, TarryError, UnknownQueue
from tarry.core.missing_queues import warn_of_polled
from tarry.services.worker.handlers import Source
from tarry.services.worker.runtime import Connected

_log = logging.getLogger("tarry.worker")


async def note_limits(app: Connected, sources: Sequence[Source]) -> None:
    """Record the limits. Errors are logged only: a worker without permission to change queues continues."""
    by_queue: dict[str, list[int | None]] = {}
    for source in sources:
        by_queue.setdefault(source.queue, []).append(source.max_attempts)
    for queue, limits in by_queue.items():
        most = None if None in limits else max(limit for limit in limits if limit is not None)
        try:
            if await _recorded(app, queue) != most:
                await app.queues.edit(queue, handler_max_attempts=most)
        except TarryError as error:
            _log.debug("the limit of the handlers of %s was not recorded: %s", queue, error)


async def _recorded(app: Connected, queue: str) -> int | None:
    try:
        info = await app.queues.get(queue)
    except UnknownQueue:
        if not app.store.settings.create_queues:
            raise
        with suppress(InvalidState):  # the first poll has created and logged it
            await app.queues.create(queue)
            warn_of_polled(queue)
        return None
    return info.settings.handler_max_attempts
