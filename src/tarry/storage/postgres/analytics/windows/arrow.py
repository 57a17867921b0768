# pyright: basic
"""Rows as Arrow record batches, through ADBC: no Python object per value."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from psycopg.conninfo import make_conninfo

from tarry.core.errors import StoreUnavailable, TarryError
from tarry.core.extras import needs_extra
from tarry.core.journal.snapshots import Slice
from tarry.storage.postgres.connections import keywords

R = TypeVar("R")

IDLE_FOR_S = 5.0
"""Long enough for the next task of a job, too short for the next run."""
_NO_SUCH_TABLE = "42P01"


def batches(dsn: str, piece: Slice) -> Iterator[Any]:
    """Arrow batches of a slice, fetched as a whole: a slow reader must not keep a snapshot open."""
    try:
        table = _fetched(dsn, piece.query)
    except _adbc().Error as error:
        if error.sqlstate != _NO_SUCH_TABLE:
            raise
        raise _changed("a day of it is gone") from error
    if piece.rows is not None and table.num_rows != piece.rows:
        raise _changed(f"{table.num_rows} rows where {piece.rows} were planned")
    yield from plain(table).to_batches()


def _changed(how: str) -> TarryError:
    return TarryError(
        f"the journal changed while it was read: {how}", hint="was it pruned at the same time? read again"
    )


def _fetched(dsn: str, query: str) -> Any:
    def fetch(conn: Any) -> Any:
        with conn.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()

    return _CACHE.using(dsn, fetch, _adbc().Error)


def connection(dsn: str, *, autocommit: bool = True) -> Any:
    dbapi = _adbc()
    wishes = {name: value for name, value in keywords(dsn).items() if name != "autocommit"}
    try:
        return dbapi.connect(make_conninfo(dsn, **wishes), autocommit=autocommit)
    except dbapi.Error as error:
        raise StoreUnavailable(
            f"the database cannot be reached: {error}", hint="executors need the same way to the database as the driver"
        ) from error


def _adbc() -> Any:
    with needs_extra("spark", "the data pipeline"):
        from adbc_driver_postgresql import dbapi
    return dbapi


def plain(table: Any) -> Any:
    """Replace extension types (`arrow.json`) by their storage types, the only ones that Spark supports."""
    import pyarrow as pa

    fields = (field.with_type(getattr(field.type, "storage_type", field.type)) for field in table.schema)
    return table.cast(pa.schema(fields))


class ConnectionCache:
    """At most one recently used connection per database and process: a forked child does not use its parent's.

    ADBC reads all types of the database on connect, which takes longer than reading a slice, and the next task of the
    same process usually follows soon.
    """

    def __init__(self, connect: Callable[[str], Any], idle_for_s: float = IDLE_FOR_S) -> None:
        self._connect = connect
        self._idle_for_s = idle_for_s
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, str], tuple[Any, threading.Timer]] = {}

    def using(self, dsn: str, work: Callable[[Any], R], gone: type[Exception]) -> R:
        """Run `work` on the cached connection; on a new one if there is none or it is dead. `work` only reads."""
        conn = self._taken(dsn)
        if conn is not None:
            with suppress(gone):  # if the connection was not the cause, the new one fails too
                return self._used(dsn, conn, work)
        return self._used(dsn, self._connect(dsn), work)

    def _used(self, dsn: str, conn: Any, work: Callable[[Any], R]) -> R:
        try:
            done = work(conn)
        except BaseException:
            conn.close()
            raise
        self._keep(dsn, conn)
        return done

    def _taken(self, dsn: str) -> Any:
        with self._lock:
            conn, timer = self._kept.pop((os.getpid(), dsn), (None, None))
        if timer is not None:
            timer.cancel()
        return conn

    def _keep(self, dsn: str, conn: Any) -> None:
        timer = threading.Timer(self._idle_for_s, self._drop, (dsn, conn))
        timer.daemon = True
        with self._lock:
            if (os.getpid(), dsn) in self._kept:  # another thread was faster
                conn.close()
                return
            self._kept[os.getpid(), dsn] = conn, timer
        timer.start()

    def _drop(self, dsn: str, conn: Any) -> None:
        with self._lock:
            cached = self._kept.get((os.getpid(), dsn))
            if cached is None or cached[0] is not conn:  # taken in the meantime
                return
            del self._kept[os.getpid(), dsn]
        conn.close()


_CACHE = ConnectionCache(connection)
