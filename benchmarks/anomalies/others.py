"""What is usually tried first, on the same minutes, with an incident of five unusual ones.

Our thresholds were chosen on some worlds, so theirs are too: each is reported at 3.5, and at its best on those worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.anomalies.faults import START, TRAINING, WEEK, World
from benchmarks.anomalies.scores import Incident, Score, scored

Values = npt.NDArray[np.float64]
LASTING, GAP = 5, 2
"""Minutes of an incident, and the most between two of them."""
USUAL = 3.5
THRESHOLDS = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 14.0)


@dataclass(frozen=True)
class Judged:
    """The scores of a world's last week: one column for each series."""

    scores: Values
    queues: tuple[int, ...]
    both: tuple[bool, ...]
    """Whether too little counts as well."""


def mean_and_deviation(values: Values) -> Values:
    """One mean and one standard deviation for each metric of a queue."""
    past = values[:TRAINING]
    return (values - np.nanmean(past, axis=0)) / np.maximum(np.nanstd(past, axis=0), 1e-9)


def mean_and_deviation_by_hour(values: Values) -> Values:
    """The same for each hour of the week."""
    cells = values.reshape(-1, 168, 60, values.shape[1])
    past = cells[: TRAINING // WEEK]
    mean = np.nanmean(past, axis=(0, 2), keepdims=True)
    deviation = np.maximum(np.nanstd(past, axis=(0, 2), keepdims=True), 1e-9)
    return ((cells - mean) / deviation).reshape(values.shape)


def exponential(alpha: float) -> Callable[[Values], Values]:
    """An exponentially weighted mean and variance of the values as they are."""

    def score(values: Values) -> Values:
        mean, variance = np.nan_to_num(values[0]), np.ones(values.shape[1])
        scores = np.zeros_like(values)
        for i, row in enumerate(values):
            away = np.nan_to_num(row - mean)  # a missing value is no deviation
            scores[i] = away / np.maximum(np.sqrt(variance), 1e-9)
            learned = (1 - alpha) * (variance + alpha * away * away)
            variance = np.where(np.isnan(row), variance, learned)
            mean = mean + alpha * away
        return scores

    return score


CONTENDERS: dict[str, tuple[Callable[[Values], Values], ...]] = {
    "mean ± deviation by hour": (mean_and_deviation_by_hour,),
    "mean ± deviation": (mean_and_deviation,),
    "EWMA": (exponential(0.05), exponential(0.01), exponential(0.2)),
}
"""The first of each is the one that is reported at the usual threshold."""


def compared(worlds: Sequence[World], tuned_on: Sequence[World]) -> list[Score]:
    """Each contender on the worlds, as it is and at its best on the others."""
    scores: list[Score] = []
    for name, variants in CONTENDERS.items():
        scores.append(_total(f"{name}, {USUAL}", [judged(world, variants[0]) for world in worlds], worlds, USUAL))
        _, threshold, variant = max(
            (
                (_total(name, seen, tuned_on, threshold).f1, threshold, number)
                for number, variant in enumerate(variants)
                for seen in [[judged(world, variant) for world in tuned_on]]
                for threshold in THRESHOLDS
            ),
        )
        chosen = [judged(world, variants[variant]) for world in worlds]
        scores.append(_total(f"{name}, tuned: {threshold:g}", chosen, worlds, threshold))
    return scores


def judged(world: World, score: Callable[[Values], Values]) -> Judged:
    queues, columns, both = zip(*_series(world), strict=True)
    scores = np.nan_to_num(score(np.column_stack(columns)))[TRAINING:]
    return Judged(scores, queues, both)


def incidents(of: Judged, threshold: float) -> Iterator[Incident]:
    for column, (queue_id, both) in enumerate(zip(of.queues, of.both, strict=True)):
        scores = of.scores[:, column]
        for side in (1, -1) if both else (1,):
            yield from _incidents(queue_id, np.flatnonzero(scores * side > threshold), scores, threshold)


def _total(name: str, seen: Sequence[Judged], worlds: Sequence[World], threshold: float) -> Score:
    pairs = zip(seen, worlds, strict=True)
    return reduce(add, [scored(name, incidents(of, threshold), world.faults) for of, world in pairs])


def _series(world: World) -> Iterator[tuple[int, Values, bool]]:
    """Every minute, zeros too, of the metrics that ours look at."""
    whole = pd.RangeIndex(TRAINING + WEEK)
    for queue_id, _ in world.queues:
        frame = world.minutes.loc[world.minutes["queue_id"] == queue_id]
        position = ((frame["minute"] - pd.to_datetime(START)) / pd.Timedelta(minutes=1)).astype(int)
        frame = frame.set_index(position).reindex(whole)
        for name, both in (("offered", True), ("acked", True), ("nacked", False)):
            yield queue_id, frame[name].fillna(0).to_numpy(float), both
        for name in ("processing_p95_s", "lag_p95_s"):
            yield queue_id, frame[name].to_numpy(float), False


def _incidents(queue_id: int, minutes: npt.NDArray[np.intp], scores: Values, threshold: float) -> Iterator[Incident]:
    if not len(minutes):
        return
    for run in np.split(minutes, np.flatnonzero(np.diff(minutes) > GAP + 1) + 1):
        if len(run) >= LASTING or np.abs(scores[run]).max() >= 2 * threshold:
            begin = START + timedelta(minutes=TRAINING)
            yield queue_id, begin + timedelta(minutes=int(run[0])), begin + timedelta(minutes=int(run[-1]) + 1)
