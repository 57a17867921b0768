"""The database side of the data pipeline, one module per concern, reached through the app or by a DSN alone.

Spark executors have only a DSN: a `Pipeline` opens no connection until one is needed. Spark starts new Python processes
for every read and write, each of which needs one of these modules: each is imported on first use.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

    @cached_property
    def reach(self) -> Reach:
        from tarry.storage.postgres.pipeline.reach import Reach

        return Reach(self.dsn)

    @cached_property
    def windows(self) -> PostgresWindows:
        from tarry.storage.postgres.pipeline.windows import PostgresWindows

        return PostgresWindows(self.reach)

    @cached_property
    def manifest(self) -> PostgresManifest:
        from tarry.storage.postgres.pipeline.manifest import PostgresManifest

        return PostgresManifest(self.reach)

    @cached_property
    def housekeeping(self) -> PostgresHousekeeping:
        from tarry.storage.postgres.pipeline.housekeeping import PostgresHousekeeping

        return PostgresHousekeeping(self.reach)

    @cached_property
    def sinking(self) -> PostgresSinking:
        from tarry.storage.postgres.pipeline.sinking import PostgresSinking

        return PostgresSinking(self.reach)

    @cached_property
    def serving(self) -> PostgresServing:
        from tarry.storage.postgres.pipeline.serving import PostgresServing

        return PostgresServing(self.reach)

    @cached_property
    def tracing(self) -> PostgresTracing:
        from tarry.storage.postgres.pipeline.tracing import PostgresTracing

        return PostgresTracing(self.reach)

    @cached_property
    def alerts(self) -> PostgresAlerts:
        from tarry.storage.postgres.pipeline.alerts import PostgresAlerts

        return PostgresAlerts(self.reach)
