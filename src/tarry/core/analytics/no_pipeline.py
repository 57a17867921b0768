"""The results of the pipeline on a store without one: there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tarry.core.analytics.anomalies import Mute
from tarry.core.analytics.manifest import ArchivedDay
from tarry.core.analytics.port import AnalyticsPage, AnalyticsQuery
from tarry.core.errors import InvalidState


class NoPipeline:
    """`Analytics` without `events`, which the store has."""

    async def _page(self, query: AnalyticsQuery, **filters: Any) -> AnalyticsPage[Any]:
        return AnalyticsPage(rows=[])

    async def _nothing(self, *args: Any, **options: Any) -> Any:
        return None

    async def _rows(self, *args: Any, **options: Any) -> list[Any]:
        return []

    async def _lakes(self, *, limit: int = 100) -> Mapping[str, list[ArchivedDay]]:
        return {}

    async def _not_muted(self, **options: Any) -> Mute:
        raise InvalidState("nothing can be muted: this store has no data pipeline", hint="tarry serve on PostgreSQL")

    async def unmute(self, id: int) -> bool:
        return False

    minutes = hours = forecasts = anomalies = _page
    anomaly = acknowledge = _nothing
    mutes = bands = runs = last_runs = lake_files = _rows
    lake_days, mute = _lakes, _not_muted
