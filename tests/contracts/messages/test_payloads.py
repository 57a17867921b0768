"""Payloads through the whole way: plain values, text, bytes, and types by annotation."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from tarry import Outcome, Queue
from tarry.app import App
from tests.kit.backends import SETTINGS
from tests.kit.steps import seen, take

PLAIN = [
    None,
    True,
    0,
    -1,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64,
    -(10**30),
    1.5,
    -0.0,
    1e308,
    "",
    "text with NUL \x00 and 😀",
    b"",
    b"\x00\xff bytes",
    [],
    {},
    [1, "two", None, {"three": [4.0]}],
    {"a\x00b": "NUL in a key", "ключ": "значение"},
    {"nested": {"nested": {"nested": [1, 2, 3]}}},
]


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    name: str
    n: int = 1


@dataclass
class Basket:
    id: UUID
    at: datetime
    colour: Colour
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


class Model(pydantic.BaseModel):
    id: UUID
    at: datetime
    tags: list[str] = []


class Struct(msgspec.Struct):
    id: UUID
    raw: bytes = b""


ID, AT = UUID(int=7), datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)
TYPED: list[tuple[Any, Any]] = [
    (Basket, Basket(ID, AT, Colour.RED, [Line("a"), Line("b", 2)])),
    (Model, Model(id=ID, at=AT, tags=["x"])),
    (Struct, Struct(ID, b"\x00\xff")),
    (str, "text"),
    (bytes, b"\x00\xff"),
    (int, 5),
    (list[int], [1, 2]),
    (dict[str, Line], {"a": Line("a")}),
]


def test_a_plain_value_comes_out_as_it_went_in(queue: Queue[Any]) -> None:
    for payload in PLAIN:
        queue.offer("a", payload)
        assert seen(queue, "a").payload == payload
        delivered = take(queue).payload
        assert (type(delivered), delivered, repr(delivered)) == (type(payload), payload, repr(payload))


@pytest.mark.parametrize(("kind", "payload"), TYPED, ids=lambda case: getattr(case, "__name__", ""))
def test_a_typed_value_comes_out_as_it_went_in(app: App, queue: Queue[Any], kind: Any, payload: Any) -> None:
    typed = app.queue(queue.name, kind)
    typed.offer("a", payload)
    assert seen(typed, "a").payload == payload
    delivery = take(typed)
    assert (type(delivery.payload), delivery.payload) == (type(payload), payload)
    delivery.bury()
    assert [letter.payload for letter in typed.dead_letters.list()] == [payload]


def test_equal_values_are_identical_offers_whatever_their_order(app: App, queue: Queue[Any]) -> None:
    queue.offer("a", {"x": [1, {"b": 1, "a": 2}], "y": 2})
    assert queue.offer("a", {"y": 2, "x": [1, {"a": 2, "b": 1}]}) is Outcome.IGNORED


@pytest.mark.parametrize("kind", [set[int], list[set[int]]])
def test_equal_sets_are_identical_offers_too(app: App, queue: Queue[Any], kind: Any) -> None:
    typed: Queue[Any] = app.queue(queue.name, kind)
    first, other = {0, 8}, {8, 0}
    assert list(first) != list(other), "the point of this test is that they are iterated differently"
    wrap = (lambda value: value) if kind == set[int] else (lambda value: [value])
    typed.offer("a", wrap(first))
    assert typed.offer("a", wrap(other)) is Outcome.IGNORED


def test_a_reader_without_a_type_sees_what_a_typed_writer_wrote(app: App, queue: Queue[Any]) -> None:
    app.queue(queue.name, Line).offer("a", Line("x", 3))
    assert take(queue).payload == {"name": "x", "n": 3}


def test_a_typed_reader_checks_what_an_untyped_writer_wrote(app: App, queue: Queue[Any]) -> None:
    queue.offer("a", {"name": "x"})
    assert take(app.queue(queue.name, Line)).payload == Line("x", 1)


def test_json_and_text_of_the_same_bytes_are_different_messages(queue: Queue[Any]) -> None:
    queue.offer("a", {})
    assert queue.offer("a", "{}") is Outcome.UPDATED
    assert queue.offer("a", b"{}") is Outcome.UPDATED
    assert take(queue).payload == b"{}"


def test_the_largest_payload_fits(queue: Queue[Any]) -> None:
    largest = b"x" * SETTINGS.payload_limit
    queue.offer("a", largest)
    assert take(queue).payload == largest


def test_64_levels_fit(queue: Queue[Any]) -> None:
    deep: Any = 0
    for level in range(64):
        deep = [deep] if level % 2 else {"d": deep}
    queue.offer("a", deep)
    assert take(queue).payload == deep
