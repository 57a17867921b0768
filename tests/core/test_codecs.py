"""Payloads to bytes and back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.codecs import BYTES, JSON, TEXT, codec_for
from tarry.core.errors import InvalidPayload

PLAIN = codec_for()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
storable = json_values.filter(lambda value: not isinstance(value, str))


class Level(Enum):
    LOW = 1


@dataclass
class Point:
    x: int
    y: float = 0.0


class Row(NamedTuple):
    a: int
    b: str


class Options(TypedDict):
    name: str
    level: int


class Struct(msgspec.Struct):
    id: UUID
    at: datetime
    raw: bytes


class Model(pydantic.BaseModel):
    n: int
    when: datetime | None = None


class Aliased(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")


class WithSet(pydantic.BaseModel):
    numbers: set[int]


def there_and_back(kind: Any, value: Any) -> Any:
    codec = codec_for(kind)
    return codec.decode(*codec.encode(value))


class TestPlain:
    @given(storable)
    def test_json_comes_back_equal(self, value: Any) -> None:
        data, content_type = PLAIN.encode(value)
        assert content_type is JSON
        assert PLAIN.decode(data, content_type) == value

    @given(st.text())
    def test_text_is_its_utf_8_and_nothing_else(self, value: str) -> None:
        assert PLAIN.encode(value) == (value.encode(), TEXT)
        assert PLAIN.decode(value.encode(), TEXT) == value

    @given(st.binary())
    def test_bytes_are_what_they_are(self, value: bytes) -> None:
        assert PLAIN.encode(value) == (value, BYTES)
        assert PLAIN.decode(value, BYTES) == value

    def test_the_content_type_decides_how_bytes_are_read(self) -> None:
        data = b'{"a":1}'
        assert PLAIN.decode(data, None) == PLAIN.decode(data, "application/json") == {"a": 1}
        assert PLAIN.decode(data, "text/html") == '{"a":1}'
        assert PLAIN.decode(data, "image/png") == data

    @given(st.dictionaries(st.text(), st.integers() | st.dictionaries(st.text(), st.integers())))
    def test_equal_dictionaries_give_equal_bytes_in_any_order(self, value: dict[str, Any]) -> None:
        backward = {
            key: dict(reversed(inner.items())) if isinstance(inner, dict) else inner
            for key, inner in reversed(value.items())
        }
        assert PLAIN.encode(value) == PLAIN.encode(backward)

    def test_the_bytes_are_compact_and_sorted(self) -> None:
        assert PLAIN.encode({"b": [1, 2.5, None, True], "a": "é"})[0] == '{"a":"é","b":[1,2.5,null,true]}'.encode()

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
    @pytest.mark.parametrize(
        "wrap", [lambda n: n, lambda n: [n], lambda n: {"a": {"b": [1, n]}}, lambda n: {n}, lambda n: (n,)]
    )
    def test_numbers_that_json_does_not_have_are_refused(self, number: float, wrap: Any) -> None:
        with pytest.raises(InvalidPayload, match="NaN or an infinite number"):
            PLAIN.encode(wrap(number))

    def test_null_alone_is_fine(self) -> None:
        assert PLAIN.encode([None, {"a": None}])[0] == b'[null,{"a":null}]'

    @pytest.mark.parametrize("levels", [65, 300, 600, 900, 5_000])
    @pytest.mark.parametrize("bottom", [0, None], ids=["number", "null"])
    def test_more_than_64_levels_are_refused(self, levels: int, bottom: Any) -> None:
        value: Any = bottom
        for level in range(levels):
            value = {"d": value} if level % 2 else [value]
        with pytest.raises(InvalidPayload):
            PLAIN.encode(value)

    @pytest.mark.parametrize("value", [object(), 1j, [lambda: None], {1: "a"}, {"a": {2: 3}}, {None: 1}])
    def test_a_value_without_a_json_form_is_rejected_with_a_hint(self, value: Any) -> None:
        with pytest.raises(InvalidPayload, match="JSON") as caught:
            PLAIN.encode(value)
        assert "app.queue(name, PayloadType)" in str(caught.value.hint)

    @pytest.mark.parametrize(
        "data", [b"", b"{", b"NaN", b"[1,]", b"\xff", b"{'a': 1}", b"[" * 100_000, b'"\xed\xa0\x80"', b"1 2"]
    )
    def test_what_is_not_json_is_an_invalid_payload(self, data: bytes) -> None:
        with pytest.raises(InvalidPayload, match="not JSON"):
            PLAIN.decode(data, JSON)

    @given(st.binary(max_size=50), st.sampled_from([None, TEXT, BYTES, "application/json", "x/y"]))
    def test_no_bytes_raise_anything_but_invalid_payload(self, data: bytes, content_type: str | None) -> None:
        with suppress(InvalidPayload):
            PLAIN.decode(data, content_type)

    def test_object_and_any_are_no_types(self) -> None:
        anything: Any = Any
        assert codec_for(object) == codec_for(anything) == PLAIN


class TestTyped:
    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (Point, Point(1, 2.5)),
            (Row, Row(1, "b")),
            (Options, {"name": "x", "level": 2}),
            (Struct, Struct(UUID(int=1), datetime(2024, 1, 1, tzinfo=UTC), b"\x00\xff")),
            (Model, Model(n=1, when=datetime(2024, 1, 1, tzinfo=UTC))),
            (list[Point], [Point(1), Point(2)]),
            (dict[str, Point], {"a": Point(1)}),
            (tuple[int, str], (1, "a")),
            (set[int], {1, 2}),
            (Level, Level.LOW),
            (int | None, None),
            (datetime, datetime(2024, 1, 1, tzinfo=UTC)),
            (str, "text"),
            (bytes, b"\xff"),
        ],
        ids=lambda case: getattr(case, "__name__", repr(case)),
    )
    def test_a_value_comes_back_as_its_type(self, kind: Any, value: Any) -> None:
        back = there_and_back(kind, value)
        assert (type(back), back) == (type(value), value)

    def test_a_pydantic_model_with_aliases_comes_back(self) -> None:
        value = Aliased(orderId=7)
        assert there_and_back(Aliased, value) == value

    @pytest.mark.parametrize("kind", [set[int], frozenset[int]])
    def test_equal_sets_give_equal_bytes(self, kind: Any) -> None:
        assert codec_for(kind).encode({0, 8}) == codec_for(kind).encode({8, 0})

    def test_equal_sets_in_a_pydantic_model_give_equal_bytes(self) -> None:
        first, other = WithSet(numbers={0, 8}), WithSet(numbers={8, 0})
        assert first == other
        assert codec_for(WithSet).encode(first) == codec_for(WithSet).encode(other)

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (Point, Row(1, "b")),
            (int, "1"),
            (str, 1),
            (bytes, "a"),
            (Model, {"n": 1}),
            (Model, Point(1)),
        ],
        ids=repr,
    )
    def test_a_value_of_another_type_is_refused_when_it_is_offered(self, kind: Any, value: Any) -> None:
        with pytest.raises(InvalidPayload):
            codec_for(kind).encode(value)

    @pytest.mark.parametrize("kind", [Point, Model, Struct, int, list[int]], ids=repr)
    @pytest.mark.parametrize("data", [b"", b"null", b"[null]", b'{"x":"a"}', b"\xff", b"{" * 10_000, b"[" * 10_000])
    def test_bytes_of_another_type_are_an_invalid_payload_that_names_the_type(self, kind: Any, data: bytes) -> None:
        with pytest.raises(InvalidPayload, match=getattr(kind, "__name__", "list")):
            codec_for(kind).decode(data, JSON)

    def test_nan_is_refused_inside_of_types_too(self) -> None:
        with pytest.raises(InvalidPayload, match="NaN"):
            codec_for(Point).encode(Point(1, float("nan")))

    def test_a_circle_is_refused(self) -> None:
        value: list[Any] = []
        value.append(value)
        with pytest.raises(InvalidPayload):
            codec_for(list).encode(value)

    def test_a_type_that_cannot_be_checked_is_rejected_with_the_supported_ones(self) -> None:
        strange: Any = dict[str, int] | dict[str, str]
        with pytest.raises(InvalidPayload, match="cannot be checked") as caught:
            codec_for(strange)
        assert "dataclass" in str(caught.value.hint)

    def test_text_that_is_not_utf_8_is_an_invalid_payload(self) -> None:
        with pytest.raises(InvalidPayload, match="UTF-8"):
            codec_for(str).decode(b"\xff", TEXT)
        with pytest.raises(InvalidPayload, match="Unicode"):
            codec_for(str).encode("\ud800")

    def test_extra_fields_of_newer_writers_are_passed_over(self) -> None:
        assert codec_for(Point).decode(b'{"x":1,"z":9}', JSON) == Point(1)


class Plain:
    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize("payload_type", [Plain, list[Plain]])
def test_a_plain_class_is_refused_before_the_first_message(payload_type: Any) -> None:
    with pytest.raises(InvalidPayload, match="Plain is a plain class") as caught:
        codec_for(payload_type)
    assert "use a dataclass" in str(caught.value)
