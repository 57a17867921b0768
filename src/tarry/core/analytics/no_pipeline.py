"""Empty pipeline results, for stores without a pipeline."""

from typing import Any, TypeVar

from tarry.core.analytics.anomalies import Mute
from tarry.core.analytics.manifest import ArchivedDay
from tarry.core.analytics.port import AnalyticsPage, AnalyticsQuery
from tarry.core.errors import InvalidState
from tarry.core.operation import Operation

R = TypeVar("R")


class NoPipeline:
    """`AnalyticsRole` except `events`, which the store implements."""

    def _result(self, value: R) -> Operation[R]:
        """An operation of the store that has this result."""
        raise NotImplementedError

    def _page(self, query: AnalyticsQuery, **filters: Any) -> Operation[AnalyticsPage[Any]]:
        return self._result(AnalyticsPage(rows=[]))

    def _nothing(self, *args: Any, **options: Any) -> Operation[Any]:
        return self._result(None)

    def _rows(self, *args: Any, **options: Any) -> Operation[list[Any]]:
        return self._result([])

    def lake_days(self, *, limit: int = 100) -> Operation[dict[str, list[ArchivedDay]]]:
        return self._result({})

    def mute(self, **options: Any) -> Operation[Mute]:
        raise InvalidState("nothing can be muted: this store has no data pipeline", hint="tarry serve on PostgreSQL")

    def unmute(self, id: int) -> Operation[bool]:
        return self._result(False)

    minutes = hours = forecasts = anomalies = _page
    anomaly = acknowledge = _nothing
    mutes = bands = runs = last_runs = lake_files = _rows
