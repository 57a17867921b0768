"""The data pipeline of a database, by DSN, for Spark's planner and tasks.

Part of the composition root, but separate from `app.py`: Spark starts two Python processes per read and write, and in each
of them importing all of Tarry took longer than the work itself.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tarry.edges.env import libpq_dsn

if TYPE_CHECKING:
    from tarry.storage.postgres.analytics import Pipeline


def pipeline_on(dsn: str) -> Pipeline:
    from tarry.storage.postgres.analytics import Pipeline

    return Pipeline(libpq_dsn(dsn))


@contextmanager
def kept_pipeline_on(dsn: str) -> Generator[Pipeline]:
    """`pipeline_on` with one reused connection, for a single polling thread."""
    from tarry.storage.postgres.analytics import Pipeline
    from tarry.storage.postgres.analytics.database import KeptDatabase

    database = KeptDatabase(libpq_dsn(dsn))
    try:
        yield Pipeline(database.dsn, database)
    finally:
        database.close()
