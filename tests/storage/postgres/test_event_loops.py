"""An awaiting store whose pool belongs to the event loop that opened it."""

from __future__ import annotations

import asyncio

import pytest

from tarry.core.errors import InvalidState
from tarry.storage.postgres.store import AsyncPostgresStore


def test_close_in_another_event_loop_is_refused_and_closes_nothing(database: str) -> None:
    store = AsyncPostgresStore(database)
    with asyncio.Runner() as first:
        first.run(store.open())
        with pytest.raises(InvalidState, match="this store belongs to another event loop"):
            asyncio.run(store.close())
        assert first.run(store.run(store.queues.infos())) == []
        first.run(store.close())
