"""The columns of a frame, and the errors of rows that cannot be offered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tarry.core.analytics.bulk_offer import InvalidRows, StagedRow
from tarry.core.errors import InvalidInput
from tarry.core.messages.model import ConflictRule
from tarry.edges.spark.sink.options import SinkOptions
from tarry.edges.spark.sink.rows import RowReader

# Only for `fromDDL`, which calls the JVM; nothing here runs a job.
pytestmark = pytest.mark.usefixtures("spark")

DSN = {"dsn": "dbname=nowhere"}
AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def schema_of(columns: str) -> StructType:
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    return schema


def read(
    columns: str, *rows: tuple[Any, ...], options: Mapping[str, str] | None = None
) -> tuple[list[StagedRow], InvalidRows]:
    """As a task reads them: `columns` in Spark's own words."""
    schema = schema_of(columns)
    options = {"queue": "q", **(options or {})} if "queue" not in schema.names else (options or {})
    reader = RowReader(schema, SinkOptions.parse({**DSN, **options}))
    names = schema.names
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], to_arrow_schema(schema, timezone="UTC")
    )
    staged, invalid = reader.read(batch, 7, 100)
    return list(staged), invalid


def staged_row(columns: str, *row: Any, options: Mapping[str, str] | None = None) -> StagedRow:
    (staged,), invalid = read(columns, row, options=options)
    assert not invalid
    return staged


def refused(columns: str, *row: Any, options: Mapping[str, str] | None = None) -> str:
    staged, invalid = read(columns, row, options=options)
    assert (staged, invalid.rows) == ([], 1)
    return invalid.samples[0]


class TestRows:
    def test_every_column_has_its_place(self) -> None:
        columns = (
            "queue string, key string, payload binary, due_at timestamp, priority smallint, type string, "
            "headers map<string,string>, max_attempts int"
        )
        staged = staged_row(columns, "orders", "k", b"\x00\x01", AT, 3, "t", {"h": "v"}, 5)
        due = (AT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        assert staged == (
            *("orders", "k", b"\x00\x01", "application/octet-stream", due, None, 3, "t"),
            *(b'{"h":"v"}', 5, False),
        )

    def test_nulls_are_defaults_and_a_missing_key_is_made_up(self) -> None:
        columns = "key string, payload string, due_at timestamp, after_s double, priority int, headers string"
        first = staged_row(columns, None, "text", None, None, None, None)
        second = staged_row("payload string", "text")
        assert first[2:] == second[2:] == (b"text", "text/plain", None, None, 0, None, None, None, True)
        assert len({first[1], second[1]}) == 2
        assert staged_row("payload string, type void", "text", None)[2:] == first[2:]

    def test_a_delay_is_any_number_of_seconds(self) -> None:
        assert staged_row("payload string, after_s double", "", 1.5)[5] == 1.5
        assert staged_row("payload string, after_s bigint", "", 60)[5] == 60.0

    def test_headers_may_be_json_and_none_of_them_are_none(self) -> None:
        assert staged_row("payload string, headers string", "", '{"b": "2", "a": "1"}')[8] == b'{"b":"2","a":"1"}'
        assert staged_row("payload string, headers map<string,string>", "", {})[8] is None


class TestPayloads:
    @pytest.mark.parametrize(
        ("kind", "value", "options", "stored"),
        [
            ("string", "täxt", {}, ("täxt".encode(), "text/plain")),
            ("string", '{"b": 1, "a": [1.50, null]}', {"payload_format": "json"}, (b'{"a":[1.5,null],"b":1}', None)),
            ("string", '"bare"', {"payload_format": "json"}, (b'"bare"', None)),
            ("binary", b'{"b":1}', {"payload_format": "JSON"}, (b'{"b":1}', None)),
            ("binary", b"text", {"payload_format": "text"}, (b"text", "text/plain")),
            ("struct<b:int,a:string>", {"b": 1, "a": None}, {}, (b'{"a":null,"b":1}', None)),
            ("map<string,array<int>>", {"z": [1], "a": []}, {}, (b'{"a":[],"z":[1]}', None)),
            ("array<map<string,int>>", [{"x": 1}], {}, (b'[{"x":1}]', None)),
            ("struct<at:timestamp>", {"at": AT}, {}, (b'{"at":"2026-01-02T03:04:05.000006Z"}', None)),
            ("bigint", 42, {}, (b"42", None)),
        ],
    )
    def test_a_column_becomes_what_an_offer_of_the_same_value_would_store(
        self, kind: str, value: Any, options: dict[str, str], stored: tuple[bytes, str | None]
    ) -> None:
        assert staged_row(f"payload {kind}", value, options=options)[2:4] == stored

    def test_a_content_type_of_its_own_takes_the_bytes_as_they_are(self) -> None:
        columns = "payload binary, content_type string"
        assert staged_row(columns, b"{ }", None)[2:4] == (b"{ }", None)
        assert staged_row(columns, b"\xff", "application/x-protobuf")[2:4] == (b"\xff", "application/x-protobuf")


class TestBadRows:
    @pytest.mark.parametrize(
        ("columns", "row", "problem"),
        [
            ("queue string, payload string", (None, ""), "the queue is null"),
            ("queue string, payload string", ("no spaces", ""), "a queue name is 1 to 100 of the characters"),
            ("key string, payload string", ("", ""), "a key must not be empty"),
            ("key string, payload string", ("x" * 201, ""), "a key has at most 200 characters, not 201"),
            ("key string, payload string", ("a\x00b", ""), r"must not contain NUL"),
            ("payload string", (None,), "the payload is null"),
            ("payload binary", (b"x" * 262_145,), "the payload has 262,145 bytes; at most 262,144 are allowed"),
            ("payload string, priority int", ("", 10), "priority is a whole number from 0 (last) to 9 (first), not 10"),
            ("payload string, priority int", ("", -1), "priority is a whole number"),
            ("payload string, type string", ("", ""), "a type must not be empty"),
            ("payload string, max_attempts int", ("", 0), "max_attempts is a whole number from 1"),
            ("payload string, after_s double", ("", -1.0), "after_s must be between 0 and 10 years"),
            ("payload string, after_s double", ("", float("nan")), "after_s must be between 0 and 10 years"),
            ("payload string, after_s double", ("", float("inf")), "after_s must be between 0 and 10 years"),
            ("payload string, due_at timestamp, after_s double", ("", AT, 1.0), "give either due_at or after_s"),
            ("payload string, headers string", ("", "["), "the headers are not JSON"),
            ("payload string, headers string", ("", '{"a": 1}'), "a header value must be text, not int"),
            ("payload string, headers map<string,string>", ("", {"a": None}), "a header value must be text"),
            ("payload double", (float("nan"),), "contains NaN"),
        ],
    )
    def test_a_bad_row_is_named_with_what_is_wrong(self, columns: str, row: tuple[Any, ...], problem: str) -> None:
        message = refused(columns, *row)
        assert message.startswith("row 100 of partition 7 (queue ")
        assert problem in message

    @pytest.mark.parametrize("text", ["{", '{"a": 1e999}', "", "[" * 100 + "]" * 100])
    def test_json_that_is_none_or_too_deep_is_refused(self, text: str) -> None:
        assert "payload" in refused("payload string", text, options={"payload_format": "json"})

    @pytest.mark.parametrize("column", ["key", "type", "queue", "payload"])
    def test_a_string_that_is_not_utf8_is_refused_and_breaks_nothing(self, column: str) -> None:
        values = {"queue": ["q"], "key": ["k"], "type": ["t"], "payload": ["p"]}
        not_text = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
        )
        arrays = {name: pa.array(value) for name, value in values.items()} | {column: not_text}
        schema = schema_of("queue string, key string, type string, payload string")
        _, invalid = RowReader(schema, SinkOptions.parse(DSN)).read(pa.RecordBatch.from_pydict(arrays), 0, 0)
        assert invalid.rows == 1

    def test_all_are_counted_each_once_and_a_few_are_shown(self) -> None:
        rows = [("", 10)] * 30 + [("fine", 1)] + [("", 5)] * 10
        _, invalid = read("key string, payload string, priority int", *((key, "", n) for key, n in rows))
        assert invalid.rows == 40
        assert len(invalid.samples) == 5
        error = str((invalid + InvalidRows(2, ("other",))).error("w"))
        assert error.startswith(
            "42 rows of write 'w' cannot be offered, and nothing was stored: row 100 of partition 7"
        )
        assert error.endswith("; and 37 more")


