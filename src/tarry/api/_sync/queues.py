# Generated from src/tarry/api/queues.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.queues`."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import Any, Unpack

from tarry.api import transfer
from tarry.api.queues import QueueChanges, checked, valid
from tarry.api.transfer import BadLine, Imported, Importing, OnBad
from tarry.api.validation import checked_text
from tarry.core import limits
from tarry.core._sync.ports import Store
from tarry.core.errors import TarryError
from tarry.core.messages.model import Counts, Filter, MessagePosition
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.wire.messages import OfferRequest


class Queues:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._role = store.queues

    def create(
        self, name: str, settings: QueueSettings = QueueSettings(), *, exist_ok: bool = False, conn: Any = None
    ) -> QueueInfo:
        return self._store.run(
            self._role.create(limits.check_queue_name(name), valid(settings), exist_ok=exist_ok), conn
        )

    def get(self, name: str, *, conn: Any = None) -> QueueInfo:
        return self._store.run(self._role.info(limits.check_existing_queue_name(name)), conn)

    def list(self, *, conn: Any = None) -> builtins.list[QueueInfo]:
        return self._store.run(self._role.infos(), conn)

    def edit(self, name: str, *, conn: Any = None, **changes: Unpack[QueueChanges]) -> QueueInfo:
        """Change the settings named, for example `edit("orders", lease_for=timedelta(minutes=2))`."""
        limits.check_queue_name(name)
        return self._store.run(self._role.edit(name, checked(changes), only=frozenset(changes)), conn=conn)

    def rename(self, name: str, new_name: str, *, conn: Any = None) -> QueueInfo:
        return self._store.run(
            self._role.rename(limits.check_existing_queue_name(name), limits.check_queue_name(new_name)), conn
        )

    def delete(self, name: str, *, force: bool = False, conn: Any = None) -> None:
        """Delete a queue. Refused while it has messages, including dead letters, unless `force` is set."""
        self._store.run(self._role.delete(limits.check_existing_queue_name(name), force=force), conn)

    def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> QueueInfo:
        why = checked_text(reason, "reason")
        return self._store.run(self._role.pause(limits.check_queue_name(name), reason=why), conn)

    def resume(self, name: str, *, conn: Any = None) -> QueueInfo:
        return self._store.run(self._role.resume(limits.check_queue_name(name)), conn)

    def counts(self, name: str, *, limit: int = 10_000, conn: Any = None) -> Counts:
        return self._store.run(
            self._role.counts(limits.check_existing_queue_name(name), limit=limits.check_count(limit, "limit")), conn
        )

    def export(self, name: str, *, conn: Any = None) -> Iterator[bytes]:
        """All live messages in due order, as JSON lines for `import_lines`. Read page by page, not in one snapshot:
        messages that change during the export may be missing or duplicated."""
        self.get(name, conn=conn)
        after: MessagePosition | None = None
        while True:
            page = self._store.run(
                self._store.messages.list(name, limit=transfer.PAGE, filter=Filter(after=after)), conn
            )
            for message in page:
                yield OfferRequest.of_stored(message).line()
            if len(page) < transfer.PAGE:
                return
            after = MessagePosition(page[-1].due_at, page[-1].version)

    def import_lines(
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
                importing.stored(self._store.run(self._store.messages.offer_many(name, batch), conn))
            except TarryError as error:
                importing.failed(error)
                raise
        return importing.imported()
