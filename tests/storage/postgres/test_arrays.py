"""Arrays packed by us arrive as the values they were made of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

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
    TidArray,
    TimestampArray,
    register_array_dumpers,
)

EAST = timezone(timedelta(hours=14))
# For each kind: the name of its type, and values at the edges of its range.
EDGES: dict[type[PgArray], tuple[str, Sequence[Any]]] = {
    TextArray: ("text", ["", "a", "ä€𝄞", "{}", '"', "\\", "NULL", ",", " ", "\n\t\r", "x" * 100_000, None, "e\u0301"]),
    ByteaArray: ("bytea", [b"", b"\x00", bytes(range(256)), b"\\x00", b"x" * 300_000]),
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
def registered(connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    register_array_dumpers(connection.adapters)
    connection.execute("set local timezone to 'UTC'")
    return connection


def arrived(conn: psycopg.Connection[Any], array: PgArray, type_name: str) -> Any:
    query = sql.SQL("select %s::{}[]").format(sql.SQL(type_name))  # pyright: ignore[reportArgumentType]
    row = conn.execute(query, (array,)).fetchone()
    assert row is not None
    return row[0]


def test_every_kind_of_array_is_tested_here() -> None:
    assert set(arrays.ARRAYS) == {*EDGES, JsonbArray, TidArray}


@pytest.mark.parametrize("kind", EDGES, ids=lambda kind: kind.__name__)
def test_edge_values_arrive_unchanged(registered: psycopg.Connection[Any], kind: Any) -> None:
    type_name, values = EDGES[kind]
    assert arrived(registered, kind(values), type_name) == list(values)
    without_null = [value for value in values if value is not None]
    assert arrived(registered, kind(without_null), type_name) == without_null
    for value in without_null:
        assert arrived(registered, kind([value]), type_name) == [value]


@pytest.mark.parametrize("kind", [*EDGES, JsonbArray], ids=lambda kind: kind.__name__)
def test_an_empty_array_is_an_empty_array(registered: psycopg.Connection[Any], kind: Any) -> None:
    type_name = EDGES[kind][0] if kind in EDGES else "jsonb"
    assert arrived(registered, kind([]), type_name) == []


@pytest.mark.parametrize("kind", [TextArray, TimestampArray, FloatArray], ids=lambda kind: kind.__name__)
def test_an_array_of_nothing_but_null_is_one(registered: psycopg.Connection[Any], kind: Any) -> None:
    assert arrived(registered, kind([None, None]), EDGES[kind][0]) == [None, None]


def test_json_arrives_as_the_server_reads_it(registered: psycopg.Connection[Any]) -> None:
    assert arrived(registered, JsonbArray(JSON), "jsonb") == [None, {}, {"a": [1, 2.5, "ä€"]}, "ä", None]


def test_places_arrive_from_their_bytes(registered: psycopg.Connection[Any]) -> None:
    tids = TidArray([b"\x00\x00\x00\x02\x00\x03", b"\xff" * 6])
    row = registered.execute("select %s::tid[]::text[]", (tids,)).fetchone()
    assert row == (["(2,3)", "(4294967295,65535)"],)


def test_a_missing_instant_can_be_before_all_others(registered: psycopg.Connection[Any]) -> None:
    array = TimestampArray([None, datetime(2024, 1, 1, tzinfo=UTC)], missing=MINUS_INFINITY)
    row = registered.execute("select %s::timestamptz[] = array['-infinity', '2024-01-01Z']::timestamptz[]", (array,))
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
    registered: psycopg.Connection[Any],
    texts: list[str | None],
    payloads: list[bytes],
    floats: list[float | None],
    instants: list[datetime | None],
) -> None:
    assert arrived(registered, TextArray(texts), "text") == texts
    assert arrived(registered, ByteaArray(payloads), "bytea") == payloads
    assert arrived(registered, FloatArray(floats), "float8") == floats
    assert arrived(registered, TimestampArray(instants), "timestamptz") == instants


def test_a_connection_learns_the_arrays_once_and_nothing_else_changes(connection: psycopg.Connection[Any]) -> None:
    lists_before = connection.adapters.get_dumper(list, PyFormat.AUTO)
    register_array_dumpers(connection.adapters)
    learned = connection.adapters.get_dumper(TextArray, PyFormat.BINARY)
    register_array_dumpers(connection.adapters)
    assert connection.adapters.get_dumper(TextArray, PyFormat.BINARY) is learned
    assert connection.adapters.get_dumper(list, PyFormat.AUTO) is lists_before


def test_other_connections_have_no_array_dumpers(server: Any) -> None:
    with psycopg.connect(server.shared) as registered, psycopg.connect(server.shared) as other:
        register_array_dumpers(registered.adapters)
        with pytest.raises(psycopg.ProgrammingError):
            other.adapters.get_dumper(arrays.TextArray, PyFormat.BINARY)
