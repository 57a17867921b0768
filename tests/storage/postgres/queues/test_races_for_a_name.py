"""A name that two processes give to a queue at the same time: the second one finds it taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tarry.core.errors import InvalidState
from tarry.core.settings import QueueSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tests.kit.sleepers import until

WAITS = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


def test_a_rename_to_a_name_that_is_being_given_away_finds_it_taken(database: str) -> None:
    store = PostgresStore(database)
    with psycopg.connect(database) as other, psycopg.connect(database, autocommit=True) as admin:
        for name in ("a", "b"):
            store.run(store.queues.create(name, QueueSettings(), exist_ok=False))
        other.execute("update tarry.queue set name = 'c' where name = 'b'")
        with ThreadPoolExecutor(1) as threads:
            renaming = threads.submit(store.run, store.queues.rename("a", "c"))
            until(lambda: admin.execute(WAITS).fetchone() is not None)
            other.commit()
            with pytest.raises(InvalidState, match="a queue named 'c' exists already"):
                renaming.result(30)
    store.close()
