"""The database side of the data pipeline, one module per concern, available through the app or a DSN.

Spark executors have only a DSN: a `Pipeline` connects on first use. Spark starts new Python processes for every read and
write, and each needs only one of these modules, so modules are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tarry.storage.postgres.analytics.database import Database

if TYPE_CHECKING:
    from tarry.storage.postgres.analytics.archive.manifest import PostgresManifest
    from tarry.storage.postgres.analytics.retention.store import PostgresRetention
    from tarry.storage.postgres.analytics.sink.bulk_offer import PostgresSink
    from tarry.storage.postgres.analytics.store import PipelineAnalytics, PostgresAnomalies, PostgresRounds
    from tarry.storage.postgres.analytics.windows.live_tables import PostgresLiveTables
    from tarry.storage.postgres.analytics.windows.reader import PostgresWindows

_ROLES = {
    "analytics": ("store", "PipelineAnalytics"),
    "anomalies": ("store", "PostgresAnomalies"),
    "live_tables": ("windows.live_tables", "PostgresLiveTables"),
    "manifest": ("archive.manifest", "PostgresManifest"),
    "retention": ("retention.store", "PostgresRetention"),
    "rounds": ("store", "PostgresRounds"),
    "sink": ("sink.bulk_offer", "PostgresSink"),
    "windows": ("windows.reader", "PostgresWindows"),
}


class Pipeline:
    analytics: PipelineAnalytics
    anomalies: PostgresAnomalies
    live_tables: PostgresLiveTables
    manifest: PostgresManifest
    retention: PostgresRetention
    rounds: PostgresRounds
    sink: PostgresSink
    windows: PostgresWindows

    def __init__(self, dsn: str, database: Database | None = None) -> None:
        self.dsn = dsn
        self.database = Database(dsn) if database is None else database

    def __getattr__(self, name: str) -> Any:
        """Import and create a role when it is used first."""
        if name not in _ROLES:
            raise AttributeError(name)
        module, role = _ROLES[name]
        setattr(self, name, getattr(import_module(f"{__name__}.{module}"), role)(self.database))
        return self.__dict__[name]
