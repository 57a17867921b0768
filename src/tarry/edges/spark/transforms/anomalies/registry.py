"""The registry of detectors. It is an immutable value: a run uses the registry that it is given.

```python
@detector(name="night_offers", severity="warning")
def night_offers(context: DetectorContext) -> DataFrame: ...

registry = BUILT_IN.with_detector(night_offers).without("flash_message")
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from pyspark.sql import DataFrame

from tarry.core.analytics.anomalies import Severity
from tarry.core.analytics.calendar import UTC_CALENDAR, Calendar
from tarry.core.errors import InvalidInput
from tarry.edges.spark.sizing import Keep
from tarry.edges.spark.transforms.anomalies.context import DetectorContext
from tarry.edges.spark.transforms.anomalies.findings import FINDINGS, completed
from tarry.edges.spark.transforms.query import nothing, query


@dataclass(frozen=True)
class Detector:
    """A function from `DetectorContext` (and its settings, if any) to anomalies; see `findings.completed`.

    If its settings have `most_per_hour` and its rows `id`, only the first of an hour are kept, see `findings.limited`.
    """

    name: str
    severity: Severity
    function: Callable[..., DataFrame]
    settings: Any = None
    version: int = 1
    """Increment when the function's results change: anomalies found by older versions stay as they are."""
    kinds: frozenset[str] = frozenset()
    """Run the detector only if events of one of these kinds exist. Empty: always."""
    by_minute: bool = False
    """It judges `series` or `metrics`, which are complete from `minutes_since`: anomalies no longer found are withdrawn."""

    def find(self, context: DetectorContext) -> DataFrame:
        own = context.by(self.name)
        frame = self.function(own) if self.settings is None else self.function(own, self.settings)
        return completed(frame, self, own)


def detector(
    *,
    name: str,
    severity: Severity | str,
    settings: Any = None,
    version: int = 1,
    kinds: Iterable[str] = (),
    by_minute: bool = False,
) -> Callable[[Callable[..., DataFrame]], Detector]:
    """Make a function a detector. `settings` (a frozen dataclass) are passed as its second argument."""

    def made(function: Callable[..., DataFrame]) -> Detector:
        return Detector(name, Severity(severity), function, settings, version, frozenset(kinds), by_minute)

    return made


@dataclass(frozen=True)
class Registry:
    detectors: tuple[Detector, ...] = ()
    calendar: Calendar = UTC_CALENDAR
    """Which hours and days are comparable, for level detectors."""

    def __post_init__(self) -> None:
        names = [each.name for each in self.detectors]
        if twice := {name for name in names if names.count(name) > 1}:
            raise InvalidInput(f"two detectors are called {', '.join(sorted(twice))}")

    def __iter__(self) -> Iterator[Detector]:
        return iter(self.detectors)

    def __getitem__(self, name: str) -> Detector:
        if name not in self.names:
            raise InvalidInput(f"there is no detector {name!r}", hint=f"choose from {', '.join(self.names)}")
        return self.detectors[self.names.index(name)]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.detectors)

    def with_detector(self, *added: Detector) -> Registry:
        return replace(self, detectors=(*self.detectors, *added))

    def without(self, *names: str) -> Registry:
        gone = {self[name].name for name in names}
        return replace(self, detectors=tuple(each for each in self.detectors if each.name not in gone))

    def only(self, *names: str) -> Registry:
        return replace(self, detectors=tuple(self[name] for name in names))

    def with_settings(self, name: str, settings: Any) -> Registry:
        """The same detectors, one of them with other settings."""
        expected, given = (type(value).__qualname__ for value in (self[name].settings, settings))
        if given != expected:
            raise InvalidInput(f"the settings of {name} are {expected}, not {given}")
        return self.with_replaced(name, settings=settings)

    def with_severity(self, name: str, severity: Severity | str) -> Registry:
        return self.with_replaced(name, severity=Severity(severity))

    def with_replaced(self, name: str, **changes: Any) -> Registry:
        changed = self[name]
        detectors = tuple(replace(each, **changes) if each is changed else each for each in self.detectors)
        return replace(self, detectors=detectors)

    def with_calendar(self, zone: str, holidays: Iterable[date] = ()) -> Registry:
        """The same detectors with the local time of a zone, such as "Europe/Berlin". Holidays are compared with Sundays."""
        return replace(self, calendar=Calendar(zone, frozenset(holidays)))


def detected(context: DetectorContext, registry: Registry, kept: Keep = lambda frame: frame) -> DataFrame:
    """All anomalies found by the detectors of a registry. With `kept`, their plans can be cut: one plan of all detectors has
    the same frames many times, and renaming their columns takes longer than the work of few rows.
    """
    if not registry.detectors:
        raise InvalidInput("a registry without detectors finds nothing")
    findings = [kept(each.find(context)) for each in registry if context.has_any(each.kinds)]
    if not findings:
        return context.events.sparkSession.sql(nothing(FINDINGS))
    # One query: a chain of unions of frames would be analyzed again for every link.
    frames = {f"findings_{n}": frame for n, frame in enumerate(findings)}
    return query(" union all ".join(f"select * from {{{name}}}" for name in frames), None, **frames)  # noqa: S608
