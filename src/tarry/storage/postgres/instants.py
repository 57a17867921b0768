"""Instants from the database are in UTC, whatever zone the session has.

The driver gives them in the zone of the session. Two datetimes of one zone are compared and subtracted by the wall clock,
which is wrong in the hour that a zone repeats in autumn.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import Format

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_unpack = struct.Struct(">q").unpack


class _UtcLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> datetime:
        return _EPOCH + timedelta(microseconds=_unpack(data)[0])


def read_in_utc(adapters: AdaptersMap) -> None:
    adapters.register_loader("timestamptz", _UtcLoader)
