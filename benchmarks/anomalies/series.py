# pyright: basic
"""Labelled real series from a directory: `*.csv` with the columns timestamp and value, and `windows.json` with the labelled
windows of each file, [[from, to], …] in UTC. Each series becomes a queue, and all of it is judged, day by day.

Whole numbers are counts of offered messages: a count over five minutes is spread over its minutes at random, as arrivals
are. Other values are gauges, recorded as the depth of the queue. All series are moved by whole weeks to the same beginning.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.anomalies.faults import START, Fault, World

MINUTE = timedelta(minutes=1)


def series_in(directory: Path) -> World:
    windows: dict[str, list[tuple[str, str]]] = json.loads((directory / "windows.json").read_text())
    files = [directory / name for name in sorted(windows)]
    loaded = [_loaded(path, number, windows[path.name]) for number, path in enumerate(files, start=1)]
    frames, labels, lives = zip(*loaded, strict=True)
    until = max(end for _, end in lives)
    return World(
        minutes=pd.concat(frames, ignore_index=True),
        faults=tuple(fault for faults in labels for fault in faults),
        queues=tuple((number, path.stem) for number, path in enumerate(files, start=1)),
        since=START,
        until=until,
        lives=lives,
    )


def _loaded(
    path: Path, queue_id: int, windows: list[tuple[str, str]]
) -> tuple[pd.DataFrame, list[Fault], tuple[datetime, datetime]]:
    read = pd.read_csv(path)
    recorded = read["value"].to_numpy(float)
    at = pd.to_datetime(read["timestamp"], utc=True).dt.floor("min")
    moved = pd.Timestamp(START) - at.min().normalize() + pd.Timedelta(days=at.min().weekday())
    values = pd.Series(recorded, index=at + moved).groupby(level=0).mean()
    minutes_apart = np.median(np.diff(values.index.to_numpy()).astype("timedelta64[s]").astype(float)) / 60
    step = max(1, round(minutes_apart))
    grid = pd.date_range(values.index[0], values.index[-1], freq=step * MINUTE)
    # What is missing in the file was not recorded: that is not the same as nothing happened.
    steps = values.reindex(grid, method="nearest", tolerance=step * MINUTE / 2).interpolate()
    minutes = pd.date_range(grid[0], periods=len(grid) * step, freq="min")
    is_count = bool(np.all(recorded % 1 == 0) and np.all(recorded >= 0))
    columns: dict[str, Any] = dict.fromkeys(("offered", "updated", "acked", "nacked", "expired"), 0)
    columns |= dict.fromkeys(("processing_p95_s", "lag_p95_s", "depth"), np.nan)
    if is_count:
        rng = np.random.default_rng(queue_id)
        columns["offered"] = rng.multinomial(steps.round().astype("int64").to_numpy(), [1 / step] * step).ravel()
    else:
        columns["depth"] = np.repeat(steps.to_numpy(), step)
    faults = [
        Fault(queue_id, "window", *(round((pd.Timestamp(end, tz=UTC) + moved - START) / MINUTE) for end in window))
        for window in windows
    ]
    frame = pd.DataFrame({"queue_id": queue_id, "minute": minutes, **columns})
    first: Any = minutes[0]
    begin: datetime = first.to_pydatetime()
    life = (begin, begin + len(minutes) * MINUTE)
    return frame, faults, life
