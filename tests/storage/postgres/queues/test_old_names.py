"""Queues with names that are no longer allowed: they can be listed, emptied, renamed and deleted."""

from __future__ import annotations

import psycopg
import pytest

import tarry
from tarry.core.errors import InvalidInput


@pytest.mark.parametrize("old", [".", ".."])
def test_a_queue_named_like_a_directory_can_still_be_renamed_or_deleted(database: str, old: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database, autocommit=True) as conn:
        for end in ("rename", "delete"):
            app.queue("q").offer("k", 1)
            conn.execute("update tarry.queue set name = %s where name = 'q'", (old,))
            assert app.queues.get(old).name == old
            assert app.queues.counts(old).ready.n == 1
            assert len(list(app.queues.export(old))) == 1
            with pytest.raises(InvalidInput):
                app.queue(old)
            if end == "rename":
                app.queues.rename(old, "new")
                assert app.queue("new").contains("k")
            else:
                app.queues.delete(old, force=True)
            assert old not in [queue.name for queue in app.queues.list()]
