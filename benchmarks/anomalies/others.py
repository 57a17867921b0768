"""What is usually tried first, on the same minutes and with the same rule for what is an incident."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.anomalies.faults import START, TRAINING, WEEK, World
from benchmarks.anomalies.scores import Incident

Values = npt.NDArray[np.float64]
THRESHOLD, LASTING, GAP = 3.5, 3, 2


def mean_and_deviation(world: World) -> list[Incident]:
    """One mean and one standard deviation for each metric of a queue."""

    def score(values: Values) -> Values:
        past = values[:TRAINING]
        return (values - np.nanmean(past)) / max(float(np.nanstd(past)), 1e-9)

    return _found(world, score)


def mean_and_deviation_by_hour(world: World) -> list[Incident]:
    """The same for each hour of the week."""

    def score(values: Values) -> Values:
        cells = values.reshape(-1, 168, 60)
        past = cells[: TRAINING // WEEK]
        mean = np.nanmean(past, axis=(0, 2))[None, :, None]
        deviation = np.maximum(np.nanstd(past, axis=(0, 2)), 1e-9)[None, :, None]
        return ((cells - mean) / deviation).reshape(-1)

    return _found(world, score)


def exponential(world: World, alpha: float = 0.05) -> list[Incident]:
    """An exponentially weighted mean and variance of the values as they are."""

    def score(values: Values) -> Values:
        mean, variance = float(np.nan_to_num(values[0])), 1.0
        scores = np.zeros_like(values)
        for i, value in enumerate(values):
            if np.isnan(value):
                continue
            away = value - mean
            scores[i] = away / max(np.sqrt(variance), 1e-9)
            mean += alpha * away
            variance = (1 - alpha) * (variance + alpha * away * away)
        return scores

    return _found(world, score)


def _found(world: World, score: Callable[[Values], Values]) -> list[Incident]:
    incidents: list[Incident] = []
    for queue_id, values, both in _series(world):
        scores = np.nan_to_num(score(values))[TRAINING:]
        for side in (1, -1) if both else (1,):
            incidents += _incidents(queue_id, np.flatnonzero(scores * side > THRESHOLD), scores)
    return incidents


def _series(world: World) -> Iterator[tuple[int, Values, bool]]:
    """Every minute, zeros too, of the metrics that ours look at."""
    whole = pd.RangeIndex(TRAINING + WEEK)
    for queue_id, frame in world.minutes.groupby("queue_id"):
        place = ((frame["minute"] - pd.to_datetime(START)) / pd.Timedelta(minutes=1)).astype(int)
        frame = frame.set_index(place).reindex(whole)
        for name, both in (("offered", True), ("acked", True), ("nacked", False)):
            yield int(queue_id), frame[name].fillna(0).to_numpy(float), both  # type: ignore[arg-type]
        for name in ("processing_p95_s", "lag_p95_s"):
            yield int(queue_id), frame[name].to_numpy(float), False  # type: ignore[arg-type]


def _incidents(queue_id: int, minutes: npt.NDArray[np.intp], scores: Values) -> Iterator[Incident]:
    if not len(minutes):
        return
    for run in np.split(minutes, np.flatnonzero(np.diff(minutes) > GAP + 1) + 1):
        if len(run) >= LASTING or np.abs(scores[run]).max() >= 2 * THRESHOLD:
            begin = START + timedelta(minutes=TRAINING)
            yield queue_id, begin + timedelta(minutes=int(run[0])), begin + timedelta(minutes=int(run[-1]) + 1)
