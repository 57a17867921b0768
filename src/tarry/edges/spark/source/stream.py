"""The journal as a stream. Offsets are edges: a micro-batch contains exactly the events committed between two edges."""

# pyright: basic
# ruff: noqa: N802 - the names of methods are Spark's
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from time import monotonic, sleep
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tarry.core.analytics.manifest import OtherCluster
from tarry.core.errors import InvalidInput
from tarry.core.journal.snapshots import BEGINNING, SnapshotBound, Window
from tarry.edges.spark.source.options import SourceOptions
from tarry.edges.spark.source.reader import read_slice, with_hint
from tarry.pipeline import kept_pipeline_on

IDLE_S = 0.1
"""Pause before the next query when nothing was new. Spark polls every 10 ms."""
Offset = Mapping[str, Any]


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        if options.scan.table != "events":
            raise InvalidInput(
                f"only events can be read as a stream, not {options.scan.table}", hint="spark.read reads it once"
            )
        if options.scan.since is not None or options.scan.until is not None:
            raise InvalidInput("since and until are for spark.read; a stream begins at option start")
        self._options = options
        self._target: SnapshotBound | None = None
        self._kept = ExitStack()
        self._query_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Executors get a copy, which opens its own connections."""
        return {name: value for name, value in self.__dict__.items() if name != "_windows"} | {"_kept": ExitStack()}

    @cached_property
    def _windows(self) -> Any:
        return self._kept.enter_context(kept_pipeline_on(self._options.dsn)).windows

    def stop(self) -> None:
        self._kept.close()

    @with_hint
    def initialOffset(self) -> dict[str, Any]:
        return self._offset(BEGINNING if self._options.start == "earliest" else self._windows.edge())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._options.max_rows is None else ReadMaxRows(self._options.max_rows)

    @with_hint
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._windows.edge()

    @with_hint
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if self._target is None:
            sleep(max(0.0, self._query_at - monotonic()))
        window = self._next_window(self._edge(start))
        if window is None:
            self._query_at = monotonic() + IDLE_S
            return dict(start)
        if isinstance(limit, ReadMaxRows):
            window = self._windows.cut(window, limit.max_rows)
        return self._offset(window.end)

    @with_hint
    def reportLatestOffset(self) -> dict[str, Any]:
        return self._offset(self._windows.current_snapshot())

    @with_hint
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end or not self._is_ours(end):
            return []
        window = Window(self._edge(start), SnapshotBound.from_json(end))
        slices = self._windows.slices(self._options.scan, window, partitions=self._options.partitions)
        return [InputPartition(piece) for piece in slices]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_slice(self._options.dsn, partition)

    def _next_window(self, edge: SnapshotBound) -> Window | None:
        """The window after the edge; None if it is empty, so an idle stream creates no empty batches."""
        if not edge.is_complete:
            rest = Window(edge, edge.closed)
            if self._windows.has_rows(rest):
                return rest
            edge = edge.closed
        until = self._target or self._windows.current_snapshot()
        if edge == until or not self._windows.has_rows(Window(edge, until)):
            return None
        return Window(edge, self._target or self._windows.edge())

    def _offset(self, edge: SnapshotBound) -> dict[str, Any]:
        return {**edge.as_json(), "system_id": self._windows.system_id()}

    def _edge(self, offset: Offset) -> SnapshotBound:
        """The edge of an offset; for an offset of another database, the beginning if `start_anew` is set."""
        edge = SnapshotBound.from_json(offset)
        try:
            self._windows.check(edge, str(offset.get("system_id")))
        except OtherCluster:
            if not self._options.start_anew:
                raise
            return BEGINNING
        return edge

    def _is_ours(self, offset: Offset) -> bool:
        """False for a batch planned on another database, whose rows this database does not have."""
        return self._edge(offset) != BEGINNING or not self._options.start_anew
