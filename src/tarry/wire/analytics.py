"""Pipeline results: queue minutes, consumer hours, forecasts, anomalies, mutes.

Their JSON form is that of the core values. They need no structs, because no client converts them back.
"""

from typing import Annotated, Any, Self

from msgspec import Meta

from tarry.core.analytics.anomalies import Anomaly, Mute
from tarry.core.analytics.metrics import ConsumerHour, Forecast, MetricMinute
from tarry.wire.base import At, Duration, QueueName, Request, Response, data_of

Note = Annotated[str, Meta(max_length=1_000)]
Detector = Annotated[str, Meta(min_length=1, max_length=100)]


class AckRequest(Request):
    note: Annotated[Note | None, Meta(description="Why it needs no action.")] = None
    is_false_positive: Annotated[bool, Meta(description="Similar ones are not raised for 90 days.")] = False


class MuteRequest(Request, kw_only=True):
    detector: Annotated[Detector | None, Meta(description="Of this detector; else of any.")] = None
    queue: Annotated[QueueName | None, Meta(description="In this queue; else in any.")] = None
    mute_for: Annotated[Duration | None, Meta(description="Else until it is ended.")] = None
    reason: Annotated[str, Meta(min_length=1, max_length=1_000)]


class Run(Response):
    id: int
    started_at: At
    ended_at: At | None


class Results(Response):
    run: Annotated[Run | None, Meta(description="The last successful run of the job. null: it never ran.")]

    @classmethod
    def of(cls, value: Any, /, **fields: Any) -> Self:
        """`fields`: the name of the list, and the rows of the page."""
        run = None if value.run is None else Run.of(value.run)
        return super().of(value, run=run, **{name: data_of(rows) for name, rows in fields.items()})


class ResultsPage(Results, kw_only=True):
    next: Annotated[str | None, Meta(description="For `after`, if there may be more.")]


class Minutes(ResultsPage, kw_only=True):
    minutes: list[Annotated[MetricMinute, Meta(title="Minute")]]


class Consumers(ResultsPage, kw_only=True):
    consumers: list[ConsumerHour]


class Forecasts(Results, kw_only=True):
    forecasts: list[Forecast]


class Anomalies(ResultsPage, kw_only=True):
    anomalies: list[Anomaly]


class Mutes(Response):
    mutes: list[Mute]


class Unmuted(Response):
    id: int
    unmuted: bool
