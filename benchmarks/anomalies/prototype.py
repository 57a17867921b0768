"""The level detectors in NumPy: the same statistic as the queries of `levels/sql`, with the same settings, in seconds for a
world instead of a minute. Thresholds are selected with it; a test compares both.

Zones with whole hours only. A series is an array of minutes since the beginning; a longer sum has a value every five minutes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.anomalies.faults import START, World
from benchmarks.anomalies.scores import Incident
from tarry.core.analytics.calendar import Calendar

Values = npt.NDArray[np.float64]
COUNTS = ("offered", "acked", "failed")
SHORT = 5
SCALES = {**dict.fromkeys(COUNTS, (5, 15, 30)), "processing": (5, 15), "lag": (5, 15), "depth": (5,)}
FAR = 2.0
DAYS = 28
HOUR, DAY = 60, 1440
WEEK_HOURS = 168
PHASE = (np.arange(HOUR) - 29.5) / HOUR


@dataclass(frozen=True)
class Series:
    queue_id: int
    metric: str
    scale: int
    value: Values
    x: Values
    """On the scale on which it is judged, by date, hour and minute."""

    @property
    def stands_for(self) -> int:
        return 1 if self.scale == SHORT else 5


@dataclass(frozen=True)
class Scored:
    """The judged minutes of a series, and what is expected in them."""

    series: Series
    x: Values
    value: Values
    low_middle: Values
    high_middle: Values
    sigma: Values
    peak: Values
    trough: Values


def series_of(world: World) -> Iterator[Series]:
    end = _minute(world.until)
    dates = -(-end // DAY)
    lives = world.lives or ((START, None),) * len(world.queues)
    for (queue_id, _), (begin, until) in zip(world.queues, lives, strict=True):
        first, last = _minute(begin), end if until is None else min(end, _minute(until))
        rows = world.minutes.loc[world.minutes["queue_id"] == queue_id]
        at = ((rows["minute"].dt.tz_localize(None) - START.replace(tzinfo=None)) / pd.Timedelta(minutes=1)).to_numpy(
            int
        )
        life = rows.set_index(at).reindex(pd.RangeIndex(first, last))
        of_metric: dict[str, tuple[Any, Callable[[Values, int], Values]]] = {
            "offered": ((life["offered"] + life["updated"]).fillna(0), _sums),
            "acked": (life["acked"].fillna(0), _sums),
            "failed": ((life["nacked"] + life["expired"]).fillna(0), _sums),
            "processing": (life["processing_p95_s"], _medians),
            "lag": (life["lag_p95_s"], _medians),
            "depth": (life["depth"].ffill(), _medians),
        }
        for metric, (column, summed) in of_metric.items():
            for scale in SCALES[metric]:
                value = np.full(dates * DAY, np.nan)
                value[first:last] = summed(column.to_numpy(float), scale)
                if scale > SHORT:
                    value[np.arange(len(value)) % 5 != 4] = np.nan
                yield Series(queue_id, metric, scale, value, _x(metric, value).reshape(dates, 24, HOUR))


def scored(series: Series, world: World, calendar: Calendar) -> Scored | None:
    dates = len(series.x)
    hours = np.array([
        [calendar.hour_of_week(START + timedelta(days=date, hours=hour)) for hour in range(24)] for date in range(dates)
    ])  # fmt: skip
    first, end = _minute(world.since) // DAY, _minute(world.until)
    tallied = _binned(series.metric, series.x)
    judged = [_band(series, tallied, hours, date) for date in range(first, dates)]
    if all(np.isnan(band["median"]).all() for band in judged):
        return None
    length = end - first * DAY
    bands = {name: np.concatenate([band[name] for band in judged]).repeat(HOUR)[:length] for name in judged[0]}
    x, value = series.x.ravel()[first * DAY : end], series.value[first * DAY : end]
    median, phase = bands["median"], np.tile(PHASE, len(judged) * 24)[:length]
    step = np.where(phase < 0, -phase * (bands["before"] - median), phase * (bands["after"] - median))
    expected = median + step
    shifted = _shifted(series.metric, x, expected, bands["sigma"])
    middles = (expected, shifted, median)
    low, high = (of.reduce(middles) for of in (np.minimum, np.maximum))
    return Scored(series, x, value, low, high, bands["sigma"], bands["peak"], bands["trough"])


def incidents(scales: list[Scored], settings: Any, since: Any) -> Iterator[Incident]:
    """The incidents of one metric of one queue."""
    weights = np.zeros((2, len(scales[0].x)))
    for of in scales:
        for side, weight in enumerate(_weights(of, settings)):
            weights[side] = np.maximum(weights[side], weight)
    begin = START + timedelta(days=_minute(since) // DAY)
    for weight in weights:
        at = np.flatnonzero(weight)
        for run in np.split(at, np.flatnonzero(np.diff(at) > settings.gap + 1) + 1):
            if len(run) and (len(run) >= settings.lasting or weight[run].max() >= FAR):
                yield (
                    scales[0].series.queue_id,
                    begin + timedelta(minutes=int(run[0])),
                    begin + timedelta(minutes=int(run[-1]) + 1),
                )


def detected_incidents(world: World, registry: Any) -> list[tuple[str, Incident]]:
    """As `ours.detected_incidents`."""
    settings = {detector.settings.metric: (detector.name, detector.settings) for detector in registry}
    evaluated: dict[tuple[int, str], list[Scored]] = {}
    for series in series_of(world):
        if series.metric in settings and (of := scored(series, world, registry.calendar)) is not None:
            evaluated.setdefault((series.queue_id, series.metric), []).append(of)
    return [
        (settings[metric][0], incident)
        for (_, metric), scales in evaluated.items()
        for incident in incidents(scales, settings[metric][1], world.since)
    ]


def _minute(at: Any) -> int:
    return int((at - START) / timedelta(minutes=1))


def _sums(values: Values, scale: int) -> Values:
    total = np.concatenate([[0.0], np.cumsum(values)])
    summed = np.full(len(values), np.nan)
    summed[scale - 1 :] = total[scale:] - total[:-scale]
    return summed


def _medians(values: Values, scale: int) -> Values:
    """Of the known ones among the last values; the higher one of two."""
    windows = np.sort(sliding_window_view(np.concatenate([np.full(scale - 1, np.nan), values]), scale), axis=1)
    known = (~np.isnan(windows)).sum(axis=1)
    return windows[np.arange(len(values)), np.minimum(known // 2, scale - 1)]


def _x(metric: str, value: Values) -> Values:
    if metric in COUNTS:
        return np.sqrt(value)
    return value if metric == "depth" else np.log(np.maximum(value, 0) + 0.001)


def _binned(metric: str, x: Values) -> Values:
    if metric != "depth":
        return _rounded(x, 20)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x == 0, 0, np.sign(x) * np.exp(_rounded(np.log(np.abs(x)), 100)))


def _rounded(x: Values, parts: int) -> Values:
    """Halves away from zero, as in SQL."""
    return np.sign(x) * np.floor(np.abs(x) * parts + 0.5) / parts


def _band(series: Series, tallied: Values, hours: npt.NDArray[np.int64], date: int) -> dict[str, Values]:
    """What is usual in the hours of a date, from the days before it."""
    names = ("median", "before", "after", "sigma", "peak", "trough")
    nothing: dict[str, Values] = {name: np.full(24, np.nan) for name in names}
    first = max(0, date - DAYS)
    known = np.flatnonzero(~np.isnan(tallied[first:date]).all(axis=(1, 2))) + first
    if not len(known):
        return nothing
    past, of_week = tallied[known], hours[known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of hours without values
        if series.metric in COUNTS:
            past = past * _growth(past, of_week, known, date)[:, None, None]
        median = _medians_of_week(past, of_week, series.stands_for)
        if np.isnan(median).all():
            return nothing
        unit = _unit(series.metric, past, median)
        z = _rounded((past - median[of_week][:, :, None]) / unit[of_week][:, :, None], 10)
        by_day = np.full(z.shape, np.nan)
        by_day[np.arange(len(z))[:, None], of_week % 24] = z
        near = (np.arange(24)[:, None] + np.arange(-1, 2)) % 24
        spread = np.nanmedian(np.abs(by_day[:, near]), axis=(0, 2, 3)) * 1.4826
        wide = (np.arange(24)[:, None] + np.arange(-3, 4)) % 24
        highest, lowest = (np.nanmax(np.nanmax(side, axis=2)[:, wide], axis=2) for side in (by_day, -by_day))
        peak = 1.5 * np.nanquantile(highest, 0.9, axis=0) - 0.5 * np.nanquantile(highest, 0.5, axis=0)
        trough = np.nanquantile(lowest, 0.8, axis=0)
    few = max(DAYS / len(known), 1) ** 0.25
    have = np.flatnonzero(~np.isnan(median))
    before, after = np.full(WEEK_HOURS, np.nan), np.full(WEEK_HOURS, np.nan)
    before[have], after[have] = median[np.roll(have, 1)], median[np.roll(have, -1)]
    now = hours[date]
    unit = unit[now]
    return {
        "median": median[now],
        "before": before[now],
        "after": after[now],
        "sigma": np.maximum(spread[now % 24], 1) * unit * few,
        "peak": np.maximum(peak[now % 24], 0) * unit,
        "trough": np.maximum(trough[now % 24], 0) * unit,
    }


def _growth(past: Values, of_week: npt.NDArray[np.int64], known: npt.NDArray[np.intp], date: int) -> Values:
    """By which each day is raised."""
    table = np.full((DAYS, WEEK_HOURS), np.nan)
    table[(known - date + DAYS)[:, None], of_week] = np.nanmedian(past, axis=2)
    after, before = table[7:], table[:-7]
    both = (after > 1) & (before > 1)
    growth = float(np.clip(np.median(after[both] / before[both]), 0.9, 1.12)) if both.sum() >= 50 else 1.0
    return growth ** ((date - known) / 7)


def _medians_of_week(past: Values, of_week: npt.NDArray[np.int64], stands_for: int) -> Values:
    by_hour = [values[~np.isnan(values)] for values in (past[of_week == hour] for hour in range(WEEK_HOURS))]
    medians = np.full(WEEK_HOURS, np.nan)
    for hour in range(WEEK_HOURS):
        day, of_day = divmod(hour, 24)
        alike = range(5) if day < 5 else range(5, 7)
        for days, enough in (((day,), 120), (alike, 180), (range(7), 120)):
            values = np.concatenate([by_hour[each * 24 + of_day] for each in days])
            if len(values) * stands_for >= enough:
                medians[hour] = np.median(values)
                break
    return medians


def _unit(metric: str, past: Values, median: Values) -> Values:
    if metric in COUNTS:
        return np.sqrt(0.25 + (0.03 * median) ** 2)
    fixed = {"processing": 0.15, "lag": 0.25}
    unit = fixed[metric] if metric in fixed else 0.05 * np.nanquantile(np.abs(past), 0.9) + 1e-9
    return np.full(WEEK_HOURS, unit)


def _shifted(metric: str, x: Values, expected: Values, sigma: Values) -> Values:
    """What is expected at the level of the two hours before."""
    if metric == "failed":
        return expected
    missing = np.full(-len(x) % 10, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of blocks without values
        judged, usual = (
            np.nanmedian(
                np.concatenate([np.where(np.isnan(x + expected), np.nan, of), missing]).reshape(-1, 10), axis=1
            )
            for of in (x, expected)
        )
    quotients = np.where(usual >= 1, judged / np.where(usual >= 1, usual, 1), np.nan)
    ratios = quotients if metric in COUNTS else judged - usual
    windows = np.sort(sliding_window_view(np.concatenate([np.full(12, np.nan), ratios]), 12)[: len(ratios)], axis=1)
    known = (~np.isnan(windows)).sum(axis=1)
    level = windows[np.arange(len(ratios)), np.minimum(known // 2, 11)].repeat(10)[: len(x)]
    if metric in COUNTS:
        return expected * np.clip(np.nan_to_num(level, nan=1), 0.5, 2)
    widest = 4 * sigma if metric == "depth" else 1.0
    return expected + np.clip(np.nan_to_num(level), -widest, widest)


def _weights(of: Scored, settings: Any) -> tuple[Values, Values]:
    """How far each minute is above and below, in limits; zero if it is not unusual."""
    metric, low, high = of.series.metric, of.low_middle, of.high_middle
    above = np.maximum(settings.threshold * of.sigma, settings.peak * of.peak)
    below = np.maximum(settings.threshold * of.sigma, settings.trough * of.trough)
    with np.errstate(invalid="ignore"):
        is_high, is_low = of.x > high + above, of.x < low - below
        if metric in COUNTS:
            is_high &= (of.value >= high**2 * (1 + settings.more)) & (of.value - high**2 >= settings.least)
            is_low &= (of.value <= low**2 * (1 - settings.less)) & (low**2 - of.value >= settings.least)
        elif metric != "depth":
            is_high &= of.x - high >= np.log(1 + settings.more)
        if metric in ("failed", "processing", "lag"):
            is_low &= False
        return np.where(is_high, (of.x - high) / above, 0), np.where(is_low, (low - of.x) / below, 0)
