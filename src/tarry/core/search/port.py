"""The role of a store for searching: reads over many queues, each of which scans a bounded number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tarry.core.messages.model import Counted, MessagePosition, StoredMessage
from tarry.core.operation import Operation
from tarry.core.search.query import Search

WALK = 10_000
"""Messages that one search may scan, shared by its queues; per priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """A page in due order."""

    messages: list[StoredMessage[bytes]]
    matching: Counted
    """How many match, of those that were scanned; `capped`: not all were scanned."""
    scanned: int
    horizon: MessagePosition | None = None
    """Where the scan ended, if it did not reach the end: the next page begins there."""


class SearchRole(Protocol):
    def messages(
        self,
        search: Search,
        queues: Sequence[str],
        *,
        limit: int = 50,
        after: MessagePosition | None = None,
        payloads: bool = False,
    ) -> Operation[SearchPage]:
        """Live messages of these queues. Terms about payloads are left to the caller. `payloads` False: they are empty."""
        ...

    def journal_since(self) -> Operation[datetime | None]:
        """The beginning of the oldest day in the journal: what was before is in the archive only. None: not known."""
        ...
