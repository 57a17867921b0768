"""The database side of the data pipeline, one room per concern, reached through the app or by a DSN alone.

Spark's executors have nothing but a DSN: a `Pipeline` opens no connection until it is asked something.
"""

from __future__ import annotations

from tarry.storage.postgres.pipeline.alerts import PostgresAlerts
from tarry.storage.postgres.pipeline.housekeeping import PostgresHousekeeping
from tarry.storage.postgres.pipeline.manifest import PostgresManifest
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.pipeline.serving import PostgresServing
from tarry.storage.postgres.pipeline.sinking import PostgresSinking
from tarry.storage.postgres.pipeline.tracing import PostgresTracing
from tarry.storage.postgres.pipeline.windows import PostgresWindows


class Pipeline:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.reach = Reach(dsn)
        self.windows = PostgresWindows(self.reach)
        self.manifest = PostgresManifest(self.reach)
        self.housekeeping = PostgresHousekeeping(self.reach)
        self.sinking = PostgresSinking(self.reach)
        self.serving = PostgresServing(self.reach)
        self.tracing = PostgresTracing(self.reach)
        self.alerts = PostgresAlerts(self.reach)