class TestFrames:
    @pytest.mark.parametrize(
        ("columns", "options", "problem"),
        [
            ("key string", {}, "needs a column payload"),
            ("payload string, prio int", {}, "knows no column 'prio'"),
            ("payload string, due_at timestamp_ntz", {}, "due_at must be timestamp, not timestamp_ntz"),
            ("payload string, due_at string", {}, "due_at must be timestamp"),
            ("payload string, priority string", {}, "priority must be a whole number"),
            ("payload string, priority double", {}, "priority must be a whole number"),
            ("payload string, queue string", {"queue": "q"}, "the rows need a queue"),
            ("payload string", {"payload_format": "binary"}, "payload_format=binary does not fit a payload of string"),
            ("payload int", {"payload_format": "text"}, "payload_format=text does not fit a payload of int"),
            ("payload string, content_type string", {}, "content_type is for binary payloads"),
        ],
    )
    def test_a_frame_that_cannot_fit_is_refused_before_any_work(
        self, columns: str, options: dict[str, str], problem: str
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            read(columns, options=options)
        assert problem in str(caught.value)

    def test_a_frame_without_a_queue_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match="the rows need a queue"):
            RowReader(schema_of("payload string"), SinkOptions.parse(DSN))


class TestOptions:
    def test_names_and_words_are_taken_in_any_case(self) -> None:
        options = SinkOptions.parse(
            {**DSN, "Queue": "q", "CONFLICT": "Debounce", "max_wait_s": "90", "create_queues": "FALSE", "write_id": "w"}
        )
        assert (options.queue, options.write_id, options.rules.create_queues) == ("q", "w", False)
        assert options.rules.conflict.rule is ConflictRule.DEBOUNCE
        assert options.rules.conflict.max_wait == timedelta(seconds=90)

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({}, "no database is given: set the option dsn"),
            ({**DSN, "confilct": "keep"}, "the sink has no option 'confilct'"),
            ({**DSN, "conflict": "merge"}, "conflict is one of replace, keep, earliest, debounce, not 'merge'"),
            ({**DSN, "conflict": "debounce"}, "only debounce has max_wait, and needs it"),
            ({**DSN, "conflict": "keep", "max_wait_s": "1"}, "only debounce has max_wait"),
            ({**DSN, "max_wait_s": "soon"}, "max_wait_s must be a number"),
            ({**DSN, "create_queues": "perhaps"}, "create_queues is true or false"),
            ({**DSN, "payload_format": "xml"}, "payload_format is one of json, text, binary"),
            ({**DSN, "queue": "no spaces"}, "a queue name is 1 to 100"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, options: dict[str, str], problem: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            SinkOptions.parse(options)
        assert problem in str(caught.value)

    def test_a_payload_limit_of_its_own(self) -> None:
        assert "4 bytes; at most 3 are allowed" in refused("payload string", "four", options={"payload_limit": "3"})
