"""The checks at the edge: what passes unchanged, what is refused, and that the error names what is allowed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core import limits
from tarry.core.errors import InvalidInput, InvalidPayload, TarryError

START = datetime(2024, 1, 1, tzinfo=UTC)
US = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (limits.check_queue_name, "A.z_0-9"),
        (limits.check_queue_name, "q" * 100),
        (limits.check_key, "k"),
        (limits.check_key, "😀" * 200),
        (limits.check_type, None),
        (limits.check_type, "t" * 100),
        (limits.check_consumer, "c" * 200),
        (limits.check_priority, 0),
        (limits.check_priority, 9),
        (limits.check_instant, START),
        (limits.check_delay, timedelta(0)),
        (limits.check_delay, limits.LONGEST_DELAY),
        (limits.check_lease_for, timedelta(seconds=1)),
        (limits.check_lease_for, timedelta(hours=12)),
        (limits.check_max_attempts, None),
        (limits.check_max_attempts, 1_000_000),
        (limits.check_payload_size, b"x" * limits.PAYLOAD_BYTES),
        (limits.check_headers, {"name": ""}),
        (limits.check_count, -5),
    ],
)
def test_what_is_allowed_passes_unchanged(check: Any, value: Any) -> None:
    assert check(value) == value


@pytest.mark.parametrize(
    ("check", "value", "allowed"),
    [
        (limits.check_queue_name, "q" * 101, "1 to 100"),
        (limits.check_queue_name, "a/b", "A-Z a-z 0-9"),
        (limits.check_queue_name, ".", "cannot be named"),
        (limits.check_queue_name, "..", "cannot be named"),
        (limits.check_queue_name, "a\n", "A-Z a-z 0-9"),
        (limits.check_key, "", "must not be empty"),
        (limits.check_key, "k" * 201, "at most 200"),
        (limits.check_key, "\x00", "NUL"),
        (limits.check_key, "\ud800", "surrogate"),
        (limits.check_type, "t" * 101, "at most 100"),
        (limits.check_priority, True, "0 .* to 9"),
        (limits.check_priority, 10, "0 .* to 9"),
        (limits.check_instant, START.replace(tzinfo=None), "no time zone"),
        (limits.check_delay, -US, "between 0 and 10 years"),
        (limits.check_delay, limits.LONGEST_DELAY + US, "between 0 and 10 years"),
        (limits.check_lease_for, timedelta(seconds=1) - US, "between 1 second and 12 hours"),
        (limits.check_lease_for, timedelta(hours=12) + US, "between 1 second and 12 hours"),
        (limits.check_max_attempts, 0, "1 to 1,000,000"),
        (limits.check_headers, {"n" * 201: ""}, "200"),
        (limits.check_headers, {"a": "é" * 4096}, "8,192"),
        (limits.check_count, True, "whole number"),
        (limits.check_confirmation, "yes", "Yes, please"),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(check: Any, value: Any, allowed: str) -> None:
    with pytest.raises(InvalidInput, match=allowed):
        check(value)


def test_a_payload_that_is_too_large_is_rejected_with_its_size_and_a_hint() -> None:
    with pytest.raises(InvalidPayload, match=r"11 bytes; at most 10 are allowed") as caught:
        limits.check_payload_size(b"x" * 11, 10)
    assert "reference" in str(caught.value.hint)


def test_an_instant_is_given_back_as_the_same_instant() -> None:
    east = datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=14)))
    assert limits.check_instant(east) == START


@given(st.datetimes(timezones=st.timezones()))
def test_no_aware_datetime_raises_anything_but_invalid_input(at: datetime) -> None:
    try:
        assert limits.check_instant(at).timestamp() == pytest.approx(at.timestamp(), abs=1e-3)
    except InvalidInput:
        assert at.year in (1, 9999)


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=9000))
def test_any_error_text_can_be_clipped_to_something_that_can_be_stored(text: str) -> None:
    clipped = limits.clip_error(text)
    assert len(clipped) <= limits.ERROR_LENGTH
    assert "\x00" not in clipped
    assert clipped.encode().decode() == clipped


@given(st.from_type(object) | st.text(alphabet=st.characters(exclude_categories=()), max_size=300))
def test_no_key_whatever_it_is_raises_anything_but_invalid_input(key: object) -> None:
    try:
        text = limits.check_key(key)
    except InvalidInput:
        return
    assert 1 <= len(text.encode().decode()) <= 200


def test_every_error_has_the_common_base_class_and_an_optional_hint() -> None:
    error = InvalidPayload("what is wrong", hint="what to do")
    assert isinstance(error, (InvalidInput, TarryError, ValueError))
    assert (error.message, error.hint) == ("what is wrong", "what to do")
    assert str(error) == "what is wrong (what to do)"
