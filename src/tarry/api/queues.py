"""The registry of queues: their settings, and operations on whole queues."""

import builtins
import dataclasses
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from tarry.api import transfer
from tarry.api.transfer import BadLine, Imported, Importing, OnBad
from tarry.api.validation import checked_text
from tarry.core import limits
from tarry.core.errors import InvalidInput, TarryError
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.model import Counts, Filter, MessagePosition
from tarry.core.messages.retry import Retry
from tarry.core.ports import AsyncStore
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.wire.messages import OfferRequest


class QueueChanges(TypedDict, total=False):
    """Settings of a queue that an edit changes; absent ones stay."""

    lease_for: timedelta
    max_attempts: int | None
    retry: Retry
    journal: JournalLevel
    retention_for: timedelta
    target_lag_for: timedelta
    max_depth: int | None
    description: str | None
    handler_max_attempts: int | None


def checked(changes: QueueChanges) -> QueueSettings:
    """Validated changes. Each setting is valid or not independently of the others."""
    try:
        return QueueSettings(**changes)
    except TypeError:
        allowed = {field.name for field in dataclasses.fields(QueueSettings)}
        unknown = ", ".join(sorted(changes.keys() - allowed))
        raise InvalidInput(f"a queue has no setting {unknown}; there are {', '.join(sorted(allowed))}") from None


def valid(settings: object) -> QueueSettings:
    if not isinstance(settings, QueueSettings):
        raise InvalidInput(
            f"settings must be tarry.QueueSettings, not {type(settings).__name__}",
            hint="give QueueSettings(lease_for=…), or leave it out for the defaults",
        )
    return settings


class AsyncQueues:
    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._role = store.queues

    async def create(
        self, name: str, settings: QueueSettings = QueueSettings(), *, exist_ok: bool = False, conn: Any = None
    ) -> QueueInfo:
        return await self._store.run(
            self._role.create(limits.check_queue_name(name), valid(settings), exist_ok=exist_ok), conn
        )

    async def get(self, name: str, *, conn: Any = None) -> QueueInfo:
        return await self._store.run(self._role.info(limits.check_existing_queue_name(name)), conn)

    async def list(self, *, conn: Any = None) -> builtins.list[QueueInfo]:
        return await self._store.run(self._role.infos(), conn)

    async def edit(self, name: str, *, conn: Any = None, **changes: Unpack[QueueChanges]) -> QueueInfo:
        """Change the settings named, for example `edit("orders", lease_for=timedelta(minutes=2))`."""
        limits.check_queue_name(name)
        return await self._store.run(self._role.edit(name, checked(changes), only=frozenset(changes)), conn=conn)

    async def rename(self, name: str, new_name: str, *, conn: Any = None) -> QueueInfo:
        return await self._store.run(
            self._role.rename(limits.check_existing_queue_name(name), limits.check_queue_name(new_name)), conn
        )

    async def delete(self, name: str, *, force: bool = False, conn: Any = None) -> None:
        """Delete a queue. Refused while it has messages, including dead letters, unless `force` is set."""
        await self._store.run(self._role.delete(limits.check_existing_queue_name(name), force=force), conn)

    async def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> QueueInfo:
        why = checked_text(reason, "reason")
        return await self._store.run(self._role.pause(limits.check_queue_name(name), reason=why), conn)

    async def resume(self, name: str, *, conn: Any = None) -> QueueInfo:
        return await self._store.run(self._role.resume(limits.check_queue_name(name)), conn)

    async def counts(self, name: str, *, limit: int = 10_000, conn: Any = None) -> Counts:
        return await self._store.run(
            self._role.counts(limits.check_existing_queue_name(name), limit=limits.check_count(limit, "limit")), conn
        )

    async def export(self, name: str, *, conn: Any = None) -> AsyncIterator[bytes]:
        """All live messages in due order, as JSON lines for `import_lines`. Read page by page, not in one snapshot:
        messages that change during the export may be missing or duplicated."""
        await self.get(name, conn=conn)
        after: MessagePosition | None = None
        while True:
            page = await self._store.run(
                self._store.messages.list(name, limit=transfer.PAGE, filter=Filter(after=after)), conn
            )
            for message in page:
                yield OfferRequest.of_stored(message).line()
            if len(page) < transfer.PAGE:
                return
            after = MessagePosition(page[-1].due_at, page[-1].version)

    async def import_lines(
        self,
        name: str,
        lines: Iterable[bytes | BadLine],
        *,
        on_bad: OnBad = "skip",
        dry_run: bool = False,
        conn: Any = None,
    ) -> Imported:
        """Offer every line, in atomic batches. A file opened in binary mode is valid input."""
        importing = Importing(self._store.settings.payload_limit, on_bad=on_bad, dry_run=dry_run)
        limits.check_queue_name(name)
        for batch in importing.batches(lines):
            try:
                importing.stored(await self._store.run(self._store.messages.offer_many(name, batch), conn))
            except TarryError as error:
                importing.failed(error)
                raise
        return importing.imported()
