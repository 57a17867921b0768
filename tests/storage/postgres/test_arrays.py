"""Arrays packed by us arrive as the values they were made of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.adapt import PyFormat

from tarry.storage.postgres import arrays
from tarry.storage.postgres.arrays import (
    MINUS_INFINITY,
    BigintArray,
    BooleanArray,
    ByteaArray,
    FloatArray,
    IntArray,
    JsonbArray,
    PgArray,
    SmallintArray,
    TextArray,
    TimestampArray,
    UuidArray,
    teach,
)

EAST = timezone(timedelta(hours=14))
# For each kind: the name of its type, and values at the edges of what it can say.
EDGES: dict[type[PgArray], tuple[str, Sequence[Any]]] = {
    TextArray: ("text", ["", "a", "ä€𝄞", "{}", '"', "\\", "NULL", ",", " ", "\n\t\r", "x" * 100_000, None, "e\u0301"]),
    ByteaArray: ("bytea", [b"", b"\x00", bytes(range(256)), b"\\x00", b"x" * 300_000]),
    UuidArray: ("uuid", [UUID(int=0), UUID(int=2**128 - 1), UUID("01890a5d-ac96-774b-bcce-b302099a8057")]),
    TimestampArray: (
        "timestamptz",
        [
            datetime(2000, 1, 1, tzinfo=UTC),
            datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=EAST),
            None,
        ],
    ),
    BigintArray: ("bigint", [0, -1, 2**63 - 1, -(2**63)]),
    IntArray: ("int", [0, -1, 2**31 - 1, -(2**31)]),
    SmallintArray: ("smallint", [0, -1, 2**15 - 1, -(2**15)]),
    FloatArray: ("float8", [0.0, -0.0, 1e-300, 1.7976931348623157e308, 0.1, float("inf"), None]),
    BooleanArray: ("boolean", [True, False]),
}
JSON = [b"null", b"{}", b'{"a": [1, 2.5, "\\u00e4\\u20ac"]}', b'"\xc3\xa4"', None]


@pytest.fixture
def taught(connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    teach(connection.adapters)
    connection.execute("set local timezone to 'UTC'")
    return connection


def arrived(conn: psycopg.Connection[Any], array: PgArray, type_name: str) -> Any:
    query = sql.SQL("select %s::{}[]").format(sql.SQL(type_name))  # pyright: ignore[reportArgumentType]
    row = conn.execute(query, (array,)).fetchone()
    assert row is not None
    return row[0]


def test_every_kind_of_array_is_tested_here() -> None:
    assert set(PgArray.__subclasses__()) == {*EDGES, JsonbArray}


@pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.__name__)
def test_edge_values_arrive_unchanged(taught: psycopg.Connection[Any], kind: Any) -> None:
    type_name, values = EDGES[kind]
    assert arrived(taught, kind(values), type_name) == list(values)
    without_null = [value for value in values if value is not None]
    assert arrived(taught, kind(without_null), type_name) == without_null
    for value in without_null:
        assert arrived(taught, kind([value]), type_name) == [value]


@pytest.mark.parametrize("kind", [*EDGES, JsonbArray], ids=lambda kind: kind.__name__)
def test_an_empty_array_is_an_empty_array(taught: psycopg.Connection[Any], kind: Any) -> None:
    type_name = EDGES[kind][0] if kind in EDGES else "jsonb"
    assert arrived(taught, kind([]), type_name) == []


@pytest.mark.parametrize("kind", [TextArray, TimestampArray, FloatArray], ids=lambda kind: kind.__name__)
def test_an_array_of_nothing_but_null_is_one(taught: psycopg.Connection[Any], kind: Any) -> None:
    assert arrived(taught, kind([None, None]), EDGES[kind][0]) == [None, None]


def test_json_arrives_as_the_server_reads_it(taught: psycopg.Connection[Any]) -> None:
    assert arrived(taught, JsonbArray(JSON), "jsonb") == [None, {}, {"a": [1, 2.5, "ä€"]}, "ä", None]


def test_a_missing_instant_can_be_before_all_others(taught: psycopg.Connection[Any]) -> None:
    array = TimestampArray([None, datetime(2024, 1, 1, tzinfo=UTC)], missing=MINUS_INFINITY)
    row = taught.execute("select %s::timestamptz[] = array['-infinity', '2024-01-01Z']::timestamptz[]", (array,))
    assert row.fetchone() == (True,)


def test_the_same_instant_in_another_zone_is_the_same_bytes() -> None:
    noon = datetime(2024, 7, 1, 12, tzinfo=UTC)
    assert TimestampArray([noon]).data == TimestampArray([noon.astimezone(EAST)]).data


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    texts=st.lists(st.none() | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))),
    payloads=st.lists(st.binary()),
    floats=st.lists(st.none() | st.floats(allow_nan=False)),
    instants=st.lists(st.none() | st.datetimes(timezones=st.just(UTC))),
)
def test_any_value_arrives_unchanged(
    taught: psycopg.Connection[Any],
    texts: list[str | None],
    payloads: list[bytes],
    floats: list[float | None],
    instants: list[datetime | None],
) -> None:
    assert arrived(taught, TextArray(texts), "text") == texts
    assert arrived(taught, ByteaArray(payloads), "bytea") == payloads
    assert arrived(taught, FloatArray(floats), "float8") == floats
    assert arrived(taught, TimestampArray(instants), "timestamptz") == instants


def test_a_connection_learns_the_arrays_once_and_nothing_else_changes(connection: psycopg.Connection[Any]) -> None:
    lists_before = connection.adapters.get_dumper(list, PyFormat.AUTO)
    teach(connection.adapters)
    learned = connection.adapters.get_dumper(TextArray, PyFormat.BINARY)
    teach(connection.adapters)
    assert connection.adapters.get_dumper(TextArray, PyFormat.BINARY) is learned
    assert connection.adapters.get_dumper(list, PyFormat.AUTO) is lists_before


def test_other_connections_are_not_taught(server: Any) -> None:
    with psycopg.connect(server.shared) as taught, psycopg.connect(server.shared) as other:
        teach(taught.adapters)
        with pytest.raises(psycopg.ProgrammingError):
            other.adapters.get_dumper(arrays.TextArray, PyFormat.BINARY)
