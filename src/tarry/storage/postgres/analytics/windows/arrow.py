# pyright: basic
"""Rows as Arrow record batches, through ADBC: no Python object per value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg.conninfo import make_conninfo

from tarry.core.errors import StoreUnavailable, TarryError
from tarry.core.windows import Slice
from tarry.storage.postgres.connections import keywords
from tarry.storage.postgres.pipeline.spare import Spare


def batches(dsn: str, piece: Slice) -> Iterator[Any]:
    """Arrow batches of a slice. Fetched as a whole before the first is yielded: a slow reader must not keep a snapshot
    open.
    """
    table = _fetched(dsn, piece.query)
    if piece.rows is not None and table.num_rows != piece.rows:
        raise TarryError(
            f"the journal changed while it was read: {table.num_rows} rows where {piece.rows} were planned",
            hint="was it pruned at the same time? read again",
        )
    yield from plain(table).to_batches()


def _fetched(dsn: str, query: str) -> Any:
    def fetch(conn: Any) -> Any:
        with conn.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()

    return _SPARE.using(dsn, fetch, _adbc().Error)


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
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise TarryError("the data pipeline needs ADBC", hint="pip install 'tarry[spark]'") from error
    return dbapi


def plain(table: Any) -> Any:
    """Replace extension types (`arrow.json`) by their storage types, the only ones that Spark supports."""
    import pyarrow as pa

    columns = [
        pa.chunked_array([chunk.storage for chunk in column.chunks], type=column.type.storage_type)
        if isinstance(column.type, pa.BaseExtensionType)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


_SPARE = Spare(connection)
