"""Durations and times, as typed and as shown."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.errors import InvalidInput
from tarry.core.limits import LONGEST_DELAY
from tarry.edges import formats

_N = r"[0-9]+(?:[.,][0-9]+)?"
_PLAIN = re.compile(_N)
_COMPACT = re.compile(rf"(?:{_N}w)?(?:{_N}d)?(?:{_N}h)?(?:{_N}m)?(?:{_N}s)?(?:{_N}ms)?")
_ISO = re.compile(rf"P(?=.)(?:{_N}W)?(?:{_N}D)?(?:T(?=.)(?:{_N}H)?(?:{_N}M)?(?:{_N}S)?)?")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d", 86_400),
        ("1w", 604_800),
        ("1d12h", 129_600),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("90", 90),
        ("0", 0),
        ("0.5", 0.5),
        ("PT15M", 900),
        ("P1DT2H", 93_600),
        ("P2W", 1_209_600),
        ("PT1.5S", 1.5),
        ("PT1,5S", 1.5),
        ("pt15m", 900),
        (" 5s ", 5),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert formats.duration(text, "--after") == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", " ", "P", "PT", "m", "5x", "1m1h", "1e5", "٣s", "1 h", "inf", "nan", "-5s", "P-1D", "P1Y", "P1M", "9" * 400],
)
def test_an_invalid_duration_is_rejected_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(InvalidInput, match="--after") as raised:
        formats.duration(text, "--after")
    assert raised.value.hint


@pytest.mark.parametrize("text", ["P" + "1Y" * 4_000 + "!", "1" * 65, "PT" + "1S" * 40, " " * 65])
def test_a_duration_longer_than_64_characters_is_refused_before_it_is_parsed(text: str) -> None:
    with pytest.raises(InvalidInput, match="--after: a duration has at most 64 characters"):
        formats.duration(text, "--after")


def test_a_time_longer_than_64_characters_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(InvalidInput, match="--at: a time has at most 64 characters"):
        formats.moment("2030-01-31T18:00:00." + "0" * 50 + "Z", "--at")


@given(st.text(alphabet="01.,PTYMWDHSwdhms", max_size=10))
def test_durations_are_the_ones_that_the_grammar_allows(text: str) -> None:
    """The grammar as regular expressions, which are quadratic, and fit for short texts only."""
    allowed = _PLAIN.fullmatch(text) or (text and _COMPACT.fullmatch(text)) or _ISO.fullmatch(text.upper())
    if allowed:
        assert formats.duration(text, "--after") >= timedelta(0)
    else:
        with pytest.raises(InvalidInput):
            formats.duration(text, "--after")


def test_months_and_years_are_refused_because_they_have_no_fixed_length() -> None:
    with pytest.raises(InvalidInput, match="no fixed length"):
        formats.duration("P1M", "--after")


def test_a_delay_beyond_the_limit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="10 years"):
        formats.delay("4000d", "--after")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2030-01-31T18:00:00Z", datetime(2030, 1, 31, 18, tzinfo=UTC)),
        ("2030-01-31t18:00:00z", datetime(2030, 1, 31, 18, tzinfo=UTC)),
        ("2030-01-31 18:00+02:00", datetime(2030, 1, 31, 16, tzinfo=UTC)),
        ("2030-01-31T18:00:00.123456-05:30", datetime(2030, 1, 31, 23, 30, 0, 123456, tzinfo=UTC)),
        ("2030-01-31T18:00:00.123456789Z", datetime(2030, 1, 31, 18, 0, 0, 123456, tzinfo=UTC)),
    ],
)
def test_times_are_read(text: str, at: datetime) -> None:
    assert formats.moment(text, "--at") == at


def test_a_time_from_now_stays_a_delay_for_the_database_to_add() -> None:
    assert formats.moment("+10m", "--at") == timedelta(minutes=10)


@pytest.mark.parametrize(
    "text",
    [
        "2030-01-31T18:00:00",
        "2030-01-31",
        "20300131T180000Z",
        "2030-13-31T18:00:00Z",
        "2030-01-31T24:00:01Z",
        "2030-01-31T18:00:60Z",
        "2030-01-31T18:00:00 Europe/Berlin",
        "2030-01-31T18:00:00+99:00",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "tomorrow",
        "+soon",
        "+-5m",
        "",
    ],
)
def test_an_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="--at") as raised:
        formats.moment(text, "--at")
    assert raised.value.hint


def test_a_time_without_zone_is_rejected_with_a_hint() -> None:
    with pytest.raises(InvalidInput, match="no time zone") as raised:
        formats.moment("2030-01-31T18:00:00", "--at")
    assert "append Z" in (raised.value.hint or "")


@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST_DELAY))
def test_a_duration_is_shown_as_it_can_be_typed(span: timedelta) -> None:
    assert abs(formats.duration(formats.length(span), "--after") - span) <= timedelta(microseconds=1)


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_exact_time_is_read_back_as_it_was(at: datetime) -> None:
    assert formats.moment(formats.exact(at) or "", "--at") == at


@given(st.text(max_size=20))
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parse in (formats.duration, formats.moment):
        with suppress(InvalidInput):
            parse(text, "--after")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (0.25, "in 250ms"),
        (5, "in 5s"),
        (-65, "1m5s ago"),
        (1799.9996, "in 30m"),
        (3725, "in 1h2m"),
        (90_000, "in 1d1h"),
        (-864_000, "10d ago"),
    ],
)
def test_times_are_printed_relative_to_now(seconds: float, text: str) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert formats.relative(now + timedelta(seconds=seconds), now) == text
