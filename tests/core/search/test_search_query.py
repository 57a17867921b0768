"""The query language for messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.errors import InvalidInput
from tarry.core.messages.states import State
from tarry.core.search.query import QUALIFIERS, LagSpan, Period, Search, Span, parse, quoted, without

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def read(text: str) -> Search:
    return parse(text, NOW)


def test_an_empty_query_restricts_nothing() -> None:
    assert read("  ") == Search()


def test_every_qualifier_is_read() -> None:
    text = (
        "queue:orders key:order-17 state:ready type:invoice consumer:w-1 attempts:>3 priority:>=5 due:<+1h "
        'created:>-2h error:~"connection refused" payload.user.id:42 id:9 trace:4BF9 lag:>30s'
    )
    search = read(text)
    assert search == Search(
        queue="orders",
        key="order-17",
        state=State.READY,
        type="invoice",
        consumer="w-1",
        attempts=Span(4, None),
        priority=Span(5, None),
        due=Period(None, NOW + HOUR),
        created=Period(NOW - 2 * HOUR, None),
        error="connection refused",
        payload=((("user", "id"), "42"),),  # pyright: ignore[reportArgumentType]
        version=9,
        trace="4bf9",
        lag=LagSpan(least=timedelta(seconds=30), now=NOW),
    )
    assert {term.name.partition(".")[0] for term in search.terms} == set(QUALIFIERS)


def test_a_word_and_a_star_are_the_beginning_of_a_key() -> None:
    assert read("order-").key_prefix == read("key:order-*").key_prefix == "order-"
    assert read('"two words"').key_prefix == "two words"
    assert read('"order:17"').key_prefix == "order:17"


def test_both_ends_of_a_range_can_be_given() -> None:
    search = read("attempts:>1 attempts:<=3 due:>now due:<+1h")
    assert search.attempts == Span(2, 3)
    assert search.due == Period(NOW, NOW + HOUR)


def test_an_instant_can_be_given_with_its_zone() -> None:
    assert read("created:<2029-12-31T23:00:00+02:00").created.until == datetime(2029, 12, 31, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("colour:red", "colour: there is no such qualifier"),
        ("state:asleep", "state: must be one of"),
        ("attempts:>many", "attempts: 'many' is not a number"),
        ("priority:", "priority: has no value"),
        ("due:<tomorrow", "due: 'tomorrow' is not a time"),
        ("due:+1h", "due: begins with < or >"),
        ("created:>2029-12-31T23:00:00", "created: '2029-12-31T23:00:00' is not a time"),
        ("queue:a queue:b", "queue: is there twice"),
        ("one two", "key: is there twice"),
        ("queue:a/b", "queue: "),
        ("payload:5", "payload: needs the name of a field"),
        ("payload.a..b:5", "payload.a..b: has an empty field"),
        ('error:~"open', "this cannot be read"),
        ("a\x00b", "NUL"),
        ("x" * 401, "at most 400 characters"),
        (" ".join(f"attempts:>{n}" for n in range(21)), "at most 20 terms"),
    ],
)
def test_an_error_names_the_qualifier(text: str, named: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read(text)
    assert named in str(raised.value)


def test_a_term_can_be_taken_out() -> None:
    search = read('queue:orders error:~"a b" state:ready')
    assert without(search, search.terms[1]) == "queue:orders state:ready"


@given(st.text(min_size=1, max_size=60).filter(lambda text: "\x00" not in text))
def test_a_quoted_value_is_read_as_it_was(value: str) -> None:
    search = read(f"type:{quoted(value)}")
    assert search.type == value


@given(st.text(max_size=120))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        search = read(text)
    except InvalidInput:
        return
    assert read(" ".join(term.text for term in search.terms)) == search


@pytest.mark.parametrize(
    ("payload", "matches"),
    [
        (b'{"user": {"id": 42}}', True),
        (b'{"user": {"id": "42"}}', True),
        (b'{"user": {"id": 43}}', False),
        (b'{"user": {"id": {"a": 42}}}', False),
        (b'{"user": [42]}', False),
        (b"42", False),
        (b"\xff not json", False),
    ],
)
def test_a_field_of_the_payload_is_compared_as_text(payload: bytes, *, matches: bool) -> None:
    assert read("payload.user.id:42").admits_payload(payload) is matches


def test_elements_of_lists_and_constants_can_be_named() -> None:
    assert read("payload.items.1:b payload.ok:true").admits_payload(b'{"items": ["a", "b"], "ok": true}')
