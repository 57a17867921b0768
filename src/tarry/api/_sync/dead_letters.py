# Generated from src/tarry/api/dead_letters.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.dead_letters`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar, Unpack
from uuid import uuid4

from tarry.api._sync.redrives import Redrive
from tarry.api.decoding import decoded
from tarry.core import limits
from tarry.core._sync.ports import Store
from tarry.core.codecs import Codec
from tarry.core.dead_letters.redrive import (
    DeadFilter,
    DeadGroup,
    Matching,
    RedriveOptions,
    Where,
    check_canary,
    check_rate,
    check_stop_above,
)
from tarry.core.messages.model import DeadLetter

P = TypeVar("P")


class DeadLetters(Generic[P]):
    """`where` is any of fingerprint, type, died_from, died_to, key_prefix, versions; absent fields do not restrict."""

    def __init__(self, store: Store, queue: str, codec: Codec[P], consumer: str | None = None) -> None:
        self._store = store
        self._role = store.dead_letters
        self._queue = queue
        self._codec = codec
        self._consumer = consumer

    def groups(self, *, limit: int = 100, conn: Any = None) -> list[DeadGroup]:
        """Groups by fingerprint, the most recent group first."""
        return self._store.run(self._role.groups(self._queue, limit=limits.check_count(limit, "limit")), conn)

    def list(self, *, limit: int = 100, conn: Any = None, **where: Unpack[Where]) -> builtins.list[DeadLetter[P]]:
        """Newest first."""
        letters = self._role.list(self._queue, where=DeadFilter.of(where), limit=limits.check_count(limit, "limit"))
        return [decoded(letter, self._codec) for letter in self._store.run(letters, conn)]

    def get(self, version: int, *, conn: Any = None) -> DeadLetter[P] | None:
        """One dead letter by its version; None if it is no longer dead, or never was."""
        return next(iter(self.list(versions=[version], limit=1, conn=conn)), None)

    def count(self, *, limit: int = 10_000, conn: Any = None, **where: Unpack[Where]) -> Matching:
        """Count the letters that a redrive with this filter would take, and those blocked by a live key. Read-only."""
        return self._store.run(
            self._role.count(self._queue, where=DeadFilter.of(where), limit=limits.check_count(limit, "limit")), conn
        )

    def redrive(self, versions: Sequence[int] | None = None, *, limit: int = 1000, conn: Any = None) -> int:
        """Redrive these versions, or the oldest letters, with attempts reset. A letter whose key is live again stays dead."""
        named, limit = limits.check_versions(versions), limits.check_count(limit, "limit")
        return self._store.run(self._role.redrive(self._queue, versions=named, limit=limit), conn)

    def start_redrive(
        self,
        *,
        rate: float | None = None,
        canary: int = 0,
        jitter: timedelta | None = None,
        stop_above: float | None = None,
        max_attempts: int | None = None,
        target: str | None = None,
        after: timedelta | None = None,
        consumer: str | None = None,
        conn: Any = None,
        **where: Unpack[Where],
    ) -> Redrive:
        """Start a redrive job. It redrives `rate` messages per second: `canary` messages first, and the rest once those
        succeeded. `target`: another queue to redrive to. `after`: delay before the first message. `jitter`: each
        message is due at a random time within this. `stop_above`: pause if more than this share of the redriven
        messages died again. `max_attempts`: attempts of each redriven message, counted from the first; by default the
        message's previous limit.

        A sweeper advances the job, or calls to `advance`. It may be paused, resumed and cancelled at any time."""
        options = RedriveOptions(
            where=DeadFilter.of(where),
            rate=check_rate(rate),
            canary=check_canary(canary),
            jitter=limits.check_delay(jitter or timedelta(0), "jitter"),
            stop_above=check_stop_above(stop_above),
            max_attempts=limits.check_max_attempts(max_attempts),
            started_by=limits.check_consumer(consumer) or self._consumer,
            request=uuid4(),
            target=None if target is None else limits.check_queue_name(target),
            after=limits.check_delay(after or timedelta(0)),
        )
        return Redrive(self._store, self._store.run(self._role.start_redrive(self._queue, options), conn))

    def discard(self, *, conn: Any = None, **where: Unpack[Where]) -> int:
        """Discard dead letters: all, or those that match."""
        return self._store.run(self._role.discard(self._queue, where=DeadFilter.of(where)), conn=conn)
